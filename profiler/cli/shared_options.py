"""Options that several commands share, and how they print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler import rich_console
from profiler.backends import Backend, BackendError
from profiler.backends.detection import NAMES, find_backend
from profiler.backends.sources import HostSource, LiveSource
from profiler.backends.xen import DEFAULT_MODE, MODES
from profiler.checks.hypervisors import traced_already
from profiler.observed import check_id

# Output of all commands: exit codes, one-sentence errors, JSON, and tables by rich.

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


if TYPE_CHECKING:  # HTTP is half of the agent's memory, and most commands push nothing
    from profiler.agent.http_client import ServerUrl


def add_backend(command: argparse.ArgumentParser) -> None:
    """Declare `--backend`."""
    command.add_argument(
        "--backend",
        choices=NAMES,
        default="auto",
        help="which hypervisor to read; auto: Xen in a Dom0, libvirt where it has guests, else containers",
    )


def add_push(command: argparse.ArgumentParser, what: str) -> None:
    """Declare `--push` and `--token-file`; `what` names in the help what goes to the server."""
    command.add_argument(
        "--push", type=server_url, metavar="URL", help=f"base URL of the Cotenant server that gets {what}"
    )
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the server's token, mode 640 or less (default: COTENANT_TOKEN, if set)",
    )


def add_choice(command: argparse.ArgumentParser) -> None:
    """Declare `--backend`, `--host` and `--xen-trace`."""
    add_backend(command)
    command.add_argument(
        "--host", type=an_id("host"), metavar="ID", help="this host's id in the inventory (default: its host name)"
    )
    command.add_argument(
        "--xen-trace", choices=MODES, default=DEFAULT_MODE,
        help=f"content of Xen's trace: full adds hypercalls, at several times the cost ({DEFAULT_MODE})",
    )  # fmt: skip


def chosen_backend(options: argparse.Namespace, source: HostSource | None = None) -> Backend:
    """The backend that the options choose; BackendError as `find_backend`, and where Xen's trace is in use already."""
    if options.backend in ("auto", "xen") and options.xen_trace != "off" and traced_already(LiveSource()):
        raise BackendError("another xentrace runs here (an agent's?) and would lose records: use --xen-trace off")
    return find_backend(options.backend, source, options.host, options.xen_trace)


def between(lowest: float, highest: float, unit: str) -> Callable[[str], float]:
    """A type of option: a number of `unit` in this range."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"{text!r} is not between {lowest:g} and {highest:g} {unit}")
        return value

    return read


def an_id(what: str) -> Callable[[str], str]:
    """A type of option: an id of the inventory."""

    def read(text: str) -> str:
        try:
            return check_id(text, what)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def server_url(text: str) -> ServerUrl:
    """The type of options that name an URL."""
    from profiler.agent.http_client import parse_url

    try:
        return parse_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def profiler_version() -> str:
    """The version of this package, `unknown` in a checkout that was never installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version("cotenant-profiler")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
