"""Availability of the eight metrics on a host: the source of each, or why it is missing. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from profiler.backends import Counters
from profiler.collectors import Collected, collect
from profiler.definitions import DEFINITIONS
from profiler.metrics import EIGHT, Metric, Scope

AvailabilityState = Literal["given", "partly", "absent", "unknown"]

NO_INSTANCE = "no instance runs"
_NAMED = 3  # instances that a reason lists by name


@dataclass(frozen=True, slots=True)
class Availability:
    """One of the eight metrics on one host.

    `state` is that of its own scope (the host for event and switch, else the instances): given for all of them, partly
    = for some, absent, unknown where no instance runs. `driver_state` is that of the driver domain, "" where the metric
    has no such scope. `source` is empty where no hypervisor can be read. The reasons are empty where all is given.
    """

    metric: str
    unit: str
    scope: Scope
    source: str
    state: AvailabilityState
    reason: str = ""
    driver_state: Literal["given", "absent", ""] = ""
    driver_reason: str = ""


def availability(first: Counters, second: Counters, hypervisor: str) -> tuple[Availability, ...]:
    """What two readings of one host gave, in the order of the eight; `hypervisor` is a key of DEFINITIONS."""
    sources = {definition.metric: definition.source for definition in DEFINITIONS.get(hypervisor, ())}
    observed = _ObservedMetrics(second, collect(first, second))
    return tuple(_of_metric(metric, sources.get(metric.name, ""), observed) for metric in EIGHT)


def unavailable(reason: str) -> tuple[Availability, ...]:
    """All eight absent, where no hypervisor can be read."""
    return tuple(
        Availability(metric.name, metric.unit, metric.default_scope, "", "absent", reason, *_no_driver(metric, reason))
        for metric in EIGHT
    )


def _no_driver(metric: Metric, reason: str) -> tuple[Literal["absent", ""], str]:
    return ("absent", reason) if "driver_domain" in metric.scopes else ("", "")


def _of_metric(metric: Metric, source: str, observed: _ObservedMetrics) -> Availability:
    state, reason = observed.host(metric.name) if metric.default_scope == "host" else observed.instances(metric.name)
    named = (metric.name, metric.unit, metric.default_scope, source, state, reason)
    if "driver_domain" not in metric.scopes:
        return Availability(*named)
    return Availability(*named, *observed.driver(metric.name))


class _ObservedMetrics:
    """Samples and reasons of two readings, by scope, metric and instance."""

    def __init__(self, second: Counters, collected: Collected) -> None:
        self._instances = sorted(second.instances)
        self._absent = second.absent
        self._given = {(sample.scope, sample.metric, sample.instance) for sample in collected.samples}
        self._reasons = {(absence.metric, absence.instance): absence.reason for absence in collected.absences}
        self._drops = {drop.instance: f"this reading was dropped ({drop.reason})" for drop in collected.drops}

    def host(self, metric: str) -> tuple[AvailabilityState, str]:
        if ("host", metric, None) in self._given:
            return "given", ""
        return "absent", self._why(metric, None, "whole")

    def driver(self, metric: str) -> tuple[Literal["given", "absent"], str]:
        if ("driver_domain", metric, None) in self._given:
            return "given", ""
        explained = (metric, None) in self._reasons or "driver" in self._absent or None in self._drops
        if not explained and self.instances(metric)[0] != "given":  # as with pages (collectors/samples.py)
            return "absent", "it is summed over the instances, and not all of them give it"
        return "absent", self._why(metric, None, "driver")

    def instances(self, metric: str) -> tuple[AvailabilityState, str]:
        if not self._instances:
            return "unknown", NO_INSTANCE
        missing = [name for name in self._instances if ("instance", metric, name) not in self._given]
        if not missing:
            return "given", ""
        names_by_reason: dict[str, list[str]] = {}
        for name in missing:
            names_by_reason.setdefault(self._why(metric, name, "instances"), []).append(name)
        if len(names_by_reason) == 1 and len(missing) == len(self._instances):
            return "absent", next(iter(names_by_reason))
        reason = "; ".join(f"{reason} ({_some(names)})" for reason, names in names_by_reason.items())
        return ("absent" if len(missing) == len(self._instances) else "partly"), reason

    def _why(self, metric: str, instance: str | None, part: str) -> str:
        """The most specific reason known; `part` names the part of a reading that this metric needs."""
        known = (
            self._drops.get(None),  # nothing was subtracted at all: every other reason follows from that
            self._reasons.get((metric, instance)),
            self._drops.get(instance) if instance else None,
            self._absent.get(part),
        )
        return next((reason for reason in known if reason), "this host does not show it")


def _some(names: Sequence[str]) -> str:
    further = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {further} more" if further > 0 else "")
