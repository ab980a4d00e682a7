"""The command line `cotenant-profiler`: arguments in, tables or JSON out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from profiler.cli import act, check, once, probe, run
from profiler.cli.shared_options import run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors are one sentence on standard error."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cotenant-profiler", description="Reads and measures what runs on this host; root only for real probes."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (check, once, run, act, probe):
        module.add(commands)
    return parser
