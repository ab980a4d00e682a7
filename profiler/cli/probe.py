"""`cotenant-profiler probe`: runs a probe, lists the probes, or serves as the far end of a probe."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import platform
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.cli.shared_options import (
    DONE,
    FAILED,
    WRONG_USAGE,
    add_push,
    an_id,
    console,
    fail,
    print_json,
    print_table,
    profiler_version,
)
from profiler.observed import check_id
from profiler.probes import PROBES

# Probes are imported when one is asked for: the agent shares this command line and needs none of them.
if TYPE_CHECKING:
    from profiler.observed import ProbeResult
    from profiler.probes.base import Progress

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s\[\]]{1,253})(?::(\d{1,5}))?\Z")
_REFRESH_S = 0.5


class _ProbeParser(argparse.ArgumentParser):
    """Imports a probe, and declares its options, only when the command line names it."""

    probe = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.probe:
            from profiler.probes import load

            load(self.probe).add_options(self)
            self.probe = ""
        return super().parse_known_args(args, namespace)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the commands and their options."""
    group = commands.add_parser("probe", help="run a probe of this machine, or of the network to another one")
    probes = group.add_subparsers(title="probes", required=True, metavar="NAME", parser_class=_ProbeParser)
    for name, entry in PROBES.items():
        probe = probes.add_parser(name, help=entry.summary, description=f"{entry.summary} (after {entry.after})")
        probe.probe = name
        if entry.needs_peer:
            probe.add_argument(
                "--to", type=_address, metavar="HOST[:PORT]", help="the far end (default: a local one on loopback)"
            )
        probe.add_argument("--json", action="store_true", help="machine-readable output")
        probe.add_argument("--raw", type=Path, metavar="FILE", help="write the raw series as CSV (.gz: compressed)")
        probe.add_argument("--picture", type=Path, metavar="FILE", help="draw a chart of the raw series (.png or .svg)")
        _add_push(probe)
        probe.set_defaults(command=_probe, name=name)
    listing = probes.add_parser("list", help="list all probes and the papers that they follow")
    listing.add_argument("--json", action="store_true", help="machine-readable output")
    listing.set_defaults(command=_list)
    serve = probes.add_parser("serve", help="serve as the far end of probes from other hosts, until stopped")
    serve.add_argument(
        "--listen", type=_address, default=("127.0.0.1", None), metavar="ADDRESS[:PORT]",
        help="address to listen on (127.0.0.1:9406); whoever can reach it may load this host and its network",
    )  # fmt: skip
    serve.add_argument("--json", action="store_true", help="print its address as JSON")
    serve.set_defaults(command=_serve)


def _add_push(probe: argparse.ArgumentParser) -> None:
    add_push(probe, "the result, which it stores as the newest of this probe")
    probe.add_argument(
        "--host", type=an_id("host"), metavar="ID",
        help="with --push, the id in the inventory of the host that is measured (default: the name of this machine)",
    )  # fmt: skip
    probe.add_argument(
        "--inside", type=an_id("instance"), metavar="ID",
        help="with --push, the id of the instance that this runs in (default: none, it runs on the host)",
    )  # fmt: skip
    probe.add_argument(
        "--peer", dest="peer_id", type=an_id("peer"), metavar="ID",
        help="with --push, the id of the host or instance at the far end; of a probe without one, of the instance on"
        " the same host beside which --inside ran (default: none)",
    )  # fmt: skip


def _address(text: str) -> tuple[str, int | None]:
    with contextlib.suppress(ValueError):
        return str(ipaddress.IPv6Address(text)), None  # its colons separate no port
    match = _ADDRESS.match(text)
    if not match or int(match[2] or 0) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST or HOST:PORT ([ADDRESS]:PORT for IPv6)")
    return match[1].strip("[]"), int(match[2]) if match[2] else None


def _probe(options: argparse.Namespace) -> int:
    from profiler.pictures import PictureError, check_target
    from profiler.probes import load
    from profiler.probes.base import ProbeError
    from profiler.probes.run import draw, run_probe, write_series

    screen = None if options.json else console()  # before the wait, for it may refuse
    if problem := _unwritable(options.raw) or _unsendable(options):
        return fail(problem, WRONG_USAGE)
    try:
        if options.picture:
            check_target(options.picture)
    except PictureError as error:
        return fail(str(error), WRONG_USAGE)
    try:
        with _progress() as progress:
            result, run = run_probe(options.name, options, progress)
        if screen is None:
            print_json(result.document(), indent=None)
        else:
            _show(result, screen)
        if options.raw:  # after the result is shown, which must not depend on files
            write_series(run.series, options.raw)
        if options.picture:
            draw(load(options.name), run, options.picture)
        if options.push and not progress.stopped:  # a part of a probe is no result for others
            _push(options, result)
    except (ProbeError, PictureError) as error:
        return fail(str(error), FAILED)
    return FAILED if progress.stopped else DONE


def _unsendable(options: argparse.Namespace) -> str:
    """Why the result could not be sent, found out before measuring; empty where it can, or need not, be sent."""
    if not PROBES[options.name].needs_peer and options.peer_id and not options.inside:
        return "--peer goes with --inside: it names what ran beside that instance"
    if options.push is None:
        named = [name for name in ("host", "inside", "peer_id", "token_file") if getattr(options, name, "")]
        return f"--{named[0].removesuffix('_id').replace('_', '-')} goes with --push" if named else ""
    from profiler.agent.push import PushToken

    try:
        options.token = PushToken(options.token_file, options.push)
        options.host = check_id(options.host or platform.node(), "host")
    except ValueError as error:
        return str(error)
    return ""


def _push(options: argparse.Namespace, result: ProbeResult) -> None:
    from profiler.agent.http_client import HttpClient, ProbePushError, push_result
    from profiler.probes.base import ProbeError

    client = HttpClient(options.push, options.token, f"cotenant-profiler/{profiler_version()}")
    try:
        push_result(client, result, options.host, options.inside, options.peer_id)
    except ProbePushError as error:
        raise ProbeError(str(error)) from None
    finally:
        client.close()


def _unwritable(path: Path | None) -> str:
    """Why a file could not be written there, found out before measuring; empty where it can."""
    if path is None:
        return ""
    if path.is_dir():
        return f"{path} is a folder"
    return "" if path.absolute().parent.is_dir() else f"{path}: there is no folder {path.parent}"


def _show(result: ProbeResult, screen: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=result.probe, title_justify="left")
    for column in ("value", "", "unit"):
        table.add_column(column, justify="right" if not column else "left")
    for name, quantity in result.values.items():
        style = "bold" if name == result.main else ""
        table.add_row(Text(name, style), Text(shown(quantity.value), style), Text(quantity.unit, style))
    screen.print(table)
    screen.print(", ".join(f"{name} {value}" for name, value in result.circumstances.items()))
    for mark in result.marks:
        screen.print(f"mark: {mark}")


def shown(value: float) -> str:
    """A number with about four significant digits."""
    if value == int(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def _list(options: argparse.Namespace) -> int:
    if options.json:
        print_json([{"probe": name, "measures": entry.summary, "after": entry.after, "far_end": entry.needs_peer}
                    for name, entry in PROBES.items()])  # fmt: skip
    else:
        rows = ((name, entry.summary, entry.after) for name, entry in PROBES.items())
        print_table(console(), ("probe", "measures", "after"), rows)
    return DONE


def _serve(options: argparse.Namespace) -> int:
    from profiler.probes.base import ProbeError
    from profiler.probes.responder import Responder
    from profiler.probes.sessions import DEFAULT_PORT

    address, port = options.listen
    try:
        responder = Responder((address, DEFAULT_PORT if port is None else port))
    except ProbeError as error:
        return fail(str(error), FAILED)
    host, port = responder.address
    with _signals(lambda _number, _frame: responder.stop()):
        if options.json:
            print_json({"address": host, "port": port}, indent=None)
        else:
            print(f"listening on {host} port {port}; Ctrl-C ends it")
        sys.stdout.flush()
        responder.run()
    return DONE


@contextlib.contextmanager
def _signals(handler: Any) -> Iterator[None]:
    with contextlib.ExitStack() as parts:
        for number in (signal.SIGTERM, signal.SIGINT):
            parts.callback(signal.signal, number, signal.signal(number, handler))
        yield


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A progress that signals can stop, and that shows a line on a terminal."""
    from profiler.probes.base import Progress

    class Line(Progress):
        """One line on standard error, written over: rich's bars have a thread, which would disturb what is timed."""

        def __init__(self, *, terminal: bool) -> None:
            super().__init__()
            self._terminal = terminal
            self._total, self._unit, self._next = 0.0, "", 0.0
            self._shown = False

        def begin(self, total: float, unit: str) -> None:
            self._total, self._unit, self._next = total, unit, 0.0
            self.update(0.0)

        def update(self, done: float) -> None:
            now = time.monotonic()
            if not self._terminal or now < self._next or self._total <= 0:
                return
            self._next = now + _REFRESH_S
            filled = min(30, int(30 * done / self._total))
            bar = "█" * filled + "·" * (30 - filled)
            self._write(f"{bar} {min(done, self._total):,.0f} of {self._total:,.0f} {self._unit}")

        def say(self, text: str) -> None:
            self.clear()
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

        def clear(self) -> None:
            if self._shown:
                self._write("")
                self._shown = False

        def _write(self, text: str) -> None:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = True

    progress = Line(terminal=sys.stderr.isatty())
    with _signals(lambda _number, _frame: progress.stop()):
        try:
            yield progress
        finally:
            progress.clear()
