"""Plans: the ordered steps that answer a question about a whole cloud, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from advisor.domain.answers import Band, Candidate, Command, Effect, Rejection
from advisor.domain.plan_questions import Growth, PlanKind, PlanRequest
from profiler.observed import IsolationSettings


@dataclass(frozen=True, slots=True)
class Usage:
    """What was measured of an instance lately: the CPUs that 95 % of its `windows` stayed under, and 99 % of them."""

    cpus: float
    windows: int
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class MoveSeen:
    """A move that happened at a time (s since the epoch); `source` None = it is not known from where."""

    instance: str
    source: str | None
    target: str
    at_s: float


PlanAction = Literal["place", "move", "settings", "resize", "remove", "driver_domain"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan: `host` None = no host can take the instance, with the reasons in `rejected`.

    `candidate` is how a newcomer stands in the ranking where that was asked. Steps of one `stage` may run together,
    those of the next one begin when it is done, and at no moment is anybody below a limit who was not before. `gain` is
    the harm that a move of a rebalance takes away: what the most affected of those that it changes keeps more, half of
    it T/B and half the part of the time in which it is short of CPU, where that is known, and 0.3 of what all others
    keep more, less what the move costs; None where that is not why. `settings` are what the instance runs under
    afterwards, `changes` what others get by it. `vcpus` is its new size, where the step changes that. Only an undo
    removes: it takes away from `source` who was placed there, and has no host. A step of a tuning names in `effects`
    the instances that it changes, with what was before it. Its `driver_domain` step is about no instance (""): it keeps
    the driver domain of `host` to `driver_cpus` with the scheduler weight `driver_weight`. `duration_s` is how long its
    memory takes over the network beside the other moves of its stage, None where that is not known or nothing is
    copied.
    """

    instance: str
    host: str | None
    candidate: Candidate | None = None
    rejected: tuple[Rejection, ...] = ()
    action: PlanAction = "place"
    source: str | None = None
    stage: int = 0
    why: str = ""
    gain: Band | None = None
    settings: IsolationSettings | None = None
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    vcpus: int | None = None
    duration_s: Band | None = None
    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    driver_cpus: tuple[int, ...] = ()
    driver_weight: int | None = None

    @property
    def subject(self) -> str:
        """What the step is about, for people."""
        return self.instance or "driver domain"


@dataclass(frozen=True, slots=True)
class PlanSums:
    """A cloud in figures: `below` instances are under their limit (or `keep_ratio`), `worst` is the lowest expected
    T/B, `mean` the mean and `total` the sum of all; 1.0 and 0 for a cloud without instances.

    `watts` is what all hosts in use draw and `price` what all hosts cost a month, by labels of hosts; None where a host
    says nothing of it. `score` is the mean predicted score of VMs, 0-100, `score_lowest` the lowest, and `scores` says
    how many are in each of SCORE_BUCKETS; None and empty where there is no VM, or where an older version made the plan.
    """

    hosts: int
    hosts_used: int
    instances: int
    below: int
    worst: float
    mean: float
    total: float
    watts: float | None = None
    price: float | None = None
    score: float | None = None
    score_lowest: float | None = None
    scores: tuple[int, ...] = ()


PlanEnd = Literal["optimal", "time", "search", "already fine", "in the way", "not now"]


@dataclass(frozen=True, slots=True)
class Search:
    """How a plan was found: `value` is what it reaches of `aim`, `bound` what no plan can surpass, `gap` how far they
    are apart as a share of the bound (0 = nothing better exists), or of 1 where the bound is 0.

    `ended`: optimal = proven, time = the limit was reached, search = the local search found nothing better, already
    fine = nothing is to be done, in the way = not everything that was asked for can be (the notes say what hinders),
    not now = moves would pay, but of instances or hosts that rest after a move (the notes say until when).
    """

    aim: str
    value: float
    bound: float
    gap: float
    ended: PlanEnd

    @property
    def away(self) -> str:
        """How far value and bound are apart: a share of the bound, or their distance where that is 0."""
        return f"{self.gap:.4g}" if self.bound == 0 else f"{100 * self.gap:.1f} %"


DAYS_A_MONTH = 365.25 / 12


def day_after(begin: datetime, months: float) -> str:
    """The day so many months later, of 365.25 / 12 days each."""
    return (begin + timedelta(days=months * DAYS_A_MONTH)).date().isoformat()


@dataclass(frozen=True, slots=True)
class RunwayPoint:
    """The cloud some `month` from now: how many instances of the mix came, and how it stands."""

    month: float
    added: int
    load_factor: float
    sums: PlanSums
    fits: bool


@dataclass(frozen=True, slots=True)
class SpareCapacity:
    """How many of a mix fit while every instance still finds a host when `hosts` of them fail together, or so many
    groups of hosts, one for each value of `label`.

    `fit` is the largest number with which every such failure was tried and survived, None = none was found, not even 0.
    `too_many` is the least that does not do, and `in_the_way` says why; what lies between both was not tried.
    """

    hosts: int
    label: str | None
    fit: int | None
    too_many: int
    in_the_way: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much more of a mix fits: `fit` as expected, `fit_lower` if every instance ends at the lower edge of its
    interval.

    `by_rule` is how many the sizes alone would let in. `first_refusal` says what is in the way of one more.
    `runway` is the cloud now and month by month, given the growth, as far as it was examined; `runs_out_month` is when
    the cloud is full: None = in none of these months. Whether it lasts beyond them is not known. `earliest_month` and
    `latest_month` are the same where the growth is as much more or less as is uncertain; None likewise, or where
    nothing is uncertain. Months are counted from `asked_at`. `spare` is what fits with a failover reserve.
    """

    fit: int
    fit_lower: int
    by_rule: int
    first_refusal: str
    runs_out_month: float | None = None
    runway: tuple[RunwayPoint, ...] = ()
    spare: SpareCapacity | None = None
    earliest_month: float | None = None
    latest_month: float | None = None
    asked_at: datetime | None = None

    @property
    def months_examined(self) -> int | None:
        """How many months were examined, the one in which the cloud is full among them; None = no growth was given."""
        return len(self.runway) - 1 if self.runway else None

    def instance_days(self, growth: Growth | None) -> float | None:
        """Days that newcomers run within the months looked ahead if no instance goes and none comes to a full cloud.

        None where there is no growth or the time ended before the months were examined.
        """
        examined = self.months_examined
        if growth is None or examined is None or (self.runs_out_month is None and examined < growth.months):
            return None
        served = [point.added for point in self.runway[1:] if point.fits]
        served += [served[-1] if served else 0] * (growth.months - len(served))
        return sum(served) * DAYS_A_MONTH

    @property
    def reserve(self) -> str:
        """What was found of the failover reserve, as a sentence; "" where none was asked for."""
        spare = self.spare
        if spare is None:
            return ""
        if spare.label is None:
            failing = "any host fails" if spare.hosts == 1 else f"any {spare.hosts} hosts fail together"
        elif spare.hosts == 1:
            failing = f"all hosts of one {spare.label} fail"
        else:
            failing = f"all hosts of any {spare.hosts} values of {spare.label} fail"
        if spare.fit is None and spare.too_many:
            return f"Whether the present instances have a host when {failing} is not known: {spare.in_the_way}."
        if spare.fit is None:
            return f"When {failing}, the search finds no hosts for the present instances: {spare.in_the_way}."
        more = "" if spare.fit + 1 >= spare.too_many else f" Numbers up to {spare.too_many - 1:,} were not settled."
        return f"{spare.fit:,} fit so that every instance has a host when {failing}; of more: {spare.in_the_way}.{more}"

    @property
    def outlook(self) -> str:
        """What was found of these months, as a sentence; "" where no growth was given."""
        months = self.months_examined
        if months is None:
            return ""
        if self.runs_out_month is not None:
            return f"With this growth the cloud is full in month {self.runs_out_month:g}.{self._on()}"
        if months == 0:
            return "No month was examined."
        if months == 1:
            return "1 month was examined; no shortage in it."
        return f"{months} months were examined; no shortage in those."

    def _on(self) -> str:
        """The day on which it is full, and between which days where growth is uncertain."""
        if self.asked_at is None or self.runs_out_month is None:
            return ""
        day = day_after(self.asked_at, self.runs_out_month)
        if self.earliest_month is None:
            return f" That is {day}."
        early = day_after(self.asked_at, self.earliest_month)
        if self.latest_month is None:
            return f" That is {day}; with more growth {early}, with less of it in none of the months examined."
        return f" That is {day}, between {early} and {day_after(self.asked_at, self.latest_month)}."


@dataclass(frozen=True, slots=True)
class Variant:
    """One of several clouds side by side: its name, how it stands, how much more fits where that was asked.

    Where growth was given: the month in which it is full, None = in none that was examined, and how many days of
    newcomers it serves in the months looked ahead.
    """

    name: str
    sums: PlanSums
    fit: int | None = None
    notes: tuple[str, ...] = ()
    runs_out_month: float | None = None
    instance_days: float | None = None


@dataclass(frozen=True, slots=True)
class ClassSizing:
    """What new numbers of vCPUs save and risk in one class of instances, called `name`.

    `instances` get another size: `vcpus` are theirs together now, `vcpus_then` with it. `short` is the part of the time
    (0-1) in which the one at most risk, `riskiest`, then wants more than it has, and `short_mean` the mean over them.
    `busiest` is the largest part of its vCPUs (0-1) that one of them then wants at busy times, by its p95.
    """

    name: str
    instances: int
    vcpus: int
    vcpus_then: int
    short: float
    short_mean: float
    riskiest: str
    busiest: float

    @property
    def saved(self) -> int:
        """vCPUs that are saved; below 0 where more are needed."""
        return self.vcpus - self.vcpus_then


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered steps, with what is predicted for every instance before and after, by host.

    `generation` is the inventory's that it was made for, None = a file: when the cloud has another one, the plan is
    stale. `sizing` is what new sizes save and risk by class, those that save most first (right_size). `undo` are the
    steps back, in their order. `duration_s` is how long all stages take one after the other, None where nothing is
    copied or that is not known of every move.
    """

    id: str
    created_at: datetime
    model_version: str
    model_origin: str
    steps: tuple[PlanStep, ...]
    before: Mapping[str, tuple[Effect, ...]]
    after: Mapping[str, tuple[Effect, ...]]
    request: PlanRequest = field(default_factory=PlanRequest)
    generation: int | None = None
    sums_before: PlanSums | None = None
    sums_after: PlanSums | None = None
    search: Search | None = None
    capacity: Capacity | None = None
    variants: tuple[Variant, ...] = ()
    sizing: tuple[ClassSizing, ...] = ()
    undo: tuple[PlanStep, ...] = ()
    duration_s: Band | None = None
    degraded: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A plan in a listing: what was asked, when, and for which generation of the inventory (None = not known)."""

    id: str
    created_at: datetime
    kind: PlanKind
    model_version: str
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class PlanAge:
    """How a stored plan stands to the inventory of now: `stale` when that was written since, None = not known.

    `hosts` and `instances` are those that were put or deleted since, None = it is no longer known which.
    """

    stale: bool | None
    generation: int
    hosts: tuple[str, ...] | None = None
    instances: tuple[str, ...] | None = None
