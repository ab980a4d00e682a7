"""Measures one run: warm-up, the measured window with all instances working, outcomes, metrics and windows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lab.cpu_speed import SpeedWatch
from lab.errors import RunError
from lab.instance_programs import InstancePrograms
from lab.instances import Instances
from lab.processes import sleep_until
from lab.steady_state import drifts, has_settled
from lab.usage_windows import UsageSeries, UsageWatch
from lab.workloads import WorkloadResult
from profiler.backends import Backend, BackendError, Counters
from profiler.collectors import Collected, collect, unit_of
from profiler.metrics import Scope

_POLL_S = 0.03
_MARGIN_S = 0.1  # counters are read this long before the tools end: a task that ends takes its counts with it
_LATE_S = 15.0  # that tools may take longer than the window before the run counts as hung
MOST_FIXED_S = 120.0  # within which work that ends when it is done must be done
# A run above these is marked as disturbed, and kept. 1 % steal or 5 % of a CPU is about the noise of the quietest
# workload (its coefficient of variation is 0.6-0.9 % in 5 s).
MAX_STEAL_PERCENT = 1.0
MAX_FOREIGN_PERCENT = 5.0
MOST_LATE = 0.1  # of the window, by which a reading at one of its ends may be late


@dataclass(frozen=True, slots=True)
class Timing:
    """Measured time, after a warm-up of `warmup_s` that goes on, up to `warmup_most_s`, until windows are steady."""

    seconds: int
    warmup_s: float
    warmup_most_s: float


# Of guests on an emulated Xen, and in no list of metrics that agents measure: units by name.
KERNEL_TABLES = {
    f"{name}{when}": "count"
    for name in ("grant_entries", "grant_entries_most", "slab_objects")
    for when in ("", "_at_rest")
}


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One metric of one run."""

    instance: str | None
    scope: Scope
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class RunMeasurement:
    """The results of one run. `generator_percent` is the load generator's CPU per instance, 100 = one CPU.

    `unsteady` names the instances whose windows drifted; `warmup_s` is how long the warm-up really was; `speeds` are
    those of the CPUs that instances ran on, see `lab.cpu_speed`. `late` says that the lab itself was held up: its
    counters are then of another time than what the programs reached.
    """

    started: str
    seconds: float
    reached: Mapping[str, WorkloadResult]
    values: tuple[MetricValue, ...]
    generator_percent: Mapping[str, float]
    steal_percent: float | None
    foreign_percent: float | None
    dropped: tuple[str, ...] = ()
    warmup_s: float = 0.0
    unsteady: tuple[str, ...] = ()
    series: UsageSeries = field(default_factory=UsageSeries)
    speeds: Mapping[int, float] = field(default_factory=dict)
    late: bool = False

    @property
    def disturbed(self) -> bool:
        """Whether something outside the run took a noticeable part of the host, or held the lab itself up."""
        taken = (self.steal_percent or 0.0) > MAX_STEAL_PERCENT or (self.foreign_percent or 0.0) > MAX_FOREIGN_PERCENT
        return taken or self.late


@dataclass(frozen=True, slots=True)
class _WindowEdge:
    """Everything that is read at one end of the window."""

    counters: Counters
    generator_ns: Mapping[str, int]
    all_tasks_ns: int | None
    own_programs_ns: int

    @property
    def kernel_ns(self) -> int:
        """Run time of the threads that work for instances: the kernel's I/O threads, and a VM's beside its vCPUs."""
        driver = self.counters.driver
        if driver is None:
            return 0
        tasks_ns = sum(task.run_ns for task in driver.tasks.values())
        return driver.further.get("softirq_threads_ns", 0) + (tasks_ns if driver.cpu_ns is None else driver.cpu_ns)


def measure(instances: Instances, timing: Timing, rates: Mapping[str, float | None]) -> RunMeasurement:
    """Run the work of all instances at the same time; RunError when one of them fails or hangs."""
    try:
        return _measure(instances, timing, rates)
    except BackendError as error:
        raise RunError(f"its counters cannot be read: {error}") from None


def _measure(instances: Instances, timing: Timing, rates: Mapping[str, float | None]) -> RunMeasurement:
    works: list[InstancePrograms] = []
    with _backends(instances) as (backend, watched), SpeedWatch(instances.host_cpus()) as speed:
        try:
            for running in instances.running:  # one by one into the list: what was started must be stopped on failure
                works.append(InstancePrograms(running, timing.seconds, rates.get(running.placed.instance)))  # noqa: PERF401
            watch = UsageWatch(watched, timing.seconds)
            warmup_s = _warm_up(works, watch, timing)
            started = datetime.now(UTC).isoformat(timespec="milliseconds")
            begin = _release(works)
            zero = watch.mark()
            first = _edge(backend, instances)
            _window(works, watch, begin, timing.seconds)
            second = _edge(backend, instances)
            speeds = speed.between(begin, watch.mark())
            _until_ended(works, works, begin, max(timing.seconds, time.monotonic() - begin) + _LATE_S, None)
            reached = {work.name: work.reached() for work in works}
        finally:
            for work in works:
                work.stop()
    end = second.counters.monotonic_s if any(work.fixed for work in works) else begin + timing.seconds
    late_s = max(first.counters.monotonic_s - begin, second.counters.monotonic_s - end)
    late = late_s > MOST_LATE * (end - begin)
    return _measured(started, first, second, reached, warmup_s, watch.series(zero), speeds, late)


@contextmanager
def _backends(instances: Instances) -> Iterator[tuple[Backend, Backend]]:
    """One reader for the ends of the measured time, and one for the short windows within it.

    A reader reads some counters only now and then; one that reads at the ends alone has them from end to end. Where
    only one may read at a time, as on Xen, it does both.
    """
    with contextlib.ExitStack() as opened:
        backend = instances.backend()
        opened.callback(backend.close)
        watched = backend
        with contextlib.suppress(BackendError):
            watched = instances.backend()
            opened.callback(watched.close)
        yield backend, watched


def _warm_up(works: list[InstancePrograms], watch: UsageWatch, timing: Timing) -> float:
    """Let fillers work for the warm-up, and longer until all are steady; returns how long it took."""
    begin = time.monotonic()
    settled = timing.warmup_most_s <= timing.warmup_s
    while (now := time.monotonic()) < begin + timing.warmup_s or (not settled and now < begin + timing.warmup_most_s):
        for work in works:
            work.check()
        if watch.look() and now >= begin + timing.warmup_s:
            series = watch.series(now + 1)  # so that all of it lies before the measured time
            settled = all(has_settled(series.activity(work.name, measured=False)) for work in works)
        time.sleep(_POLL_S)
    for work in works:
        work.check()
    return time.monotonic() - begin


def _release(works: list[InstancePrograms]) -> float:
    """Start the measuring programs so that all begin to work at once, then end the fillers; returns the start time."""
    begin = time.monotonic() + max(work.lead_s for work in works)
    for work in sorted(works, key=lambda work: -work.lead_s):
        sleep_until(begin - work.lead_s)
        work.release()
    sleep_until(begin)
    for work in works:
        work.drop_filler()
    return begin


def _window(works: list[InstancePrograms], watch: UsageWatch, begin: float, seconds: float) -> None:
    """Wait for the end of the measured window: until fixed work is done or, where there is none, the time is over."""
    fixed = [work for work in works if work.fixed]
    if fixed:
        _until_ended(works, fixed, begin, MOST_FIXED_S, watch)
    while not fixed and time.monotonic() < begin + seconds - _MARGIN_S:
        _turn(works, watch)


def _until_ended(
    works: list[InstancePrograms],
    awaited: list[InstancePrograms],
    begin: float,
    most_s: float,
    watch: UsageWatch | None,
) -> None:
    while late := [work.name for work in awaited if not work.ended]:
        if time.monotonic() > begin + most_s:
            raise RunError(f"{', '.join(late)} did not end within {most_s:.0f} s of measuring")
        _turn(works, watch)


def _turn(works: list[InstancePrograms], watch: UsageWatch | None) -> None:
    """Wait one poll interval while all instances keep working."""
    for work in works:
        work.keep_pressing()
    if watch is not None:
        watch.look()
    time.sleep(_POLL_S)


def _edge(backend: Backend, instances: Instances) -> _WindowEdge:
    return _WindowEdge(
        backend.read_counters(), instances.generator_ns(), instances.all_tasks_ns(), instances.own_programs_ns()
    )


def _measured(
    started: str, first: _WindowEdge, second: _WindowEdge, reached: Mapping[str, WorkloadResult], warmup_s: float,
    series: UsageSeries, speeds: Mapping[int, float], late: bool,
) -> RunMeasurement:  # fmt: skip
    collected = collect(first.counters, second.counters)
    seconds = collected.seconds
    generators = {
        name: (used - first.generator_ns[name]) / 1e7 / seconds
        for name, used in second.generator_ns.items()
        if name in first.generator_ns
    }
    values, dropped = metric_values(collected)
    steal = next((value.value for value in values if (value.scope, value.metric) == ("host", "steal")), None)
    unsteady = tuple(name for name in reached if drifts(series.activity(name)))
    foreign = _foreign(collected, generators, first, second)
    return RunMeasurement(
        started, seconds, reached, values, generators, steal, foreign, dropped, warmup_s, unsteady, series, speeds, late
    )


def metric_values(collected: Collected) -> tuple[tuple[MetricValue, ...], tuple[str, ...]]:
    """What two readings gave: values, and what was dropped, with its reason."""
    values = tuple(
        MetricValue(sample.instance, sample.scope, sample.metric, sample.value, unit_of(sample.metric))
        for sample in collected.samples
    )
    return values, tuple(f"{drop.instance or 'all'}: {drop.reason}" for drop in collected.drops)


def _foreign(
    collected: Collected, generators: Mapping[str, float], first: _WindowEdge, second: _WindowEdge
) -> float | None:
    """CPU time of all other work on this host, 100 = one CPU: not of the instances, their generators or their I/O.

    Exact where the host counts all tasks. Elsewhere a lower bound from the ticks of /proc/stat: softirqs that interrupt
    an instance count there for the instance as well as for the driver domain.
    """
    samples = collected.samples
    own_programs = (second.own_programs_ns - first.own_programs_ns) / 1e7 / collected.seconds
    ours = (
        sum(s.value for s in samples if s.metric == "cpu" and s.scope == "instance")
        + sum(generators.values())
        + own_programs
    )
    if first.all_tasks_ns is not None and second.all_tasks_ns is not None:
        others_ns = second.all_tasks_ns - first.all_tasks_ns - (second.kernel_ns - first.kernel_ns)
        return max(0.0, others_ns / 1e7 / collected.seconds - ours)
    busy = next((s.value for s in samples if s.metric == "busy"), None)
    driver = sum(s.value for s in samples if s.metric == "cpu" and s.scope == "driver_domain" and s.instance is None)
    return None if busy is None else max(0.0, busy - driver - ours)
