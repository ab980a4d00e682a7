"""What the tests on the real machine share: running argv lists, and which tools and kernel features are there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence

import pytest

from advisor.domain import Command


def run(*argv: str, inside: str | None = None, check: bool = True) -> str:
    """Run one command, in a network namespace where `inside` names one, and return what it printed."""
    whole = ("ip", "netns", "exec", inside, *argv) if inside else argv
    done = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=120)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def do(commands: Iterable[Command], inside: str | None = None) -> None:
    for command in commands:
        if command.argv:
            run(*command.argv, inside=inside)


def undo(commands: Sequence[Command], inside: str | None = None) -> None:
    for command in reversed(commands):
        if command.undo:
            run(*command.undo, inside=inside)


def need(*tools: str) -> None:
    """Skip without root or without one of the tools."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
