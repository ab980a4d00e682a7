"""Plans: the answer to what should become of a whole cloud, and stored answers read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, computed_field

from advisor.domain import codec
from advisor.domain.answers import Command, Recommendation, Rejection
from advisor.domain.cpu_maps import Settings
from advisor.domain.effects import DEGRADED, Band, Effect, ModelOrigin, ModelVersion, SceneEffects
from advisor.domain.plan_questions import Growth, PlacementRequest, PlanKind, PlanRequest
from models.figures import Figure, Hundredths, Known, Score, Tenths


@dataclass(frozen=True, slots=True)
class Usage:
    """What was measured of an instance lately: the CPUs that 95 % of its `windows` stayed under, and 99 % of them, the
    most memory that it held resident, and the most that was swapped out; None = the host does not show it."""

    cpus: float
    windows: int
    p99: float | None = None
    memory_mb: float | None = None
    swapped_mb: float | None = None


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
    """One step of a plan; at no moment is an instance below a limit that was not before."""

    instance: Annotated[
        str, Field(description="the instance; empty = the step is about the host's driver domain (tune)")
    ]
    host: Annotated[
        str | None,
        Field(description="where it goes; null = no host can take it (see `rejected`), or it is taken away (undo)"),
    ]
    rejected: Annotated[tuple[Rejection, ...], Field(description="hosts that cannot take it")] = ()
    action: Annotated[PlanAction, Field(description="remove is in an undo only, driver_domain in a tuning only")] = (
        "place"
    )
    source: Annotated[str | None, Field(description="where it is before")] = None
    stage: Annotated[int, Field(description="steps of one stage may run together, the next begins when it is done")] = 0
    why: Annotated[str, Field(description="the reason as a sentence")] = ""
    gain: Annotated[
        Band | None,
        Field(
            description="by how much a move of a rebalance reduces the loss: in speed and time for the most affected "
            "instance, and 0.3 of that of all others, less what the move costs; of a new size, what the most affected "
            "gains (relative throughput)"
        ),
    ] = None
    score: Annotated[
        Score | None, Field(description="of that host at that step; null where no instance was placed")
    ] = None
    new_vm: Annotated[
        Effect | None,
        Field(
            description="the predicted effect on it there at that step; null where no instance was placed",
            validation_alias=AliasChoices("new_vm", "newcomer"),
        ),
    ] = None
    neighbours: Annotated[tuple[Effect, ...], Field(exclude=True)] = ()  # of a placed one; `Plan.after` has them
    settings: Annotated[Settings | None, Field(description="what it runs under after the step; null = as before")] = (
        None
    )
    changes: Annotated[Mapping[str, Settings], Field(description="settings that neighbours get, by instance")] = field(
        default_factory=dict
    )
    vcpus: Annotated[int | None, Field(description="its new size, where the step changes that")] = None
    duration_s: Annotated[
        Band | None,
        Field(
            description="seconds that its memory takes over the network beside the other moves of its stage; null "
            "where that is not known, or nothing is copied"
        ),
    ] = None
    commands: Annotated[tuple[Command, ...], Field(description="empty where none are needed or asked for")] = ()
    notes: Annotated[tuple[str, ...], Field(description="what else to know")] = ()
    effects: Annotated[
        tuple[Effect, ...],
        Field(description="effects that the step changes by 0.01 or more, with the value before it (tune)"),
    ] = ()
    driver_cpus: Annotated[tuple[int, ...], Field(description="pCPUs of the driver domain after the step (tune)")] = ()
    driver_weight: Annotated[
        int | None, Field(description="its scheduler weight after the step, where the step changes that (tune)")
    ] = None

    @property
    def subject(self) -> str:
        """What the step is about, for people."""
        return self.instance or "driver domain"


@dataclass(frozen=True, slots=True)
class PlanSums:
    """A cloud in figures."""

    hosts: Annotated[int, Field(description="number of hosts")]
    hosts_used: Annotated[int, Field(description="hosts with at least one instance")]
    instances: Annotated[int, Field(description="number of instances")]
    below: Annotated[int, Field(description="instances under their limit, or under keep_ratio where they have none")]
    worst: Annotated[Score, Field(description="the lowest expected T/B; 1 without instances")]
    mean: Annotated[Score, Field(description="mean expected T/B; 1 without instances")]
    total: Annotated[Score, Field(description="sum of the expected T/B")]
    watts: Annotated[
        Tenths | None,
        Field(description="what hosts in use draw (W), by their labels; null where one does not say"),
    ] = None
    price: Annotated[
        Hundredths | None,
        Field(description="what all hosts cost a month, by their label; null where one does not say"),
    ] = None
    score: Annotated[
        Tenths | None, Field(description="mean predicted score of VMs, 0-100; null where there is no VM")
    ] = None
    score_lowest: Annotated[
        Tenths | None, Field(description="the lowest predicted score; null where there is no VM")
    ] = None
    scores: Annotated[
        tuple[int, ...], Field(description="VMs by score: 0-20, 20-40, 40-60, 60-80 and 80-100; empty without VMs")
    ] = ()


PlanEnd = Literal["optimal", "time", "search", "already fine", "in the way", "not now"]


@dataclass(frozen=True, slots=True)
class Search:
    """How a plan was found."""

    aim: Annotated[str, Field(description="what was searched for")]
    value: Annotated[Score, Field(description="what the plan reaches, in the unit of the aim")]
    bound: Annotated[Score, Field(description="what no plan can surpass, in the same unit")]
    gap: Annotated[
        Figure,
        Field(
            description="how far value and bound are apart, as a share of the bound (0 = nothing better exists), or of "
            "1 where the bound is 0"
        ),
    ]
    ended: Annotated[
        PlanEnd,
        Field(
            description="optimal: proven; time: the limit was reached; search: the local search found nothing better; "
            "already fine: nothing is to be done; in the way: not everything that was asked for can be; not now: moves "
            "would pay, but of instances or hosts that rest after a move (the notes say what hinders, and until when)"
        ),
    ]

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
    """The cloud some months from now."""

    month: Annotated[float, Field(description="months from now")]
    added: Annotated[int, Field(description="instances added by then")]
    load_factor: Annotated[Known, Field(description="load over the load of now")]
    sums: Annotated[PlanSums, Field(description="the cloud then")]
    fits: Annotated[bool, Field(description="every instance has a host and is within its limit")]


@dataclass(frozen=True, slots=True)
class SpareCapacity:
    """How much more fits with a failover reserve."""

    hosts: Annotated[int, Field(description="so many hosts, or values of the label, fail together")]
    label: Annotated[
        str | None, Field(description="the label whose hosts fail together; null = each host is one of its own")
    ]
    fit: Annotated[
        int | None,
        Field(description="instances of the mix with which every failure was tried and survived; null = not even 0"),
    ]
    too_many: Annotated[
        int, Field(description="the least number that does not do; what lies between both was not tried")
    ]
    in_the_way: Annotated[str, Field(description="what happens then")]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much more of the mix fits."""

    fit: Annotated[int, Field(description="instances of the mix, as expected")]
    fit_lower: Annotated[
        int | None,
        Field(description="the same if every instance ends at the worse edge of its interval; null = not proven"),
    ]
    by_rule: Annotated[int, Field(description="what sizes alone would let in, by first fit")]
    first_refusal: Annotated[str, Field(description="what is in the way of one more")]
    runs_out_month: Annotated[
        float | None, Field(description="the first month whose demand does not fit; null = none of those examined")
    ] = None
    runway: Annotated[
        tuple[RunwayPoint, ...], Field(description="the cloud now and month by month, as far as it was examined")
    ] = ()
    spare: Annotated[SpareCapacity | None, Field(description="with the failover reserve that was asked for")] = None
    earliest_month: Annotated[
        float | None,
        Field(
            description="`runs_out_month` with as much more growth as is uncertain; null = none of those examined, or "
            "nothing is uncertain"
        ),
    ] = None
    latest_month: Annotated[
        float | None,
        Field(description="the same with as much less of it; null = none of those examined, or nothing is uncertain"),
    ] = None
    asked_at: Annotated[datetime | None, Field(description="months are counted from it; null = not known")] = None

    @computed_field(description="how many months were examined; null = no growth was given")  # type: ignore[prop-decorator]
    @property
    def months_examined(self) -> int | None:
        """How many months were examined, the one in which the cloud is full among them; None = no growth was given."""
        return len(self.runway) - 1 if self.runway else None

    def instance_days(self, growth: Growth | None) -> float | None:
        """Days that new VMs run within the months looked ahead if no instance goes and none comes to a full cloud.

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
        if spare.fit + 1 < spare.too_many:
            return (
                f"How many fit so that every instance has a host when {failing} is not proven: {spare.fit:,} do, and "
                f"fewer than {spare.too_many:,}; of those between, {spare.in_the_way}."
            )
        return f"{spare.fit:,} fit so that every instance has a host when {failing}; of more: {spare.in_the_way}."

    @computed_field(  # type: ignore[prop-decorator]
        description="what was found of these months; empty = no growth was given"
    )
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
    """One of several clouds side by side."""

    name: Annotated[str, Field(description="which cloud")]
    sums: Annotated[PlanSums, Field(description="its figures")]
    fit: Annotated[int | None, Field(description="how many more instances of the mix fit; null = not asked")] = None
    notes: Annotated[tuple[str, ...], Field(description="what else to know")] = ()
    runs_out_month: Annotated[
        float | None, Field(description="the first month whose demand does not fit; null = none of those examined")
    ] = None
    instance_days: Annotated[
        Tenths | None,
        Field(description="days that new VMs run within the months looked ahead; null = not known"),
    ] = None


@dataclass(frozen=True, slots=True)
class ClassSizing:
    """What new numbers of vCPUs save and risk in one class of instances."""

    name: Annotated[
        str, Field(description="the class: the label `class`, else the name without its number, else the workload")
    ]
    instances: Annotated[int, Field(description="instances that get another size")]
    vcpus: Annotated[int, Field(description="vCPUs that they have together")]
    vcpus_then: Annotated[int, Field(description="vCPUs with the new sizes")]
    short: Annotated[
        Figure, Field(description="part of the time in which the demand of `riskiest` then exceeds its vCPUs, 0-1")
    ]
    short_mean: Annotated[Figure, Field(description="the same in the mean over them")]
    riskiest: Annotated[str, Field(description="the instance at most risk")]
    busiest: Annotated[
        Figure, Field(description="largest demand of one at busy times (p95), as a part of its vCPUs, 0-1")
    ]

    @property
    def saved(self) -> int:
        """vCPUs that are saved; below 0 where more are needed."""
        return self.vcpus - self.vcpus_then


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered steps, with the predicted effect on each host's instances before and after."""

    id: Annotated[str, Field(description="the plan's id")]
    created_at: Annotated[datetime, Field(description="when it was made")]
    model_version: ModelVersion
    model_origin: ModelOrigin
    steps: Annotated[tuple[PlanStep, ...], Field(description="the steps by stage")]
    before: Annotated[
        Mapping[str, tuple[Effect, ...]],
        Field(
            description="the effect on every instance before, by host; of a cloud that was planned in groups, of the "
            "hosts that the steps change"
        ),
    ]
    after: Annotated[
        Mapping[str, tuple[Effect, ...]], Field(description="the effect on every instance after, by these hosts")
    ]
    request: Annotated[PlanRequest, Field(exclude=True)] = field(default_factory=PlanRequest)
    generation: Annotated[int | None, Field(description="of the inventory that it was made for; null = a file")] = None
    sums_before: Annotated[PlanSums | None, Field(description="the cloud before")] = None
    sums_after: Annotated[PlanSums | None, Field(description="the cloud after")] = None
    search: Annotated[Search | None, Field(description="how it was found; null = nothing was searched for")] = None
    capacity: Annotated[Capacity | None, Field(description="how many more fit")] = None
    variants: Annotated[tuple[Variant, ...], Field(description="clouds side by side")] = ()
    sizing: Annotated[
        tuple[ClassSizing, ...],
        Field(description="what new sizes save and risk by class, the largest saving first (right_size)"),
    ] = ()
    undo: Annotated[tuple[PlanStep, ...], Field(description="the steps back, in their order")] = ()
    duration_s: Annotated[
        Band | None,
        Field(
            description="seconds of all stages one after the other; null where that of a move is not known, or nothing "
            "is copied"
        ),
    ] = None
    degraded: Annotated[bool, Field(description=DEGRADED)] = False
    notes: Annotated[tuple[str, ...], Field(description="what else to know")] = ()

    @computed_field(description="which question it answers")  # type: ignore[prop-decorator]
    @property
    def kind(self) -> PlanKind:
        """Which question it answers."""
        return self.request.kind


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A plan in a listing."""

    id: Annotated[str, Field(description="the plan's id")]
    created_at: Annotated[datetime, Field(description="when it was made")]
    kind: Annotated[PlanKind, Field(description="which question it answers")]
    model_version: Annotated[str, Field(description="which model predicted")]
    generation: Annotated[int | None, Field(description="of the inventory that it was made for; null = not known")] = (
        None
    )


@dataclass(frozen=True, slots=True)
class PlanAge:
    """A stored plan beside the inventory of now."""

    stale: Annotated[bool | None, Field(description="the inventory was written since; null = not known")]
    generation: Annotated[int, Field(description="of the inventory now")]
    hosts: Annotated[
        tuple[str, ...] | None, Field(description="put or deleted since; null = it is no longer known which")
    ] = None
    instances: Annotated[
        tuple[str, ...] | None, Field(description="put or deleted since; null = it is no longer known which")
    ] = None


# Answers from JSON: what a service answered, of this version or an earlier one, as it was decided there.

Json = Mapping[str, Any]


def recommendation_from_json(sent: Json, request: PlacementRequest) -> Recommendation:
    """The answer to `request` from the JSON of `POST /v1/placements`; fields that are not known are let pass.

    What became null because it was not finite is infinite again; what is not sent has its default. KeyError, TypeError,
    ValueError or AttributeError where it is no such answer.
    """
    name, present = request.instance.id, sent.get("present")
    candidates = {
        "candidates": [_candidate(one, name) for one in sent["candidates"]],
        "tuned": [_candidate(one, name) for one in sent.get("tuned", ())],
        "present": None if present is None else _candidate(present, name),
    }
    return codec.decode(Recommendation, {**sent, **candidates, "request": request})


def scene_effects_from_json(sent: Json) -> SceneEffects:
    """The answer to a Scene from the JSON of `POST /v1/predictions`; errors as of `recommendation_from_json`."""
    return codec.decode(SceneEffects, sent)


def plan_from_json(sent: Json, request: PlanRequest) -> Plan:
    """A plan that answers `request`, from the JSON of `POST /v1/plans`; errors as of `recommendation_from_json`."""
    steps = {name: [_step(one) for one in sent.get(name, ())] for name in ("steps", "undo")}
    return codec.decode(Plan, {**sent, **steps, "request": request})


def _candidate(sent: Json, name: str) -> Json:
    """With the pinning among its settings, and the new VM's name, which earlier versions did not send."""
    effect = "new_vm" if "new_vm" in sent else "newcomer"
    settings = {part: sent.get(part) for part in ("isolation", "pinning")}
    return {**sent, "isolation": settings, effect: {"instance": name, **sent[effect]}}


def _step(sent: Json) -> Json:
    """With its settings in one, which earlier versions sent apart."""
    if "settings" in sent or sent.get("isolation") is None:
        return sent
    return {**sent, "settings": {part: sent.get(part) for part in ("isolation", "pinning")}}
