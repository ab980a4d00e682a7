"""Output of all commands: exit codes, one-sentence errors, JSON, and tables by rich."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from profiler import rich_console
from profiler.backends import BackendError

if TYPE_CHECKING:
    from rich.console import Console

DONE, FAILED, WRONG_USAGE = 0, 1, 2


class NoTablesError(Exception):
    """Tables cannot be drawn here."""


def fail(message: str, code: int, program: str = "cotenant-profiler") -> int:
    """Print one sentence on standard error and return `code`."""
    print(f"{program}: {message}", file=sys.stderr)
    return code


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name; returns the exit code. Errors are one sentence on standard error."""
    options = parser.parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        return fail("stopped", FAILED, parser.prog)
    except (BackendError, NoTablesError) as error:
        return fail(str(error), FAILED, parser.prog)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        sys.stderr.close()
        return FAILED


def print_json(document: Any, indent: int | None = 2) -> None:
    """Print a document; times in it become text."""
    json.dump(document, sys.stdout, indent=indent, allow_nan=False, default=datetime.isoformat)
    print()


def print_table(screen: Console, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print text in columns; long cells are folded."""
    from rich.table import Table

    table = Table()
    for column in head:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    screen.print(table)


def console() -> Console:
    """Where tables go. Raises NoTablesError without rich: hosts may have only Python, where `--json` still works."""
    # Piped output is not cut at 80 columns: a table in a file must be whole.
    width = None if sys.stdout.isatty() else 200
    try:
        return rich_console.console(width=width)
    except ImportError:
        raise NoTablesError("tables need the Python package rich; ask for --json, or install rich") from None
