"""Probe requests: requests and responses of 64 B per second by 1 to 32 at once, 90 s each (CSTACK §III, Fig. 4, C3)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from profiler.collectors.windows import percentile
from profiler.observed import Quantity
from profiler.pictures import ACCENT, SERIES, Figure, label, legend, new_figure
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries
from profiler.probes.framing import FramingError, number
from profiler.probes.options import above, count
from profiler.probes.requests_client import LoadResult, RequestClient
from profiler.probes.services.responses import MOST_BYTES
from profiler.probes.sessions import ProbeSession

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
        add("--size", type=count(MOST_BYTES), default=_SIZE, metavar="BYTES", help=f"each way ({_SIZE})")
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
