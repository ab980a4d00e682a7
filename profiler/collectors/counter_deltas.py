"""Differences between two readings of cumulative counters; handles resets, gaps and vanished tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiler.backends import Counters, DomainCounters, HostCounters, TaskCounters

MAX_GAP_S = 300.0  # readings further apart (a suspended host, a hung tool) say nothing about now
_UNEXPLAINED = 0.1  # share of the CPU time that may be missing with ended tasks before task metrics are dropped
_NEGLIGIBLE = 0.01  # … unless it is under this share of the window, where it cannot matter

DropReason = Literal["clock", "reset", "vanished", "new", "tasks_ended"]


@dataclass(frozen=True, slots=True)
class Drop:
    """A sample that was not made: for which instance (None = the whole reading), and why."""

    instance: str | None
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Deltas:
    """What one instance, or the driver domain, did in `seconds`; None = unknown, with a reason in `absent`.

    `executions` are `switches` plus execution periods outside any task. `further_seconds` is the time over which the
    counters in `further` grew, None = `seconds`. `ready_threads` is by how many threads, all alike, its time
    ready to run could have been: 1 where one thread had all of it, k where k had as much each; None = never ready.
    """

    seconds: float
    vcpus: int
    cpu_ns: int | None
    wait_ns: int | None
    executions: int | None
    switches: int | None
    net_bytes: int | None
    disk_bytes: int | None
    pages: int | None = None
    further: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    further_seconds: float | None = None
    ready_threads: float | None = None


@dataclass(frozen=True, slots=True)
class HostDeltas:
    """What the whole host did in `seconds`; `further` and `gauges` are about memory, as those of `Deltas`."""

    seconds: float
    events: int | None
    busy_ns: int
    steal_ns: int
    pcpus: int
    switches: int | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    further: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    further_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything between two readings; `time_s` is that of the second."""

    host: str
    time_s: float
    seconds: float
    instances: Mapping[str, Deltas]
    driver: Deltas | None
    whole: HostDeltas | None
    drops: tuple[Drop, ...] = ()


def difference(first: Counters, second: Counters) -> Difference:
    """Subtract two readings of the same host; what does not compare is dropped, with the reason in `drops`."""
    seconds = second.monotonic_s - first.monotonic_s
    if not 0 < seconds <= MAX_GAP_S:
        return Difference(second.host, second.time_s, seconds, {}, None, None, (Drop(None, "clock"),))
    drops = [Drop(name, "vanished") for name in sorted(set(first.instances) - set(second.instances))]
    instances: dict[str, Deltas] = {}
    for name, counters in second.instances.items():
        if name not in first.instances:
            drops.append(Drop(name, "new"))
            continue
        deltas = _domain(first.instances[name], counters, seconds)
        if deltas is None:
            drops.append(Drop(name, "reset"))
            continue
        if deltas.wait_ns is None:
            drops.append(Drop(name, "tasks_ended"))
        instances[name] = deltas
    driver = _domain(first.driver, second.driver, seconds) if first.driver and second.driver else None
    whole = _host(first.whole, second.whole, seconds) if first.whole and second.whole else None
    return Difference(second.host, second.time_s, seconds, instances, driver, whole, tuple(drops))


@dataclass(frozen=True, slots=True)
class _TaskSums:
    run_ns: int
    wait_ns: int
    timeslices: int
    io_bytes: int
    ended: int
    ready_squares: float

    @property
    def ready_threads(self) -> float | None:
        """The participation ratio of the threads' ready times."""
        ready = float(self.run_ns + self.wait_ns)
        return ready**2 / self.ready_squares if self.ready_squares > 0 else None


_NEW_TASK = TaskCounters(0, 0, 0, 0)


def _sum_tasks(first: Mapping[str, TaskCounters], second: Mapping[str, TaskCounters], window_ns: float) -> _TaskSums:
    run_ns = wait_ns = timeslices = io_bytes = 0
    ready_squares = 0.0
    ended = len(first)
    for name, task in second.items():
        earlier = first.get(name)
        if earlier is not None:
            ended -= 1
            if task is earlier:  # it did not run
                continue
        if earlier is None or not _went_on(earlier, task):
            if task.run_ns > window_ns:
                continue  # more run time than the window has: it was moved here with its past
            earlier = _NEW_TASK
        ran_ns, waited_ns = task.run_ns - earlier.run_ns, task.wait_ns - earlier.wait_ns
        run_ns += ran_ns
        wait_ns += waited_ns
        ready_squares += float(ran_ns + waited_ns) ** 2
        timeslices += task.timeslices - earlier.timeslices
        io_bytes += (task.io_bytes or 0) - (earlier.io_bytes or 0)
    return _TaskSums(run_ns, wait_ns, timeslices, io_bytes, ended, ready_squares)


def _went_on(earlier: TaskCounters, task: TaskCounters) -> bool:
    """False when the number now belongs to another task, whose counters start anew."""
    return task.run_ns >= earlier.run_ns and task.timeslices >= earlier.timeslices and task.wait_ns >= earlier.wait_ns


def _domain(first: DomainCounters, second: DomainCounters, seconds: float) -> Deltas | None:
    """Subtract one domain's counters; None = a counter ran backwards."""
    tasks = _sum_tasks(first.tasks, second.tasks, seconds * 1e9 * second.vcpus)
    absent = {**first.absent, **second.absent}
    interrupt_ns = second.interrupt_ns - first.interrupt_ns
    cpu_ns = _minus(second.cpu_ns, first.cpu_ns)
    net_bytes = _minus(second.net_bytes, first.net_bytes)
    disk_bytes = _minus(second.disk_bytes, first.disk_bytes)
    pages = _minus(second.pages, first.pages)
    before, further_seconds = second.further_since or (first.further, None)
    further = {name: value - before[name] for name, value in second.further.items() if name in before}
    executions = second.executions - first.executions
    counted = (interrupt_ns, cpu_ns or 0, net_bytes or 0, disk_bytes or 0, pages or 0, executions, *further.values())
    if min(counted) < 0:
        return None
    hidden = "tasks" in absent
    if disk_bytes is None and "disk_bytes" not in absent:
        if hidden:
            absent["disk_bytes"] = absent["tasks"]
        elif first.disk_bytes is None and second.disk_bytes is None:
            disk_bytes = max(0, tasks.io_bytes)
        else:
            absent["disk_bytes"] = "they are counted in another way since this reading"
    known = not hidden and _tasks_explain(cpu_ns, tasks, seconds)
    if not known and not hidden:
        absent["tasks"] = f"{tasks.ended} tasks ended meanwhile and took their scheduler counts with them"
    if cpu_ns is None and not hidden:
        cpu_ns = tasks.run_ns
    return Deltas(
        seconds,
        second.vcpus,
        None if cpu_ns is None else interrupt_ns + cpu_ns,
        tasks.wait_ns if known else None,
        tasks.timeslices + executions if known else None,
        tasks.timeslices if known else None,
        net_bytes,
        disk_bytes,
        pages,
        further,
        second.gauges,
        absent,
        further_seconds,
        tasks.ready_threads if known else None,
    )


def _tasks_explain(cpu_ns: int | None, tasks: _TaskSums, seconds: float) -> bool:
    """Whether the tasks that are still there account for the CPU time that was used."""
    if tasks.ended == 0 or cpu_ns is None:
        return True
    lost = cpu_ns - tasks.run_ns
    return lost <= _UNEXPLAINED * cpu_ns or lost <= _NEGLIGIBLE * seconds * 1e9


def _minus(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier


def _host(first: HostCounters, second: HostCounters, seconds: float) -> HostDeltas | None:
    events = _minus(second.events, first.events)
    switches = _minus(second.switches, first.switches)
    busy = second.busy_ns - first.busy_ns
    steal = max(0, second.steal_ns - first.steal_ns)  # some hypervisors let steal run backwards by a tick
    if any(value is not None and value < 0 for value in (events, switches, busy)):
        return None
    before, further_seconds = second.further_since or (first.further, None)
    further = {
        name: value - before[name] for name, value in second.further.items() if value >= before.get(name, value + 1)
    }
    return HostDeltas(
        seconds, events, busy, steal, second.pcpus, switches, second.absent, further, second.gauges, further_seconds
    )
