"""`cotenant-profiler run`: builds the agent from its options, runs it until it is stopped, and prints a summary."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.agent.further_counters import EVENTS, HardwareWatch, RunQueueWatch
from profiler.agent.loop import Agent, AgentView, Log, Pace, StartError
from profiler.backends import Backend, GroupedBackend, ThreadedBackend
from profiler.backends.detection import passed_over
from profiler.backends.hardware_counters import PerfCounters
from profiler.backends.linux import PROGRAM
from profiler.backends.sources import LiveSource
from profiler.cli.shared_options import (
    DONE,
    FAILED,
    WRONG_USAGE,
    add_choice,
    add_push,
    between,
    chosen_backend,
    fail,
    print_json,
    profiler_version,
    server_url,
)
from profiler.collectors.windows import Key, Statistic

# Exporter and push are imported when they are asked for: their libraries are half of the agent's memory.
if TYPE_CHECKING:
    from profiler.agent.announcement import Announcer
    from profiler.agent.push import Delivery
    from profiler.collectors.windows import MetricWindow

_GRACE_S = 0.4  # for each part, when the agent ends
_SPOOL = Path("/var/lib/cotenant-profiler/spool")
PUSHED_WINDOW_S = 60.0  # the service learns from means of five minutes, and shorter windows cost it more
_LISTEN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]+):(\d{1,5})\Z")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    run = commands.add_parser("run", help="the agent: measure continuously, export to Prometheus, push to Cotenant")
    run.add_argument(
        "--every", type=between(0.1, 60, "seconds"), default=1.0, metavar="S", help="seconds between readings (1)"
    )
    run.add_argument(
        "--window", type=between(1, 300, "seconds"), metavar="S",
        help=f"seconds of one window ({PUSHED_WINDOW_S:g} with --push, else {Pace().window_s:g})",
    )  # fmt: skip
    add_choice(run)
    run.add_argument(
        "--listen", type=_listen, default=("127.0.0.1", 9405), metavar="ADDRESS:PORT",
        help="address on which Prometheus finds /metrics (127.0.0.1:9405)",
    )  # fmt: skip
    run.add_argument("--no-exporter", action="store_true", help="serve no metrics")
    add_push(run, "every window")
    run.add_argument(
        "--remote-write", type=server_url, metavar="URL",
        help="URL of the remote write of a Prometheus-compatible store that gets every window, too, such as "
        "http://127.0.0.1:8428/api/v1/write",
    )  # fmt: skip
    run.add_argument(
        "--store-token-file", type=Path, metavar="FILE", help="file with that store's bearer token, mode 640 or less"
    )
    run.add_argument(
        "--spool",
        type=Path,
        default=_SPOOL,
        metavar="DIR",
        help=f"folder of windows that the server has not acknowledged yet ({_SPOOL})",
    )
    run.add_argument(
        "--spool-max-mb",
        type=between(1, 1e6, "MB"),
        default=256.0,
        metavar="MB",
        help="largest size of the spool; when full, the oldest windows are dropped (256)",
    )
    run.add_argument(
        "--no-announce",
        action="store_true",
        help="with --push, do not describe this host and its instances to the server",
    )
    run.add_argument(
        "--run-queue", nargs="?", const=PROGRAM, metavar="PROGRAM",
        help=f"also measure how long instances wait for a CPU and what runs meanwhile, by BPF (root; {PROGRAM})",
    )  # fmt: skip
    run.add_argument(
        "--hardware-counters", action="store_true",
        help="also count cycles and instructions of instances by perf events (root; costs each switch between them)",
    )  # fmt: skip
    run.add_argument("--seconds", type=between(0.1, 1e9, "seconds"), metavar="S", help="end after this many seconds")
    run.add_argument("--once-window", action="store_true", help="end after the first window")
    run.add_argument("--json", action="store_true", help="log lines and a summary at the end as JSON")
    run.set_defaults(command=_run)


def _listen(text: str) -> tuple[str, int]:
    match = _LISTEN.match(text)
    if not match or int(match[2]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT, such as 127.0.0.1:9405")
    return match[1].strip("[]"), int(match[2])


def _run(options: argparse.Namespace) -> int:
    sends = options.push is not None or options.remote_write is not None
    if options.no_exporter and not sends:
        return fail("with --no-exporter and without --push, what is measured would reach no reader", WRONG_USAGE)
    window_s = options.window or (PUSHED_WINDOW_S if sends else Pace().window_s)
    if window_s < options.every:
        return fail("--window must be at least as long as --every", WRONG_USAGE)
    log = Log(as_json=options.json)
    pace = Pace(options.every, window_s, options.seconds, options.once_window)
    backend = chosen_backend(options)
    for reason in passed_over(backend.name) if options.backend == "auto" else ():
        log.warn("passed_over", error=reason[:1000])
    with contextlib.ExitStack() as parts:
        try:
            announcer = _announcer(options, backend, log)
            shipping = _shipping(options, log, parts, announcer)
            deliver = _deliver([shipping, _storing(options, log, parts)])
            watch = _run_queue(options, backend, log, parts)
            hardware = _hardware(options, backend, log, parts)
            agent = Agent(
                backend,
                pace,
                deliver,
                log,
                after_reading=_after_reading(announcer, watch, hardware),
                window_series=_window_series(watch, hardware),
            )
            address = None if options.no_exporter else _export(options, agent, shipping, watch, parts)
        except StartError as error:
            backend.close()
            return fail(str(error), FAILED)
        for number in (signal.SIGTERM, signal.SIGINT):
            parts.callback(signal.signal, number, signal.signal(number, lambda _number, _frame: agent.stop()))
        log.info(
            "start", version=profiler_version(), backend=backend.name, host=backend.host, interval_s=pace.interval_s,
            window_s=pace.window_s, export=f"http://{address}/metrics" if address else "off",
            push=str(options.push or "off"), spool=str(options.spool) if shipping else "off",
        )  # fmt: skip
        agent.run()
    document = _summary(agent.view(), shipping, watch)
    log.info("stop", readings=document["readings"], windows=document["windows"])
    if options.json:
        print_json(document, indent=None)
    return DONE


def _announcer(options: argparse.Namespace, backend: Backend, log: Log) -> Announcer | None:
    if options.push is None or options.no_announce:
        return None
    from profiler.agent.announcement import Announcer
    from profiler.backends.host_description import describe_host

    return Announcer(lambda: describe_host(backend.name, LiveSource()), log, version=profiler_version())


def _shipping(
    options: argparse.Namespace, log: Log, parts: contextlib.ExitStack, announcer: Announcer | None
) -> Delivery | None:
    if options.push is None:
        return None
    from profiler.agent.http_client import HttpClient
    from profiler.agent.push import Delivery, PushToken
    from profiler.agent.spool import Spool

    try:
        token = PushToken(options.token_file, options.push)
    except ValueError as error:
        raise StartError(str(error)) from None
    spool = Spool(options.spool, int(options.spool_max_mb * 1e6), log)
    shipping = Delivery(
        spool, HttpClient(options.push, token, f"cotenant-profiler/{profiler_version()}"), log, announcer
    )
    parts.callback(shipping.close, _GRACE_S)
    return shipping


def _storing(options: argparse.Namespace, log: Log, parts: contextlib.ExitStack) -> Delivery | None:
    """What goes to a time-series database, with a spool of its own beside that of the server."""
    if options.remote_write is None:
        return None
    from profiler.agent.http_client import HttpClient
    from profiler.agent.push import Delivery, PushToken
    from profiler.agent.spool import Spool
    from profiler.agent.store_connection import StoreConnection

    file = options.store_token_file
    try:
        token = PushToken(file, options.remote_write) if file else lambda: None
    except ValueError as error:
        raise StartError(str(error)) from None
    spool = Spool(options.spool.with_name(f"{options.spool.name}-store"), int(options.spool_max_mb * 1e6), log)
    client = HttpClient(options.remote_write, token, f"cotenant-profiler/{profiler_version()}")
    storing = Delivery(spool, StoreConnection(client), log)
    parts.callback(storing.close, _GRACE_S)
    return storing


def _deliver(ways: Sequence[Delivery | None]) -> Callable[[MetricWindow], None]:
    there = [way for way in ways if way is not None]

    def deliver(window: MetricWindow) -> None:
        for way in there:
            way.deliver(window)

    return deliver


def _run_queue(
    options: argparse.Namespace, backend: Backend, log: Log, parts: contextlib.ExitStack
) -> RunQueueWatch | None:
    if options.run_queue is None:
        return None
    if not isinstance(backend, GroupedBackend):
        raise StartError(f"--run-queue needs containers or libvirt, and this host is read by {backend.name}")
    watch = RunQueueWatch(options.run_queue, log)
    parts.callback(watch.close)
    watch.start()
    return watch


def _hardware(
    options: argparse.Namespace, backend: Backend, log: Log, parts: contextlib.ExitStack
) -> HardwareWatch | None:
    """None where instances are not threads of this kernel, as on Xen, where Dom0 sees no such counters."""
    if not isinstance(backend, ThreadedBackend):
        if options.hardware_counters:
            message = f"--hardware-counters needs containers or libvirt, and this host is read by {backend.name}"
            raise StartError(message)
        return None
    events = EVENTS if options.hardware_counters else ()
    if events:
        try:
            PerfCounters(events, thread=os.getpid()).close()
        except OSError as error:
            log.warn("hardware", error=f"cycles are not counted: {error.strerror}")
            events = ()
    watch = HardwareWatch(LiveSource(), log, events)
    parts.callback(watch.close)
    return watch


def _window_series(
    watch: RunQueueWatch | None, hardware: HardwareWatch | None
) -> Callable[[float], Mapping[Key, Statistic]] | None:
    closes = [part.close_window for part in (watch, hardware) if part]

    def series(seconds: float) -> Mapping[Key, Statistic]:
        return {key: statistic for close in closes for key, statistic in close(seconds).items()}

    return series if closes else None


def _after_reading(
    announcer: Announcer | None, watch: RunQueueWatch | None, hardware: HardwareWatch | None
) -> Callable[[Backend], None] | None:
    looks = [part.look for part in (announcer, watch, hardware) if part]

    def look_all(backend: Backend) -> None:
        for look in looks:
            look(backend)

    return look_all if looks else None


def _export(
    options: argparse.Namespace,
    agent: Agent,
    shipping: Delivery | None,
    watch: RunQueueWatch | None,
    parts: contextlib.ExitStack,
) -> str:
    """Start the exporter; returns where it listens."""
    from profiler.agent.exporter import Exporter, page

    version = profiler_version()

    def render() -> bytes:
        spool, push = shipping.status() if shipping else (None, None)
        return page(agent.view(), spool, push, version, watch.status() if watch else None)

    exporter = Exporter(options.listen, render)
    exporter.start()
    parts.callback(exporter.stop)
    host, port = exporter.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _summary(view: AgentView, shipping: Delivery | None, watch: RunQueueWatch | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "host": view.host, "backend": view.backend, "readings": view.readings, "dropped": view.dropped,
        "windows": view.windows, "windows_dropped": view.windows_dropped,
        "mean_reading_s": view.duration_sum_s / view.readings if view.readings else None,
    }  # fmt: skip
    if shipping:
        spool, push = shipping.status()
        document |= {"spool": asdict(spool), "push": asdict(push)}
    if watch:
        status = watch.status()
        rows = [
            {"victim": victim, "antagonist": antagonist, "seconds": seconds}
            for (victim, antagonist), seconds in sorted(status.waited_for.items())
        ]
        document["run_queue"] = {"problem": status.problem, "waited_for": rows}
    return document
