"""A cloud as it stands and as agents announce it: hosts, residents, histories, and slices of listings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from advisor.domain.effects import WEAK, Effect, evidence_level
from advisor.domain.scores import CloudScores, Slowing
from profiler.observed import Host, Instance

# A slice of a listing.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A slice of a listing; `next_cursor` None = the end."""

    items: tuple[T, ...]
    next_cursor: str | None = None


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
    """A host with its instances, the most affected first; `seen_at` None = it is not known when it was last seen.

    `pressure` is demand over capacity by resource (see advisor.snapshot.pressure), None = the capacity is not known.
    `crowded` is the part of the time, 0-1, with more vCPUs ready to run there than CPUs, None = not known. `cpu_peak`
    is the 95th percentile of what all there ask of the CPUs, over the capacity. `patience_s` is after how long its
    silence counts, inf = never, as no source reports it again and again; None = as for the cloud.
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
        """The instance that keeps least of its speed there."""
        return self.residents[0] if self.residents else None


@dataclass(frozen=True, slots=True)
class CloudNow:
    """Every host, the one with the most affected instance first; what is equal is ordered by pressure, then by id.

    `fresh_s` is how old the news of a host may be before it counts as without data.
    """

    hosts: tuple[HostNow, ...]
    generation: int
    model_version: str
    model_origin: str
    degraded: bool
    fresh_s: float


@dataclass(frozen=True, slots=True)
class CloudGlance:
    """What is known of the cloud without waiting for predictions: its last state with the scores then, None = it is
    predicted for the first time. While the state of now is being predicted, `part` of that is done, 0-1; else None."""

    now: CloudNow | None
    scores: CloudScores | None
    part: float | None = None


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


# What the agent of a host reports of it and of its instances, and the effect of that.

UUID = "uuid"  # label: distinguishes two instances of one name
STOPPED_AT = "stopped_at"  # label: since when no source reports it; it keeps its place for an hour
MOST_ANNOUNCED = 5_000  # instances on one host
PATIENCE = 5  # announcements that may be missing before the silence of a host counts …
LEAST_PATIENCE = timedelta(minutes=5)  # … and at least so long
ANNOUNCED = ("new", "changed", "moved", "stopped", "gone")  # what may happen to an instance


@dataclass(frozen=True, slots=True)
class Malformed:
    """A field of an announcement that cannot be read, with the id and the UUID of its instance as far as these can."""

    field: str
    reason: str
    id: str = ""
    uuid: str = ""
    of_host: bool = False

    @property
    def sentence(self) -> str:
        """What is left out for it, and why."""
        what = f"{self.field} of {self.id}" if self.of_host else f"instance {self.id[:60]}".rstrip()
        where = "" if self.of_host else f"{self.field}: "
        text = f"{what} is left out, {where}{self.reason}"
        return "".join(char if char.isprintable() else "�" for char in text)[:300]


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the agent of one host reports: facts of it and of all that run there, what is not known left out.

    `machine` distinguishes two machines of one name, empty = unknown. News come every `every_s` seconds. `bound`: the
    sender's token speaks for this host only. `malformed` is what cannot be read; whatever is stored of it stays.
    """

    host: Mapping[str, Any]
    instances: Sequence[Mapping[str, Any]]
    machine: str
    every_s: float
    time: datetime
    bound: bool = False
    malformed: Sequence[Malformed] = ()

    @property
    def host_id(self) -> str:
        """The host that it is about."""
        return str(self.host["id"])

    def names(self) -> set[str]:
        """Every id that an instance of it may have in the inventory."""
        return {str(instance["id"]) for instance in self.instances} | self.uuids()

    def uuids(self) -> set[str]:
        """The UUIDs of its instances, where these are known."""
        uuids = {instance.get("labels", {}).get(UUID) for instance in self.instances}
        return {uuid for uuid in uuids if uuid}

    @property
    def again(self) -> timedelta:
        """How long the next one may take."""
        return max(PATIENCE * timedelta(seconds=self.every_s), LEAST_PATIENCE)


@dataclass(frozen=True, slots=True)
class Announced:
    """What became of an announcement, by ids of instances. `notes` are sentences for who runs the agent."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
