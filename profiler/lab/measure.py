"""One run from start to stop: warm-up, the measured window with everybody working, outcomes, metrics, circumstances."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from profiler.backends import Counters
from profiler.collectors import Collected, collect, unit_of
from profiler.lab.errors import RunError
from profiler.lab.instances import Instances, Program, Running
from profiler.lab.workloads import Reached

_POLL_S = 0.01
_MARGIN_S = 0.1  # counters are read this much before the tools end: an ended task takes its counts with it
_LATE_S = 15.0  # tools may take this much longer than the window before the run counts as hung
_FILLER_S = 3600  # the filler before and after the window works until it is stopped
# Above these a run is marked as disturbed; it is kept. 1 % steal or 5 % of a CPU is about the noise of the quietest
# workload (its coefficient of variation is 0.6-0.9 % in 5 s).
MAX_STEAL_PERCENT = 1.0
MAX_FOREIGN_PERCENT = 5.0


@dataclass(frozen=True, slots=True)
class Value:
    """One metric of one run."""

    instance: str | None
    scope: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave; `generator_percent` is the load generator's CPU per instance, 100 = one CPU."""

    started: str
    seconds: float
    reached: Mapping[str, Reached]
    values: tuple[Value, ...]
    generator_percent: Mapping[str, float]
    steal_percent: float | None
    foreign_percent: float | None
    dropped: tuple[str, ...] = field(default=())

    @property
    def disturbed(self) -> bool:
        """Whether something outside the run took a noticeable part of the host."""
        return (self.steal_percent or 0.0) > MAX_STEAL_PERCENT or (self.foreign_percent or 0.0) > MAX_FOREIGN_PERCENT


@dataclass(frozen=True, slots=True)
class _Edge:
    """Everything that is read at one end of the window."""

    counters: Counters
    generator_ns: Mapping[str, int]
    all_tasks_ns: int | None

    @property
    def kernel_ns(self) -> int:
        """Run time of the kernel's I/O threads, which work for the instances."""
        driver = self.counters.driver
        if driver is None:
            return 0
        return driver.further["softirq_threads_ns"] + sum(task.run_ns for task in driver.tasks.values())


class _Work:
    """The programs of one instance: a filler before and after the measuring one, so that pressure never pauses."""

    def __init__(self, running: Running, seconds: int, rate: float | None) -> None:
        self.running = running
        self.rate = rate
        self._endless = running.workload.work(running.site, _FILLER_S, rate)
        self.filler: Program | None = running.start(self._endless)
        self.measuring = running.start(running.workload.work(running.site, seconds, rate), wait=True)

    def check_filler(self) -> None:
        """The filler shows before the window whether the work can be done at all."""
        if self.filler is not None and self.filler.returncode is not None:
            raise RunError(
                f"{self.running.placed.instance}: {self.filler.command[0]} ended with status"
                f" {self.filler.returncode} in the warm-up: {self.filler.errors() or 'no message'}"
            )

    def drop_filler(self) -> None:
        if self.filler is not None:
            self.filler.stop(patience_s=0)
            self.filler = None

    def refill(self) -> None:
        """Keep pressing on the neighbours that have not finished yet."""
        if self.filler is None and self.measuring.returncode is not None:
            self.filler = self.running.start(self._endless)

    def reached(self) -> Reached:
        self.measuring.check()
        return self.running.workload.read(self.measuring.output(), self.rate)

    def stop(self) -> None:
        self.drop_filler()
        self.measuring.stop(patience_s=0)


def measure(instances: Instances, seconds: int, warmup_s: float, rates: Mapping[str, float | None]) -> Measured:
    """Run the work of all instances at the same time; RunError when one of them fails or hangs."""
    backend = instances.backend()
    works: list[_Work] = []
    try:
        for running in instances.running:  # one by one into the list: what was started must be stopped on failure
            work = _Work(running, seconds, rates.get(running.placed.instance))
            works.append(work)
        time.sleep(warmup_s)
        for work in works:
            work.check_filler()
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        begin = _release(works)
        first = _edge(backend.read_counters(), instances)
        _sleep_until(begin + seconds - _MARGIN_S)
        second = _edge(backend.read_counters(), instances)
        _finish(works, deadline=time.monotonic() + _LATE_S)
        reached = {work.running.placed.instance: work.reached() for work in works}
    finally:
        for work in works:
            work.stop()
    return _measured(started, first, second, reached)


def _release(works: list[_Work]) -> float:
    """Start the measuring programs so that all begin to work at once, then end the fillers; when the work began."""
    longest = max(work.running.workload.lead_s for work in works)
    begin = time.monotonic() + longest
    for work in sorted(works, key=lambda work: -work.running.workload.lead_s):
        _sleep_until(begin - work.running.workload.lead_s)
        work.measuring.release()
    _sleep_until(begin)
    for work in works:
        work.drop_filler()
    return begin


def _finish(works: list[_Work], deadline: float) -> None:
    while any(work.measuring.returncode is None for work in works):
        if time.monotonic() > deadline:
            late = [work.running.placed.instance for work in works if work.measuring.returncode is None]
            raise RunError(f"{', '.join(late)} did not finish within {_LATE_S:.0f} s after its time")
        for work in works:
            work.refill()
        time.sleep(_POLL_S)


def _edge(counters: Counters, instances: Instances) -> _Edge:
    return _Edge(counters, instances.generator_ns(), instances.all_tasks_ns())


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


def _measured(started: str, first: _Edge, second: _Edge, reached: Mapping[str, Reached]) -> Measured:
    collected = collect(first.counters, second.counters)
    seconds = collected.seconds
    generators = {
        name: (used - first.generator_ns[name]) / 1e7 / seconds
        for name, used in second.generator_ns.items()
        if name in first.generator_ns
    }
    values = tuple(
        Value(sample.instance, sample.scope, sample.metric, sample.value, unit_of(sample.metric))
        for sample in collected.samples
    )
    found = {(value.instance, value.metric): value.value for value in values if value.scope != "driver_domain"}
    return Measured(
        started, seconds, reached, values, generators, found.get((None, "steal")),
        _foreign(collected, generators, first, second),
        tuple(f"{drop.instance or 'all'}: {drop.reason}" for drop in collected.drops),
    )  # fmt: skip


def _foreign(collected: Collected, generators: Mapping[str, float], first: _Edge, second: _Edge) -> float | None:
    """CPU time of everybody else on this host, 100 = one CPU: not of the instances, their generators or their I/O.

    Exact where the host counts all tasks. Elsewhere from the ticks of /proc/stat, as a lower bound: softirqs on an
    instance's back count there for the instance as well as for the driver domain.
    """
    samples = collected.samples
    ours = sum(s.value for s in samples if s.metric == "cpu" and s.scope == "instance") + sum(generators.values())
    if first.all_tasks_ns is not None and second.all_tasks_ns is not None:
        others_ns = second.all_tasks_ns - first.all_tasks_ns - (second.kernel_ns - first.kernel_ns)
        return max(0.0, others_ns / 1e7 / collected.seconds - ours)
    busy = next((s.value for s in samples if s.metric == "busy"), None)
    driver = sum(s.value for s in samples if s.metric == "cpu" and s.scope == "driver_domain" and s.instance is None)
    return None if busy is None else max(0.0, busy - driver - ours)
