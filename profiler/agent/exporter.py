"""What Prometheus sees: the series of all instances in base units and the agent itself, over bounded HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from profiler.agent.loop import BUCKETS_S, AgentView, StartError
from profiler.collectors import unit_of
from profiler.collectors.windows import Key
from profiler.metrics import ADDITIONAL, ATTRIBUTED, BY_NAME, PREFIX, WAITED_FOR, gauge_of

# What Prometheus sees: the series of all instances in base units, and the agent itself, as its text format.

if TYPE_CHECKING:  # an agent that only exports loads nothing of what pushing needs
    from profiler.agent.further_counters import RunQueueStatus
    from profiler.agent.push import PushStatus
    from profiler.agent.spool import SpoolStatus


@dataclass(frozen=True, slots=True)
class _Total:
    """A counter made of a rate: its name, what a unit of rate times a second counts as, and its help."""

    name: str
    factor: float
    help: str


# Percent of a CPU times seconds, over 100, are seconds; times without a value are not counted.
_TOTALS: dict[str, _Total] = {
    "cpu": _Total("cpu_seconds", 0.01, "CPU time used"),
    "waiting": _Total("waiting_seconds", 0.01, "time runnable in the run queue and not running"),
    "block": _Total("block_seconds", 0.01, "time blocked on I/O or idle, over all vCPUs"),
    "execution": _Total("executions", 1.0, "execution periods: times it was put on a CPU"),
    "pages_exchanged": _Total("pages_exchanged", 1.0, "memory pages exchanged in the I/O channel"),
    "event": _Total("events", 1.0, "events in the event channel, or what stands in for them"),
    "switch": _Total("switches", 1.0, "switches of control among instances"),
    "system": _Total("system_seconds", 0.01, "CPU time inside the kernel"),
    "throttled": _Total("throttled_seconds", 0.01, "time held back by the CPU cap"),
    "psi_cpu": _Total("pressure_cpu_seconds", 0.01, "time in which some task waited for a CPU"),
    "psi_io": _Total("pressure_io_seconds", 0.01, "time in which some task waited for I/O"),
    "psi_memory": _Total("pressure_memory_seconds", 0.01, "time in which some task waited for memory"),
    "swap_in_mb_s": _Total("swap_in_bytes", 1e6, "memory that came back from swap"),
    "swap_out_mb_s": _Total("swap_out_bytes", 1e6, "memory that went to swap"),
    "major_faults": _Total("major_faults", 1.0, "page faults that waited for a disk"),
    "disk_wait": _Total("disk_wait_seconds", 0.01, "time waited for disks, all tasks or requests added up"),
    "disk_queue_full": _Total("disk_queue_full", 1.0, "times its disk backend took no more requests"),
    "disk_iops": _Total("disk_requests", 1.0, "reads from and writes to disks"),
    "disk_flushes": _Total("disk_flushes", 1.0, "flushes: writes that it waited for until they were safe"),
    "net_drops": _Total("network_drops", 1.0, "packets dropped at the host's ends of its interfaces"),
    "mem_bw_mb_s": _Total("memory_bytes", 1e6, "bytes moved between the caches and memory"),
    "net_mbit": _Total("network_bytes", 125_000.0, "bytes received and sent over the network"),
    "disk_mb_s": _Total("disk_bytes", 1e6, "bytes read from and written to disks"),
    "busy": _Total("busy_seconds", 0.01, "CPU time in which the host was not idle"),
    "steal": _Total("steal_seconds", 0.01, "CPU time that a hypervisor below this host took"),
}
_HELP = {metric.name: metric.help for metric in ADDITIONAL}


@dataclass(slots=True)
class _Family:
    type: str
    help: str
    lines: list[str] = field(default_factory=list)


def page(
    view: AgentView,
    spool: SpoolStatus | None,
    push: PushStatus | None,
    version: str,
    run_queue: RunQueueStatus | None = None,
) -> bytes:
    """The whole page that Prometheus scrapes, in text format 0.0.4."""
    metrics = [
        *_of_agent(view, version),
        *(_of_spool(spool) if spool is not None else ()),
        *(_of_push(push) if push is not None else ()),
        *(_of_run_queue(view.host, run_queue) if run_queue is not None else ()),
    ]
    registry = CollectorRegistry()
    registry.register(_AgentCollector(lambda: metrics))
    ProcessCollector(registry=registry)  # the agent's own CPU time and memory
    return series_text(view).encode() + generate_latest(registry)


def series_text(view: AgentView) -> str:
    """Totals, and the last window's means and 95th percentiles, of every instance on the host.

    Not by prometheus-client, which took 36 ms for the 4,000 lines of a hundred instances; this takes 5.
    """
    labels = _Labels(view.host)
    families: dict[str, _Family] = {}
    for key, total in view.totals.items():
        kind = _TOTALS.get(key[2])
        if kind is not None:
            name = f"{_prefix(key)}{kind.name}_total"
            family = families.get(name) or families.setdefault(name, _Family("counter", _help(key, kind.help)))
            family.lines.append(f"{name}{{{labels.of(key)}}} {total * kind.factor!r}\n")
    for key, statistic in view.window.series.items() if view.window else ():
        if key[2].startswith(WAITED_FOR):  # there is a counter of all pairs
            continue
        gauge, factor = gauge_of(key[2], unit_of(key[2]))
        name = f"{_prefix(key)}{gauge}"
        family = families.get(name) or families.setdefault(name, _Family("gauge", _help(key, _window_help(key[2]))))
        text = labels.of(key)
        family.lines.append(
            f'{name}{{{text},statistic="mean"}} {statistic.mean * factor!r}\n'
            f'{name}{{{text},statistic="p95"}} {statistic.p95 * factor!r}\n'
        )
    return "".join(
        f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n{''.join(family.lines)}"
        for name, family in sorted(families.items())
    )


class _Labels:
    """The label text of lines; each text is built once."""

    def __init__(self, host: str) -> None:
        self._host = _escaped(host)
        self._made: dict[tuple[str | None, str], str] = {}

    def of(self, key: Key) -> str:
        short = key[0], key[1]
        text = self._made.get(short)
        if text is None:
            instance = f'instance="{_escaped(key[0])}",' if key[0] is not None else ""
            text = self._made[short] = f'host="{self._host}",{instance}scope="{key[1]}"'
        return text


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _is_share(key: Key) -> bool:
    """An instance's part of the driver domain. It has its own name, so that no query sums it with the whole."""
    return key[1] == "driver_domain" and key[0] is not None


def _prefix(key: Key) -> str:
    return ATTRIBUTED if _is_share(key) else PREFIX


def _help(key: Key, text: str) -> str:
    return f"{text}{' by the driver domain for this instance, by its pages' if _is_share(key) else ''}."


def _window_help(metric: str) -> str:
    if metric in BY_NAME:
        return f"In the last window: {BY_NAME[metric].help}"
    return f"In the last window: {_TOTALS[metric].help if metric in _TOTALS else _HELP[metric]}"


class _AgentCollector:
    """The agent's own metrics as a prometheus-client Collector."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.collect = collect


def _counts(name: str, text: str, label: str, counts: Iterable[tuple[str, float]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for value, count in counts:
        family.add_metric((value,), count)
    return family


def _of_run_queue(host: str, status: RunQueueStatus) -> Iterator[Metric]:
    family = CounterMetricFamily(
        f"{PREFIX}waited_for_seconds", "Time that the victim waited for a CPU on which the antagonist ran.",
        labels=("host", "victim", "antagonist"),
    )  # fmt: skip
    for (victim, antagonist), seconds in sorted(status.waited_for.items()):
        family.add_metric((host, victim, antagonist), seconds)
    yield family
    yield GaugeMetricFamily(
        f"{PREFIX}profiler_run_queue_up", "Whether run queues are watched; 0 = see the log.", 0 if status.problem else 1
    )


def _of_agent(view: AgentView, version: str) -> Iterator[Metric]:
    prefix = "cotenant_profiler"
    build = InfoMetricFamily(f"{prefix}_build", "Version of the agent and what it reads.")
    build.add_metric((), {"version": version, "backend": view.backend})
    yield build
    yield CounterMetricFamily(f"{prefix}_readings", "Readings that ended, failed ones included.", view.readings)
    yield _counts(
        f"{prefix}_dropped", "Samples that were not made: whole readings, or those of one instance, by reason.",
        "reason", sorted(view.dropped.items()),
    )  # fmt: skip
    yield CounterMetricFamily(f"{prefix}_windows", "Windows that were finished.", view.windows)
    yield _counts(
        f"{prefix}_windows_dropped", "Windows that were not reported, by reason.", "reason",
        sorted(view.windows_dropped.items()),
    )  # fmt: skip
    if view.window is not None:  # distinguishes windows with the same numbers, and names the host
        ends = GaugeMetricFamily(
            f"{prefix}_window_end_timestamp_seconds", "When the window that is shown ended.", labels=("host",)
        )
        ends.add_metric((view.host,), view.window.end_s)
        yield ends
    thin = 0 if view.window is None else view.window.thin
    yield GaugeMetricFamily(f"{prefix}_thin_series", "Series of the last window with too few samples for it.", thin)
    buckets, below = [], 0
    for limit, count in zip((*map(str, BUCKETS_S), "+Inf"), view.durations, strict=True):
        below += count
        buckets.append((limit, float(below)))
    yield HistogramMetricFamily(
        f"{prefix}_reading_seconds", "How long one reading of everything took.", buckets, view.duration_sum_s
    )


def _of_spool(spool: SpoolStatus) -> Iterator[Metric]:
    prefix = "cotenant_profiler_spool"
    yield GaugeMetricFamily(f"{prefix}_bytes", "Size of the batches that wait on disk.", spool.bytes)
    yield GaugeMetricFamily(f"{prefix}_batches", "Batches that wait on disk.", spool.batches)
    yield GaugeMetricFamily(f"{prefix}_held_batches", "Batches that wait in memory, for the disk.", spool.held)
    yield CounterMetricFamily(f"{prefix}_dropped_batches", "Oldest batches dropped: spool full.", spool.dropped_batches)
    yield CounterMetricFamily(f"{prefix}_dropped_samples", "Samples in the dropped batches.", spool.dropped_samples)
    yield CounterMetricFamily(f"{prefix}_broken_files", "Files put aside as unreadable.", spool.broken)
    yield CounterMetricFamily(f"{prefix}_refused_batches", "Batches put aside as refused.", spool.refused)
    yield CounterMetricFamily(f"{prefix}_write_failures", "Writes that the disk refused.", spool.write_failures)


def _of_push(push: PushStatus) -> Iterator[Metric]:
    prefix = "cotenant_profiler_push"
    yield _counts(
        f"{prefix}_samples", "Samples by what the server did with them.", "result",
        (("accepted", push.accepted), ("duplicate", push.duplicate), ("dropped", sum(push.dropped.values())),
         ("refused", push.refused)),
    )  # fmt: skip
    yield _counts(
        f"{prefix}_dropped_samples", "Samples that the server took and did not store, by reason.", "reason",
        sorted(push.dropped.items()),
    )  # fmt: skip
    yield _counts(f"{prefix}_failures", "Attempts that failed, by kind.", "kind", sorted(push.failures.items()))
    if push.last_success_s is not None:
        yield GaugeMetricFamily(
            f"{prefix}_last_success_timestamp_seconds", "When the server last took samples.", push.last_success_s
        )


_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
_MOST_CLIENTS = 8  # at the same time; Prometheus and its twin need two
_SILENCE_S = 3.0  # between bytes of a client
_DEADLINE_S = 10.0  # for a whole request and its answer
_FRESH_S = 1.0  # scrapes within this time share one page, so that many clients cost what one does


class ExporterError(StartError):
    """The exporter cannot listen."""


class Exporter:
    """Answers `GET /metrics` and `GET /healthz`."""

    def __init__(self, listen: tuple[str, int], page: Callable[[], bytes]) -> None:
        """Bind; raises ExporterError when that is not possible. Nothing is served before `start`."""
        self._page = page
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] | None = None
        try:
            self._server = _MetricsServer(listen, self._render)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ExporterError(f"cannot listen on {listen[0]}:{listen[1]} ({reason}); choose with --listen") from None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port that was really taken."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _render(self) -> bytes:
        with self._lock:
            now = time.monotonic()
            if self._made is None or now - self._made[0] > _FRESH_S:
                self._made = now, self._page()
            return self._made[1]


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, listen: tuple[str, int], render: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self.render = render
        self._slots = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(listen, _MetricsHandler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's asks the name service who we are, which may take long

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = threading.Timer(_DEADLINE_S, _cut, (request,))
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that goes away is not an error."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _MetricsHandler(BaseHTTPRequestHandler):
    server: _MetricsServer
    timeout = _SILENCE_S
    wbufsize = -1  # headers and body leave in one piece
    server_version = "cotenant-profiler"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            body, kind = self.server.render(), _TEXT_FORMAT
        elif path == "/healthz":
            body, kind = b"ok\n", "text/plain; charset=utf-8"
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Log no scrapes."""
