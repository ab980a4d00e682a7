"""The cloud as it stands: what is predicted of every instance where they are, how hosts are used, what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from advisor.domain.effects import Effect
from advisor.domain.evidence import WEAK, evidence_level
from advisor.domain.slowing import Slowing
from profiler.observed import Host, Instance


@dataclass(frozen=True, slots=True)
class ResidentNow:
    """An instance where it is, or where an answer that is still `pending` puts it; `expected` is its T/B there.

    `short` is the part of the time, 0-1, in which it gets less CPU than its demand, and `delivered` the part of the
    CPU time of its demand that it gets, None = not known. `falls_behind` = at busy times more work arrives than it is
    served. `guessed` = its demand is an estimate from its size or from similar instances.
    """

    instance: Instance
    expected: float
    pending: bool
    short: float | None = None
    delivered: float | None = None
    falls_behind: bool = False
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class HostNow:
    """A host with who is on it, the worst off first; `seen_at` None = it is not known when it was last seen.

    `pressure` is demand over capacity by resource (see advisor.snapshot.pressure), None = the capacity is not known.
    `crowded` is the part of the time, 0-1, with more vCPUs ready to run there than CPUs, None = not known. `cpu_peak`
    is the 95th percentile of what all there ask of the CPUs, over the capacity. `patience_s` is after how long its
    silence counts, inf = never, for nothing tells of it again and again; None = as for the cloud.
    """

    host: Host
    residents: tuple[ResidentNow, ...]
    pressure: Mapping[str, float | None]
    seen_at: datetime | None
    crowded: float | None = None
    cpu_peak: float = 0.0
    patience_s: float | None = None

    @property
    def known(self) -> int:
        """Of how many residents more than the size is known: a demand, or what they run."""
        return sum(
            resident.instance.workload is not None or evidence_level(resident.instance, ()) not in WEAK
            for resident in self.residents
        )

    @property
    def worst(self) -> ResidentNow | None:
        """Who keeps least of its speed there."""
        return self.residents[0] if self.residents else None


@dataclass(frozen=True, slots=True)
class CloudNow:
    """Every host, the one with the worst-off instance first; what is equal is ordered by pressure, then by id.

    `fresh_s` is how old the news of a host may be before it counts as without data.
    """

    hosts: tuple[HostNow, ...]
    generation: int
    model_version: str
    model_origin: str
    degraded: bool
    fresh_s: float


@dataclass(frozen=True, slots=True)
class HostDetail:
    """One host more closely: what happens to each resident, in the order of `now`, and which instances slow which."""

    now: HostNow
    effects: tuple[Effect, ...]
    slowing: tuple[Slowing, ...]
    degraded: bool


@dataclass(frozen=True, slots=True)
class History:
    """One metric over time, as means of equal steps: `times` are their ends (s since the epoch), `values` in `unit`.

    `instance` None = the host's own. A step without a sample is left out.
    """

    host: str
    instance: str | None
    metric: str
    unit: str
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Histories:
    """What was measured from `begin_s` to `end_s` in steps of `step_s`; `elsewhere` = another store has the samples.

    `missing` says why that store could not be asked, empty = it was.
    """

    begin_s: float
    end_s: float
    step_s: float
    found: tuple[History, ...]
    elsewhere: bool = False
    missing: str = ""
