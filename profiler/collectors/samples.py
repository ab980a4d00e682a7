"""Turns counter deltas into MetricSamples: the eight metrics in every scope, and additional ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from profiler.backends import Counters
from profiler.collectors import paper_metrics
from profiler.collectors.additional_metrics import further, of_host
from profiler.collectors.counter_deltas import Deltas, Difference, Drop, difference
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, PAGE_BYTES, Scope
from profiler.observed import MetricSample

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
        values = paper_metrics.of_instance(deltas)
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
        values = paper_metrics.of_instance(carried)
        if not complete:
            values = {metric: value for metric, value in values.items() if not metric.startswith("pages_")}
        self._add(None, "driver_domain", values, driver.absent)
        if complete and total > 0:
            used = paper_metrics.cpu(driver)
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
        values: dict[str, float | None] = {"event": None, "switch": paper_metrics.switch(domains, change.seconds)}
        if change.whole is not None:
            if change.whole.switches is not None:
                values["switch"] = change.whole.switches / change.whole.seconds
            events = change.whole.events
            values["event"] = None if events is None else paper_metrics.event(events, change.whole.seconds)
            values["busy"] = change.whole.busy_ns / 1e7 / change.whole.seconds
            values["steal"] = change.whole.steal_ns / 1e7 / change.whole.seconds
            values.update(of_host(change.whole))
        self._add(None, "host", values, why)
