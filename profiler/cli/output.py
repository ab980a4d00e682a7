"""What every command of the command line says and how: exit codes, one-sentence errors, JSON, tables drawn by rich."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from profiler import screen

if TYPE_CHECKING:
    from rich.console import Console

DONE, FAILED, WRONG_USAGE = 0, 1, 2


class NoTablesError(Exception):
    """Tables cannot be drawn here."""


def fail(message: str, code: int, program: str = "cotenant-profiler") -> int:
    """Say one sentence on standard error and return `code`."""
    print(f"{program}: {message}", file=sys.stderr)
    return code


def print_json(document: Any, indent: int | None = 2) -> None:
    json.dump(document, sys.stdout, indent=indent, allow_nan=False)
    print()


def console() -> Console:
    """Where tables go. Raises NoTablesError without rich: hosts may have only Python, where `--json` still works."""
    # Piped output is not cut at 80 columns: a table in a file must be whole.
    width = None if sys.stdout.isatty() else 200
    try:
        return screen.console(width=width)
    except ImportError:
        raise NoTablesError("tables need the Python package rich; ask for --json, or install rich") from None
