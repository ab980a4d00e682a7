"""Metrics of several worker processes: counted in files of one folder, added up by whichever worker is scraped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, values
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus-client's own name, read by it in spawned workers
_LIVE = "gauge_livesum_"  # begins the name of a file that every worker has until it is gone
_BEGAN = "process_start_time_seconds"  # the first of all; everything else is added up


def share(folder: Path) -> None:
    """Count in files of this folder from now on; to be called before workers start, in the process that starts them.

    The folder must be empty and is removed by who made it. Workers may be forked or spawned.
    """
    os.environ[_FOLDER] = str(folder)
    values.ValueClass = values.MultiProcessValue()  # prometheus-client chose when it was imported


def worker_gone(pid: int) -> None:
    """Forget what only counts while a worker lives; to be called by whoever notices that it ended."""
    if folder() is not None:
        mark_process_dead(pid)


def folder() -> Path | None:
    """Where workers count together; None while each process counts alone."""
    name = os.environ.get(_FOLDER)
    return Path(name) if name else None


def registry(path: Path, own: Collector) -> CollectorRegistry:
    """What all workers counted so far, what their processes use together, and this worker's `own` state."""
    together = CollectorRegistry()
    MultiProcessCollector(together, str(path))
    together.register(_Processes(path))
    together.register(own)
    return together


class _Processes(Collector):
    """CPU time, memory and files of all workers together."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        pids = sorted(int(file.stem.removeprefix(_LIVE)) for file in self._path.glob(f"{_LIVE}*.db"))
        sums: dict[str, Metric] = {}
        for pid in pids:
            for metric in ProcessCollector(registry=None, pid=partial(int, pid)).collect():
                former = sums.setdefault(metric.name, metric)
                if former is not metric:
                    both = former.samples[0].value, metric.samples[0].value
                    value = min(both) if former.samples[0].name == _BEGAN else sum(both)
                    former.samples = [former.samples[0]._replace(value=value)]
        yield from sums.values()
        yield GaugeMetricFamily("cotenant_workers", "Worker processes that count together", len(pids))
