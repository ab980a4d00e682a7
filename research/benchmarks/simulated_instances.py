"""The agent's own work for many instances of a recording, copied: parsing, formulas, windows, page; simulated."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiler.agent.exposition import page
from profiler.agent.loop import BUCKETS_S, AgentView
from profiler.backends import Counters, DomainCounters, RecordedBackend
from profiler.collectors import collect
from profiler.collectors.windows import WindowAggregator

ROUNDS, WINDOW_S, SCRAPE_S = 30, 10, 15


def simulate(recording: Path, instances: int) -> dict[str, Any]:
    """CPU time per reading when a recording's instances are copied until there are as many.

    What the kernel, a tool or a library takes to answer is not in it. What is read once per host is in it once per
    copy, every copy is in its second reading, in which what changes slowly is read as well, and a trace is read of the
    whole time between the recorded readings, which may be longer than the second that the agent takes: the figure is
    an upper bound.
    """
    windows = WindowAggregator(WINDOW_S, 1.0)
    spent: list[float] = []
    pages: list[float] = []
    size = copies = 0
    for number in range(ROUNDS):
        backends = [RecordedBackend(recording)]
        found = len(backends[0].list_instances())
        copies = max(1, -(-instances // max(1, found)))
        backends += [RecordedBackend(recording) for _ in range(copies - 1)]
        before = _merged([backend.read_counters() for backend in backends])
        begin = time.process_time()
        now = _merged([backend.read_counters() for backend in backends])
        collected = collect(before, now)
        windows.add(collected, float(number))
        spent.append(time.process_time() - begin)
        if windows.due(float(number)):
            begin = time.process_time()
            window = windows.close(float(number))
            view = AgentView(
                now.host,
                backends[0].name,
                windows.totals(),
                window,
                number,
                {},
                1,
                {},
                (0,) * (len(BUCKETS_S) + 1),
                0.0,
            )
            size = len(page(view, None, None, "simulated"))
            pages.append(time.process_time() - begin)
    per_s = statistics.median(spent) + statistics.median(pages) * (1 / WINDOW_S + 1 / SCRAPE_S) / 2
    row = {
        "program": f"simulated from {recording.name}", "scraped_every_s": float(SCRAPE_S), "cpu_percent": 100 * per_s,
        "cpu_percent_periods": [], "scrape_ms": 1000 * statistics.median(pages), "page_kb": size / 1024,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "children_s": 0.0, "load": 0.0,
    }  # fmt: skip
    copied = "1 copy" if copies == 1 else f"{copies} copies"
    what = (
        f"SIMULATED: {copied} of the {found} instances of {recording.name}, one reading per second, each of what"
        f" happened in {collected.seconds:.1f} s, without what answers take"
    )
    return {"what": what, "rows": [row]}


def _merged(readings: Sequence[Counters]) -> Counters:
    """One reading of all copies, each instance under a name of its own."""
    first = readings[0]
    instances: dict[str, DomainCounters] = {
        f"{name}.{number}": domain
        for number, reading in enumerate(readings)
        for name, domain in reading.instances.items()
    }
    return Counters(first.host, first.time_s, first.monotonic_s, instances, first.driver, first.whole, first.absent)
