"""Probe requests: requests and responses of 64 B per second by 1 to 32 at once, 90 s each (CSTACK §III, Fig. 4, C3)."""

from __future__ import annotations

import argparse
import select
import socket
import struct
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.collectors.windows import percentile
from profiler.observed import Quantity
from profiler.pictures import ACCENT, SERIES, Figure, label, legend, new_figure
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count
from profiler.probes.services import MOST_RESPONSE_BYTES
from profiler.probes.sessions import FramingError, ProbeSession, number

# The client of probe requests: many connections, each with one request on its way, in one process by epoll.

_LOST_S = 5.0  # without any answer: the responder is gone, or the path is
_RESET = struct.pack("@ii", 1, 0)  # SO_LINGER: closed by a reset, or every port would wait for a minute in TIME_WAIT


@dataclass(slots=True)
class LoadResult:
    """Result of a run: its length in s, the time of each answer in s, and the CPU that the client used, in %."""

    seconds: float = 0.0
    took_s: array[float] = field(default_factory=lambda: array("d"))
    cpu_percent: float = 0.0

    @property
    def per_s(self) -> float:
        """Answers per second."""
        return len(self.took_s) / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class _PendingRequest:
    stream: socket.socket
    began: float
    missing: int


class RequestClient:
    """Keeps `threads` requests on their way; each answer is followed by the next request.

    With `reconnect`, every request has a connection of its own, and its time begins before it is connected.
    """

    def __init__(self, connect: Callable[[], socket.socket], threads: int, size: int, *, reconnect: bool) -> None:
        self._connect, self._size, self._reconnect = connect, size, reconnect
        self._request = bytes(size)
        self._poll = select.epoll()
        self._pending: dict[int, _PendingRequest] = {}
        self._threads = threads

    def run(self, seconds: float, progress: Progress, done: float = 0.0) -> LoadResult:
        """Send requests for this time; `done` is the initial progress. ProbeError when the responder goes away."""
        load = LoadResult()
        began = time.perf_counter()
        used = time.process_time()
        try:
            with progress.interruptible():
                for _ in range(self._threads):
                    self._open()
                began = time.perf_counter()
                used = time.process_time()
                self._loop(load, began, seconds, progress, done)
        except OSError as error:
            raise ProbeError(f"the responder does not answer any more ({error.strerror or 'too late'})") from None
        finally:
            load.seconds = time.perf_counter() - began
            load.cpu_percent = 100 * (time.process_time() - used) / max(load.seconds, 1e-9)
            for request in self._pending.values():
                request.stream.close()
            self._poll.close()
        return load

    def _loop(self, load: LoadResult, began: float, seconds: float, progress: Progress, done: float) -> None:
        clock, poll, pending = time.perf_counter, self._poll.poll, self._pending
        end, last_report = began + seconds, began
        while not progress.stopped:
            ready = poll(_LOST_S)
            now = clock()
            if now >= end:
                return
            if not ready:
                raise TimeoutError
            for descriptor, _ in ready:
                request = pending[descriptor]
                size = len(request.stream.recv(request.missing))
                if not size:
                    raise ConnectionResetError
                request.missing -= size
                if not request.missing:
                    load.took_s.append(clock() - request.began)
                    self._again(descriptor, request)
            if now - last_report > 0.5:
                last_report = now
                progress.update(done + now - began)

    def _again(self, descriptor: int, request: _PendingRequest) -> None:
        if self._reconnect:
            self._poll.unregister(descriptor)
            del self._pending[descriptor]
            request.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            request.stream.close()
            self._open()
            return
        request.missing, request.began = self._size, time.perf_counter()
        request.stream.sendall(self._request)

    def _open(self) -> None:
        began = time.perf_counter()
        stream = self._connect()
        stream.settimeout(_LOST_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._reconnect:
            began = time.perf_counter()
        stream.sendall(self._request)
        self._pending[stream.fileno()] = _PendingRequest(stream, began, self._size)
        self._poll.register(stream, select.EPOLLIN)


_SECONDS = 90.0
_SIZE = 64
_THREADS = (1, 2, 4, 8, 16, 32)
_BUSY_PERCENT = 90.0  # of a CPU: the client is one process


class Requests:
    """Closed loop: as many requests on their way as the paper has threads; here one process does it by epoll."""

    name = "requests"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--threads", type=_threads, default=_THREADS, metavar="N[,N...]", help="requests at once (1,2,4,8,16,32)")
        add("--seconds", type=above(0.05, 3600), default=_SECONDS, metavar="S", help=f"for each ({_SECONDS:g})")
        add("--size", type=count(MOST_RESPONSE_BYTES), default=_SIZE, metavar="BYTES", help=f"each way ({_SIZE})")
        add("--connect", action="store_true", help="a new connection for every request")

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        progress.begin(options.seconds * len(options.threads), "s")
        loads: dict[int, tuple[LoadResult, float]] = {}
        for place, threads in enumerate(options.threads):
            load, far = _load(threads, options, progress, place * options.seconds)
            if load.took_s:
                loads[threads] = load, far
            if progress.stopped:
                break
        if not loads:
            raise ProbeError("no request was answered before the time was over: raise --seconds")
        values: dict[str, Quantity] = {}
        for threads, (load, _) in loads.items():
            values |= _described(load, threads)
        main = f"requests_{max(loads)}"
        busy = [
            f"with {threads} at once the {end} used {percent:.0f} % of a CPU: it may have been the limit, not the path"
            for threads, (load, far) in loads.items()
            for end, percent in (("client", load.cpu_percent), ("responder", far))
            if percent > _BUSY_PERCENT
        ]
        circumstances = {"size": str(options.size), "connect": "each" if options.connect else "once"}
        return ProbeRun(values, main, _series(loads), circumstances, tuple(busy))

    def draw(self, run: ProbeRun) -> Figure:
        """Requests per second (CSTACK Fig. 4) and latencies over how many were on their way."""
        column = run.series.columns
        figure, (rates, latencies) = new_figure(2)
        rates.plot(column["threads"], column["requests_per_s"], "o-", color=ACCENT, linewidth=1.2, markersize=4)
        for name, colour in zip(("mean_us", "p95_us"), SERIES, strict=False):
            latencies.plot(column["threads"], column[name], "o-", color=colour, markersize=4, label=name[:-3])
        for axes in (rates, latencies):
            axes.set_xscale("log", base=2)
            axes.set_ylim(bottom=0)
        label(rates, "Requests per second", "at once", "1/s")
        label(latencies, "Latency", "at once", "µs")
        legend(latencies)
        return figure


def _threads(text: str) -> tuple[int, ...]:
    read = count(512)
    return tuple(sorted({read(part) for part in text.split(",")}))


def _load(threads: int, options: argparse.Namespace, progress: Progress, done: float) -> tuple[LoadResult, float]:
    """One run with so many at once, and the CPU in % that the responder used meanwhile."""
    with options.peer.open("responses", {"size": options.size}) as session:
        before = _far_cpu(session)
        client = RequestClient(session.connect, threads, options.size, reconnect=options.connect)
        load = client.run(options.seconds, progress, done)
        return load, 100 * (_far_cpu(session) - before) / max(load.seconds, 1e-9)


def _far_cpu(session: ProbeSession) -> float:
    answer: Mapping[str, Any] = session.ask({"do": "report"})[0]
    try:
        return number(answer, "cpu_s", None, 0.0, 1e7)
    except FramingError as error:
        raise ProbeError(f"the responder's report makes no sense: {error}") from None


def _described(load: LoadResult, threads: int) -> dict[str, Quantity]:
    ordered = sorted(load.took_s)
    return {
        f"requests_{threads}": Quantity(load.per_s, "1/s"),
        f"mean_{threads}": Quantity(1e6 * sum(ordered) / len(ordered), "us"),
        f"median_{threads}": Quantity(1e6 * percentile(ordered, 0.5), "us"),
        f"p95_{threads}": Quantity(1e6 * percentile(ordered, 0.95), "us"),
    }


def _series(loads: Mapping[int, tuple[LoadResult, float]]) -> RawSeries:
    """One row per number at once."""
    values = {threads: _described(load, threads) for threads, (load, _) in loads.items()}
    return RawSeries({
        "threads": list(loads),
        "requests_per_s": [values[n][f"requests_{n}"].value for n in loads],
        "mean_us": [values[n][f"mean_{n}"].value for n in loads],
        "p95_us": [values[n][f"p95_{n}"].value for n in loads],
        "p99_us": [1e6 * percentile(sorted(load.took_s), 0.99) for load, _ in loads.values()],
        "shortest_us": [1e6 * min(load.took_s) for load, _ in loads.values()],
        "longest_us": [1e6 * max(load.took_s) for load, _ in loads.values()],
        "client_cpu_percent": [load.cpu_percent for load, _ in loads.values()],
        "responder_cpu_percent": [far for _, far in loads.values()],
    })  # fmt: skip


PROBE = Requests()
