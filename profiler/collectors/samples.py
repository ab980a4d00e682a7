"""Turns counter deltas into MetricSamples: the eight metrics of the NEIGHBOR paper in every scope, and further ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from profiler.backends import Counters
from profiler.collectors.counter_deltas import Deltas, Difference, Drop, HostDeltas, difference
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, PAGE_BYTES, Scope
from profiler.observed import MetricSample

# The eight metrics of the NEIGHBOR paper, formula by formula; plain arithmetic on differences, no I/O.
#
# Each formula says its source on Linux containers, its unit and how far it is from the paper's definition (section
# 3.4), where a domain is a Xen guest with vCPUs. A container has tasks instead. It is treated as `vcpus` virtual CPUs
# (what its cpuset and quota let it use at once), each of which is running, waiting or blocked at any time, so that
# cpu + waiting + block = 100 · vcpus as on Xen.


def cpu(deltas: Deltas) -> float | None:
    """Δ run time / Δt, %, 100 = one whole CPU.

    Source: `cpuacct.usage` (v1), `cpu.stat` usage_usec (v2); driver domain: irq and softirq ticks of /proc/stat plus
    run time of the kernel's I/O threads. As in the paper. Softirqs that run on an instance's back count for both, on
    kernels without IRQ_TIME_ACCOUNTING; ticks resolve 10 ms.
    """
    return None if deltas.cpu_ns is None else 100.0 * deltas.cpu_ns / 1e9 / deltas.seconds


def waiting(deltas: Deltas, running: float | None) -> float | None:
    """Δ time runnable and not running / Δt, %, at most what cpu, which is `running`, leaves of 100 · vcpus.

    Source: schedstat of every task, summed. On Xen the vCPU waits; here its tasks do. Tasks of one instance that queue
    for each other would count as waiting, which Xen does not see: the limit takes that away when the instance is busy
    all the time (a lone busy instance waits 0), and leaves an upper bound when it is not.
    """
    if deltas.wait_ns is None or running is None:
        return None
    room = max(0.0, 100.0 * deltas.vcpus - running)
    return min(100.0 * deltas.wait_ns / 1e9 / deltas.seconds, room)


def block(deltas: Deltas, running: float | None, wait: float | None) -> float | None:
    """100 · vcpus − cpu − waiting, %, never below 0.

    As in the paper it holds everything that is neither running nor runnable: blocked on I/O, and idle. It is a lower
    bound where waiting is an upper one.
    """
    return None if running is None or wait is None else max(0.0, 100.0 * deltas.vcpus - running - wait)


def execution(deltas: Deltas) -> float | None:
    """Execution periods per second: Δ timeslices of the tasks / Δt.

    Source: third number of schedstat. The paper counts how often a domain is put on a CPU; here how often a task is.
    The driver domain adds its network and block softirqs: each is one period of work for an instance's I/O.
    """
    return None if deltas.executions is None else deltas.executions / deltas.seconds


def pages_exchanged(deltas: Deltas) -> float | None:
    """(Δ network bytes in and out + Δ block bytes read and written) / 4096 / Δt, pages per second.

    Source: host side of the veth pair (or interfaces inside the namespace); `io.stat` (v2),
    `blkio.throttle.io_service_bytes` or the tasks' own `io` (v1). Xen flips or grants a page per packet or block, so a
    small packet is a whole page there and a part of one here: small-packet loads are lower than in the paper. Where
    the hypervisor counts pages itself (Xen), its count is used.
    """
    if deltas.pages is not None:
        return deltas.pages / deltas.seconds
    if deltas.net_bytes is None or deltas.disk_bytes is None:
        return None
    return (deltas.net_bytes + deltas.disk_bytes) / PAGE_BYTES / deltas.seconds


def of_instance(deltas: Deltas) -> dict[str, float | None]:
    """The six metrics of an instance, or of the driver domain, by name.

    pages_per_execution is undefined for an instance that never ran.
    """
    running, pages, executions = cpu(deltas), pages_exchanged(deltas), execution(deltas)
    wait = waiting(deltas, running)
    return {
        "pages_exchanged": pages,
        "execution": executions,
        "pages_per_execution": None if pages is None or not executions else pages / executions,
        "cpu": running,
        "waiting": wait,
        "block": block(deltas, running, wait),
    }


def event(events: int, seconds: float) -> float:
    """Network and block softirqs of the host per second.

    Stand-in for the event channel: on Xen each notifies a domain of I/O, here the softirq does that work. Several
    packets may share one softirq, as several may share one event. Counts the whole host, load generators included.
    """
    return events / seconds


def switch(domains: list[Deltas], seconds: float) -> float | None:
    """Δ context switches of all instances' tasks and of the kernel's I/O threads / Δt.

    Source: the tasks' arrivals on a CPU (third number of schedstat), each of which is one switch to the task. The paper
    counts switches of the VMM among VMs; switches between tasks of one instance are in here and are not in there.
    """
    counts = [deltas.switches for deltas in domains]
    known = [value for value in counts if value is not None]
    return sum(known) / seconds if known and len(known) == len(counts) else None


# Metrics beyond the eight from the same readings: kernel time, cap, pressure, stalls, bytes, memory.

# metric, its counter, and how much of the counter is one percent of a second
_PERCENTS = (
    ("system", "system_ns", 1e7),
    ("throttled", "throttled_ns", 1e7),
    ("psi_cpu", "psi_cpu_us", 1e4),
    ("psi_io", "psi_io_us", 1e4),
    ("psi_memory", "psi_memory_us", 1e4),
    ("disk_wait", "disk_wait_us", 1e4),
)
_RATES = ("disk_queue_full", "net_drops", "disk_flushes", "major_faults")  # counters of the same names, per second


def further(deltas: Deltas) -> dict[str, float]:
    """The additional metrics for which this host counts what is needed, by name."""
    values: dict[str, float] = {}
    seconds = deltas.seconds if deltas.further_seconds is None else deltas.further_seconds
    for name, counter, per_percent in _PERCENTS:
        if counter in deltas.further:
            values[name] = deltas.further[counter] / per_percent / seconds
    for name in _RATES:
        if name in deltas.further:
            values[name] = deltas.further[name] / seconds
    if "disk_flushes" in deltas.further:
        values["disk_iops"] = (deltas.further["disk_requests"] - deltas.further["disk_flushes"]) / seconds
    if requests := deltas.further.get("disk_requests", 0):
        values["disk_request_ms"] = deltas.further["disk_wait_us"] / 1e3 / requests
    if instructions := deltas.further.get("instructions", 0):
        values["cpi"] = deltas.further["cycles"] / instructions
    if "swap_in_bytes" in deltas.further:
        values["swap_in_mb_s"] = deltas.further["swap_in_bytes"] / 1e6 / seconds
    if "memory_bytes" in deltas.further:
        values["mem_bw_mb_s"] = deltas.further["memory_bytes"] / 1e6 / seconds
    if deltas.net_bytes is not None:
        values["net_mbit"] = deltas.net_bytes * 8 / 1e6 / deltas.seconds
    if deltas.disk_bytes is not None:
        values["disk_mb_s"] = deltas.disk_bytes / 1e6 / deltas.seconds
    if deltas.ready_threads is not None:
        values["ready_threads"] = deltas.ready_threads
    values.update(deltas.gauges)
    return values


def of_host(deltas: HostDeltas) -> dict[str, float]:
    """What the host shows of its memory, by name."""
    values = dict(deltas.gauges)
    seconds = deltas.seconds if deltas.further_seconds is None else deltas.further_seconds
    if "psi_memory_us" in deltas.further:
        values["psi_memory"] = deltas.further["psi_memory_us"] / 1e4 / seconds
    for way in ("in", "out"):
        if f"swap_{way}_bytes" in deltas.further:
            values[f"swap_{way}_mb_s"] = deltas.further[f"swap_{way}_bytes"] / 1e6 / seconds
    return values


_NEEDS = {
    "cpu": ("cpu_ns", "tasks"),
    "pages_exchanged": ("net_bytes", "disk_bytes"),
    "pages_per_execution": ("net_bytes", "disk_bytes", "tasks"),
    "execution": ("tasks",),
    "waiting": ("tasks",),
    "block": ("tasks",),
    "event": ("events",),
    "switch": ("tasks", "switches"),
}


@dataclass(frozen=True, slots=True)
class Absence:
    """A metric without a value, and why."""

    instance: str | None
    metric: str
    reason: str


@dataclass(frozen=True, slots=True)
class SampleRow:
    """All values of one scope of one instance (None = of the host, or of the driver domain as a whole), by metric."""

    instance: str | None
    scope: Scope
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Collected:
    """What two readings give: values, metrics without a value, and samples that were dropped.

    `time_s` is the epoch time of the second reading, `seconds` the monotonic time between the two.
    """

    host: str
    time_s: float
    seconds: float
    rows: tuple[SampleRow, ...]
    absences: tuple[Absence, ...]
    drops: tuple[Drop, ...]

    @property
    def samples(self) -> tuple[MetricSample, ...]:
        """All values one by one, made anew at each call; callers that read every second use `rows`."""
        return tuple(
            MetricSample(self.host, row.instance, row.scope, metric, value, self.time_s)
            for row in self.rows
            for metric, value in row.values.items()
        )


def unit_of(metric: str) -> str:
    """Unit of one of the eight or of a further metric."""
    return BY_NAME[metric].unit if metric in BY_NAME else ADDITIONAL_UNITS[metric]


def collect(first: Counters, second: Counters) -> Collected:
    """Rates between two readings. A metric without a value is absent, never zero."""
    change = difference(first, second)
    collection = _Collection(change)
    for name, deltas in sorted(change.instances.items()):
        collection.add_instance(name, deltas)
    collection.add_driver()
    collection.add_host(second.absent.get("whole") or first.absent.get("whole") or "the host's counters ran backwards")
    return Collected(
        change.host, change.time_s, change.seconds, tuple(collection.rows), tuple(collection.absences), change.drops
    )


class _Collection:
    def __init__(self, change: Difference) -> None:
        self._change = change
        self.rows: list[SampleRow] = []
        self.absences: list[Absence] = []
        self._pages: dict[str, float | None] = {}  # that each instance exchanged

    def _add(
        self, instance: str | None, scope: Scope, values: Mapping[str, float | None], why: Mapping[str, str]
    ) -> None:
        if values and None not in values.values():  # most of the time; looking is cheaper than copying
            self.rows.append(SampleRow(instance, scope, cast("Mapping[str, float]", values)))
            return
        known = {metric: value for metric, value in values.items() if value is not None}
        if known:
            self.rows.append(SampleRow(instance, scope, known))
        for metric in [name for name in values if name not in known]:
            reasons = [why[need] for need in _NEEDS.get(metric, ()) if need in why]
            self.absences.append(Absence(instance, metric, "; ".join(reasons) or "it did not run in this time"))

    def add_instance(self, name: str, deltas: Deltas) -> None:
        values = of_instance(deltas)
        self._pages[name] = values["pages_exchanged"]
        values.update(further(deltas))
        self._add(name, "instance", values, deltas.absent)

    def add_driver(self) -> None:
        """The driver domain as a whole, and each instance's part of it by the pages it exchanged.

        The attribution is that of Cherkasova and Gardner (USENIX ATC 2005), who charge Dom0's CPU time to guests by
        their page exchanges.
        """
        driver = self._change.driver
        if driver is None:
            return
        known = {name: value for name, value in self._pages.items() if value is not None}
        complete = len(known) == len(self._pages)
        total = sum(known.values())
        carried = replace(driver, net_bytes=round(total * PAGE_BYTES * driver.seconds), disk_bytes=0)
        values = of_instance(carried)
        if not complete:
            values = {metric: value for metric, value in values.items() if not metric.startswith("pages_")}
        self._add(None, "driver_domain", values, driver.absent)
        if complete and total > 0:
            used = cpu(driver)
            for name, value in sorted(known.items()):
                share = None if used is None else used * value / total
                self._add(name, "driver_domain", {"cpu": share}, driver.absent)

    def add_host(self, no_whole: str) -> None:
        """Add the host's metrics; `no_whole` is the reason where its own counters are missing."""
        change = self._change
        domains = [*change.instances.values(), *([change.driver] if change.driver else [])]
        why = {key: reason for deltas in domains for key, reason in deltas.absent.items()}
        why |= change.whole.absent if change.whole else {"events": no_whole}
        if not domains:
            why.setdefault("tasks", "no instance or driver domain is in both readings")
        values: dict[str, float | None] = {"event": None, "switch": switch(domains, change.seconds)}
        if change.whole is not None:
            if change.whole.switches is not None:
                values["switch"] = change.whole.switches / change.whole.seconds
            events = change.whole.events
            values["event"] = None if events is None else event(events, change.whole.seconds)
            values["busy"] = change.whole.busy_ns / 1e7 / change.whole.seconds
            values["steal"] = change.whole.steal_ns / 1e7 / change.whole.seconds
            values.update(of_host(change.whole))
        self._add(None, "host", values, why)
