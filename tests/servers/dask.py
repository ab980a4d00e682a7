"""Dask's scheduler and workers for a test, as an operator starts them: real programs on free ports of loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program of Dask's, ended by its own process id."""
    command = [sys.executable, "-m", "dask", *words, "--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    running = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(10)
        running.stderr.close()  # type: ignore[union-attr]


@contextmanager
def scheduler() -> Iterator[str]:
    """A scheduler; gives its address."""
    with program("scheduler", "--port", "0") as running:
        yield _read_until(running, r"Scheduler at:\s+(tcp://\S+)")


@contextmanager
def workers(address: str) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """Two workers of a thread each, known to the scheduler there."""
    words = ("worker", address, "--nthreads", "1", "--no-nanny", "--death-timeout", "30")
    with program(*words) as one, program(*words) as other:
        for each in (one, other):
            _read_until(each, r"(Registered to)")
        yield one, other


def _read_until(running: subprocess.Popen[str], pattern: str) -> str:
    """The first group of the first line on standard error that matches."""
    for line in running.stderr:  # type: ignore[union-attr]
        if match := re.search(pattern, line):
            return match[1]
    raise AssertionError(f"it ended without saying {pattern}")


def process_id(_task: int) -> int:
    """Where a task runs."""
    return os.getpid()


def slowly(task: int) -> int:
    """The task itself, later."""
    time.sleep(0.3)
    return task
