"""Options that commands share: choice of the backend, pushing, and numbers within a range."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.backends import Backend, BackendError
from profiler.backends.detection import NAMES, find_backend
from profiler.backends.sources import HostSource, LiveSource
from profiler.backends.xen import DEFAULT_MODE, MODES
from profiler.checks.hypervisors import traced_already
from profiler.observed import check_id

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
        "--push", type=_server, metavar="URL", help=f"base URL of the Cotenant server that gets {what}"
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


def _server(text: str) -> ServerUrl:
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
