"""Differences into MetricSamples: the eight metrics in every scope that has them, and the further ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from profiler.backends import Counters
from profiler.collectors import eight
from profiler.collectors.differences import Deltas, Difference, Drop, difference
from profiler.collectors.further import UNITS, further
from profiler.metrics import BY_NAME, Scope
from profiler.observed import MetricSample

_INSTANCE_FORMULAS = {
    "pages_exchanged": eight.pages_exchanged,
    "execution": eight.execution,
    "pages_per_execution": eight.pages_per_execution,
    "cpu": eight.cpu,
    "waiting": eight.waiting,
    "block": eight.block,
}
_NEEDS = {
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
    """A metric that could not be had, and why."""

    instance: str | None
    metric: str
    reason: str


@dataclass(frozen=True, slots=True)
class Collected:
    """What two readings give: samples, metrics without a value, and samples that were dropped."""

    samples: tuple[MetricSample, ...]
    absences: tuple[Absence, ...]
    drops: tuple[Drop, ...]
    seconds: float


def unit_of(metric: str) -> str:
    """Unit of one of the eight or of a further metric."""
    return BY_NAME[metric].unit if metric in BY_NAME else UNITS[metric]


def collect(first: Counters, second: Counters) -> Collected:
    """Rates between two readings. A metric without a value is absent, never zero."""
    change = difference(first, second)
    collection = _Collection(change)
    for name, deltas in sorted(change.instances.items()):
        collection.add_instance(name, deltas)
    collection.add_driver()
    collection.add_host()
    return Collected(tuple(collection.samples), tuple(collection.absences), change.drops, change.seconds)


class _Collection:
    def __init__(self, change: Difference) -> None:
        self._change = change
        self.samples: list[MetricSample] = []
        self.absences: list[Absence] = []

    def _add(
        self, instance: str | None, scope: Scope, values: Mapping[str, float | None], why: Mapping[str, str]
    ) -> None:
        for metric, value in values.items():
            if value is None:
                reasons = [why[need] for need in _NEEDS.get(metric, ()) if need in why]
                self.absences.append(Absence(instance, metric, "; ".join(reasons) or "it did not run in this time"))
            else:
                sample = MetricSample(self._change.host, instance, scope, metric, value, self._change.time_s)
                self.samples.append(sample)

    def add_instance(self, name: str, deltas: Deltas) -> None:
        values = {metric: formula(deltas) for metric, formula in _INSTANCE_FORMULAS.items()}
        self._add(name, "instance", values, deltas.absent)
        self._add(name, "instance", further(deltas), deltas.absent)

    def add_driver(self) -> None:
        """The driver domain as a whole, and each instance's part of it by the pages it exchanged.

        The attribution is that of Cherkasova and Gardner (USENIX ATC 2005), who charge Dom0's CPU time to guests by
        their page exchanges.
        """
        driver = self._change.driver
        if driver is None:
            return
        pages = {name: eight.pages_exchanged(deltas) for name, deltas in self._change.instances.items()}
        known = {name: value for name, value in pages.items() if value is not None}
        complete = len(known) == len(pages)
        total = sum(known.values())
        carried = replace(driver, net_bytes=round(total * eight.PAGE_BYTES * driver.seconds), disk_bytes=0)
        values = {metric: formula(carried) for metric, formula in _INSTANCE_FORMULAS.items()}
        if not complete:
            values = {metric: value for metric, value in values.items() if not metric.startswith("pages_")}
        self._add(None, "driver_domain", values, driver.absent)
        if complete and total > 0:
            for name, value in sorted(known.items()):
                self._add(name, "driver_domain", {"cpu": eight.cpu(driver) * value / total}, {})

    def add_host(self) -> None:
        change = self._change
        domains = [*change.instances.values(), *([change.driver] if change.driver else [])]
        why = {key: reason for deltas in domains for key, reason in deltas.absent.items()}
        why |= change.whole.absent if change.whole else {}
        values: dict[str, float | None] = {"switch": eight.switch(domains, change.seconds) if domains else None}
        if change.whole is not None:
            if change.whole.switches is not None:
                values["switch"] = change.whole.switches / change.whole.seconds
            events = change.whole.events
            values["event"] = None if events is None else eight.event(events, change.whole.seconds)
            values["busy"] = change.whole.busy_ns / 1e7 / change.whole.seconds
            values["steal"] = change.whole.steal_ns / 1e7 / change.whole.seconds
        self._add(None, "host", values, why)
