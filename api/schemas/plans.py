"""Schemas of plans: ordered steps with the predicted effects before and after, figures, and how old it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import Field, model_validator

from advisor.domain import Capacity, Effect, Plan, PlanAction, PlanAge, PlanEnd, PlanEntry, PlanKind, PlanStep, PlanSums
from api.schemas.base import AnswerBody, Figure, Hundredths, Known, Score, Tenths, Time
from api.schemas.effects import BandOut, EffectOut, ModelRef
from api.schemas.placements import CommandOut, RejectionOut
from api.schemas.plan_questions import PlanBody
from api.schemas.settings import Isolation, SettingsOut, pinning_map

__all__ = ["PlanAnswer", "PlanBody", "PlanItem", "PlanStepOut"]


class SecondsOut(AnswerBody):
    """A time in seconds, and between which ends it lies."""

    expected: Tenths = Field(description="seconds that are expected")
    lower: Tenths = Field(description="seconds that it takes at least")
    upper: Tenths = Field(description="seconds that it takes at most")


class PlanStepOut(AnswerBody):
    """One step; `host` null = no host could take it, for the reasons in `rejected`, or it is taken away (undo)."""

    instance: str = Field(description="the instance; empty = the step is about the host's driver domain (tune)")
    host: str | None = Field(description="where it goes")
    action: PlanAction = Field(default="place", description="remove is in an undo only, driver_domain in a tuning only")
    source: str | None = Field(default=None, description="where it is before")
    stage: int = Field(default=0, description="steps of one stage may run together, the next begins when it is done")
    why: str = Field(default="", description="the reason as a sentence")
    gain: BandOut | None = Field(
        default=None,
        description="by how much a move of a rebalance reduces the loss: in speed and time for the most affected "
        "instance, and 0.3 of that of all others; of a new size, what the most affected gains (relative throughput)",
    )
    score: Score = Field(default=None, description="of that host at that step; absent where no instance was placed")
    tied_with: list[str] = Field(default=[], description="hosts that are as good for all that is known")
    newcomer: EffectOut | None = Field(
        default=None, description="the predicted effect on it there at that step; absent where no instance was placed"
    )
    pinning: dict[str, list[int]] | None = Field(default=None, description="its pinning there; null = none")
    isolation: Isolation | None = Field(default=None, description="its settings there")
    changes: dict[str, SettingsOut] = Field(default={}, description="settings that neighbours get, by instance")
    vcpus: int | None = Field(default=None, description="its new size, where the step changes that")
    duration_s: SecondsOut | None = Field(
        default=None, description="how long its memory takes over the network; absent where that is not known"
    )
    rejected: list[RejectionOut] = Field(description="hosts that cannot take it")
    commands: list[CommandOut] = Field(default=[], description="where they were asked for")
    notes: list[str] = Field(default=[], description="what else to know")
    effects: list[EffectOut] = Field(
        default=[], description="effects that the step changes by 0.01 or more, with the value before it (tune)"
    )
    driver_cpus: list[int] = Field(default=[], description="pCPUs of the driver domain after the step (tune)")
    driver_weight: int | None = Field(
        default=None, description="its scheduler weight after the step, where the step changes that (tune)"
    )

    @classmethod
    def of(cls, step: PlanStep) -> PlanStepOut:
        """From the domain; the effect on each instance stands in the plan's `after`."""
        candidate = step.candidate
        settings = candidate.isolation if candidate is not None else step.settings
        changes = {**(candidate.changes if candidate is not None else {}), **step.changes}
        optional: dict[str, Any] = {}
        if candidate is not None:
            optional = {
                "score": candidate.score,
                "tied_with": list(candidate.tied_with),
                "newcomer": EffectOut.of(candidate.newcomer),
            }
        if settings is not None:
            optional |= {"pinning": pinning_map(settings.pinning), "isolation": Isolation.of(settings)}
        if step.vcpus is not None:
            optional["vcpus"] = step.vcpus
        if step.gain is not None:
            optional["gain"] = BandOut.like(step.gain)
        if step.duration_s is not None:
            optional["duration_s"] = SecondsOut.like(step.duration_s)
        if step.effects:
            optional["effects"] = [EffectOut.of(effect) for effect in step.effects]
        if step.driver_cpus:
            optional["driver_cpus"] = list(step.driver_cpus)
        if step.driver_weight is not None:
            optional["driver_weight"] = step.driver_weight
        if step.commands:
            optional["commands"] = [CommandOut.like(command) for command in step.commands]
        return cls(
            instance=step.instance,
            host=step.host,
            action=step.action,
            source=step.source,
            stage=step.stage,
            why=step.why,
            changes={name: SettingsOut.of(changed) for name, changed in changes.items()},
            rejected=[RejectionOut(host=host.host, code=host.code, reason=host.reason) for host in step.rejected],
            notes=list(step.notes),
            **optional,
        )


class SumsOut(AnswerBody):
    """A cloud in figures."""

    hosts: int = Field(description="number of hosts")
    hosts_used: int = Field(description="hosts with at least one instance")
    instances: int = Field(description="number of instances")
    below: int = Field(description="instances under their limit, or under keep_ratio where they have none")
    worst: Score = Field(description="the lowest expected T/B")
    mean: Score = Field(description="mean expected T/B")
    total: Score = Field(description="sum of the expected T/B")
    score: Tenths = Field(default=None, description="mean predicted score of VMs, 0-100; absent where there is no VM")
    score_lowest: Tenths = Field(default=None, description="the lowest predicted score; absent where there is no VM")
    scores: list[int] = Field(default=[], description="VMs by score: 0-20, 20-40, 40-60, 60-80 and 80-100")
    watts: Tenths = Field(
        default=None, description="what hosts in use draw (W), by their labels; absent where one does not say"
    )
    price: Hundredths = Field(
        default=None, description="what all hosts cost a month, by their label; absent where one does not say"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_what_no_host_says(cls, sums: object) -> object:
        if not isinstance(sums, PlanSums):
            return sums
        return {name: value for name, value in asdict(sums).items() if value is not None}


class SearchOut(AnswerBody):
    """How the plan was found."""

    aim: str = Field(description="what was searched for")
    value: Score = Field(description="what the plan reaches, in the unit of the aim")
    bound: Score = Field(description="what no plan can surpass, in the same unit")
    gap: Figure = Field(description="how far value and bound are apart, as a share of the bound")
    ended: PlanEnd = Field(description="why the search ended, see docs/planning.md")


class RunwayOut(AnswerBody):
    """The cloud some months from now."""

    month: float = Field(description="months from now")
    added: int = Field(description="instances added by then")
    load_factor: Known = Field(description="load over the load of now")
    sums: SumsOut = Field(description="the cloud then")
    fits: bool = Field(description="every instance has a host and is within its limit")


class SpareOut(AnswerBody):
    """How much more fits with a failover reserve."""

    hosts: int = Field(description="so many hosts, or values of the label, fail together")
    label: str | None = Field(description="the label whose hosts fail together; null = each host is one of its own")
    fit: int | None = Field(description="instances of the mix with which every failure is survived; null = not even 0")
    too_many: int = Field(description="the least number that does not do; what lies between both was not tried")
    in_the_way: str = Field(description="what happens then")


class CapacityOut(AnswerBody):
    """How much more of the mix fits."""

    fit: int = Field(description="instances of the mix, as expected")
    fit_lower: int = Field(description="the same if every instance ends at the worse edge of its interval")
    by_rule: int = Field(description="what sizes alone would let in, by first fit")
    first_refusal: str = Field(description="what is in the way of one more")
    runs_out_month: float | None = Field(
        description="the first month whose demand does not fit; null = none of those examined"
    )
    earliest_month: float | None = Field(
        default=None, description="the same with as much more growth as is uncertain; absent where nothing is"
    )
    latest_month: float | None = Field(
        default=None, description="with as much less of it; null = none of those examined, absent where nothing is"
    )
    months_examined: int | None = Field(description="how many months were examined; null = no growth was given")
    outlook: str = Field(description="what was found of these months; empty = no growth was given")
    runway: list[RunwayOut] = Field(description="the cloud month by month")
    spare: SpareOut | None = Field(default=None, description="with the failover reserve that was asked for")

    @classmethod
    def of(cls, capacity: Capacity) -> CapacityOut:
        """From the domain."""
        optional = {"runway", "spare", "earliest_month", "latest_month"}
        same: dict[str, Any] = {name: getattr(capacity, name) for name in cls.model_fields if name not in optional}
        if capacity.spare is not None:
            same["spare"] = SpareOut.like(capacity.spare)
        if capacity.earliest_month is not None or capacity.latest_month is not None:
            same |= {"earliest_month": capacity.earliest_month, "latest_month": capacity.latest_month}
        return cls(**same, runway=[RunwayOut.like(point) for point in capacity.runway])


class VariantOut(AnswerBody):
    """One of several clouds side by side."""

    name: str = Field(description="which cloud")
    sums: SumsOut = Field(description="its figures")
    fit: int | None = Field(default=None, description="how many more instances of the mix fit")
    runs_out_month: float | None = Field(
        default=None, description="the first month whose demand does not fit; null = none of those examined"
    )
    instance_days: Tenths = Field(
        default=None, description="days that new VMs run within the months looked ahead; null = not known"
    )
    notes: list[str] = Field(default=[], description="what else to know")


class ClassSizingOut(AnswerBody):
    """What new numbers of vCPUs save and risk in one class of instances."""

    name: str = Field(description="the class: the label `class`, else the name without its number, else the workload")
    instances: int = Field(description="instances that get another size")
    vcpus: int = Field(description="vCPUs that they have together")
    vcpus_then: int = Field(description="vCPUs with the new sizes")
    short: Figure = Field(description="part of the time in which the demand of `riskiest` then exceeds its vCPUs, 0-1")
    short_mean: Figure = Field(description="the same in the mean over them")
    riskiest: str = Field(description="the instance at most risk")
    busiest: Figure = Field(description="largest demand of one at busy times (p95), as a part of its vCPUs, 0-1")


class AgeOut(AnswerBody):
    """The plan beside the inventory of now."""

    stale: bool | None = Field(description="the inventory was written since; null = not known")
    generation: int = Field(description="of the inventory now")
    hosts: list[str] | None = Field(description="put or deleted since; null = it is no longer known which")
    instances: list[str] | None = Field(description="put or deleted since; null = it is no longer known which")


class PlanAnswer(AnswerBody):
    """A plan, with the predicted effect on each host's instances before and after."""

    id: str = Field(description="the plan's id")
    created_at: Time = Field(description="when it was made")
    kind: PlanKind = Field(description="which question it answers")
    model: ModelRef = Field(description="which model predicted")
    degraded: bool = Field(description="the learned model failed and the analytic model answered")
    generation: int | None = Field(description="of the inventory that it was made for; null = a file")
    stale: bool | None = Field(default=None, description="the inventory was written since; in answers of the service")
    age: AgeOut | None = Field(default=None, description="the same with what was written since")
    question: PlanBody = Field(description="the question as it was understood")
    notes: list[str] = Field(description="what else to know")
    search: SearchOut | None = Field(description="how it was found; null = nothing was searched for")
    sums_before: SumsOut | None = Field(description="the cloud before")
    sums_after: SumsOut | None = Field(description="the cloud after")
    capacity: CapacityOut | None = Field(default=None, description="how many more fit")
    variants: list[VariantOut] = Field(default=[], description="clouds side by side")
    sizing: list[ClassSizingOut] = Field(default=[], description="what new sizes save and risk (right_size)")
    steps: list[PlanStepOut] = Field(description="the steps by stage")
    undo: list[PlanStepOut] = Field(default=[], description="the steps back, in their order")
    duration_s: SecondsOut | None = Field(
        default=None, description="all stages one after the other; absent where that of a move is not known"
    )
    before: dict[str, list[EffectOut]] = Field(description="the effect on every instance before, by host")
    after: dict[str, list[EffectOut]] = Field(description="the effect on every instance after, by host")

    @classmethod
    def of(cls, plan: Plan, age: PlanAge | None = None) -> PlanAnswer:
        """From the domain; `age` where the plan is beside an inventory."""
        optional: dict[str, Any] = {}
        if age is not None:
            optional = {"stale": age.stale, "age": AgeOut.like(age)}
        if plan.duration_s is not None:
            optional["duration_s"] = SecondsOut.like(plan.duration_s)
        if plan.capacity is not None:
            optional["capacity"] = CapacityOut.of(plan.capacity)
        if plan.variants:
            optional["variants"] = [VariantOut.like(variant) for variant in plan.variants]
        if plan.sizing:
            optional["sizing"] = [ClassSizingOut.like(row) for row in plan.sizing]
        return cls(
            id=plan.id,
            created_at=plan.created_at,
            kind=plan.request.kind,
            model=ModelRef(version=plan.model_version, origin=plan.model_origin),
            degraded=plan.degraded,
            generation=plan.generation,
            question=PlanBody.of(plan.request),
            notes=list(plan.notes),
            search=None if plan.search is None else SearchOut.like(plan.search),
            sums_before=None if plan.sums_before is None else SumsOut.like(plan.sums_before),
            sums_after=None if plan.sums_after is None else SumsOut.like(plan.sums_after),
            steps=[PlanStepOut.of(step) for step in plan.steps],
            undo=[PlanStepOut.of(step) for step in plan.undo],
            before=_by_host(plan.before),
            after=_by_host(plan.after),
            **optional,
        )


class PlanItem(AnswerBody):
    """A plan in a listing."""

    id: str = Field(description="the plan's id")
    created_at: Time = Field(description="when it was made")
    kind: PlanKind = Field(description="which question it answers")
    model_version: str = Field(description="which model predicted")
    generation: int | None = Field(description="of the inventory that it was made for; null = not known")
    stale: bool | None = Field(description="the inventory was written since; null = not known")

    @classmethod
    def of(cls, entry: PlanEntry, generation: int) -> PlanItem:
        """From the domain; `generation` is the inventory's of now."""
        same = {name: getattr(entry, name) for name in cls.model_fields if name != "stale"}
        return cls(**same, stale=None if entry.generation is None else entry.generation != generation)


def _by_host(effects: Mapping[str, tuple[Effect, ...]]) -> dict[str, list[EffectOut]]:
    return {host: [EffectOut.of(effect) for effect in on_host] for host, on_host in effects.items()}
