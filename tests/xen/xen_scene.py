"""What one profiling in the lab gave: the profiler's own words beside those of other sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.xen.xen_witness import GuestTimes, Witness


@dataclass(frozen=True, slots=True)
class Guest:
    """A running guest; `domain` is its number in Xen."""

    name: str
    domain: int
    address: str

    @property
    def vif(self) -> str:
        return f"vif{self.domain}.0"


@dataclass(frozen=True, slots=True)
class Profiled:
    """What the profiler said (its JSON), its recording, and what the witness saw at the same time."""

    said: dict[str, Any]
    recording: dict[str, Any]
    witness: Witness

    @property
    def window(self) -> tuple[float, float]:
        """Dom0's monotonic time of both readings."""
        first, second = (reading["clock"][1] for reading in self.recording["readings"])
        return first, second

    def value(self, metric: str, instance: str | None = None, scope: str = "instance") -> float:
        """One sample's value; the reason of its absence in the error when there is none."""
        for sample in self.said["samples"]:
            if (sample["instance"], sample["scope"], sample["metric"]) == (instance, scope, metric):
                return float(sample["value"])
        raise AssertionError(f"no {scope} {metric} of {instance}: {self.said['absent']} {self.said['dropped']}")


@dataclass(frozen=True, slots=True)
class Scene:
    """Guests under one load: what was profiled, and their own times just before and after it."""

    profiled: Profiled
    before: Mapping[str, GuestTimes]
    after: Mapping[str, GuestTimes]

    def stolen(self, guest: Guest) -> float:
        """Percent of the time in which the guest saw its CPU taken away."""
        return self.after[guest.name].stolen_percent(self.before[guest.name])

    def idle(self, guest: Guest) -> float:
        """Percent of the time in which the guest had nothing to do."""
        return self.after[guest.name].idle_percent(self.before[guest.name])
