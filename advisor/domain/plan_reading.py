"""Plans from the JSON of the public contract: what a service answered, as it was planned there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from advisor.domain.answer_reading import (
    Json,
    band_from_json,
    commands_from_json,
    effect_from_json,
    number_from_json,
    settings_from_json,
)
from advisor.domain.answers import Band, Candidate, Effect, Rejection
from advisor.domain.plans import (
    Capacity,
    ClassSizing,
    Plan,
    PlanRequest,
    PlanStep,
    PlanSums,
    RunwayPoint,
    Search,
    SpareCapacity,
    Variant,
)


def plan_from_json(told: Json, request: PlanRequest) -> Plan:
    """A plan that answers `request`, from the JSON of `POST /v1/plans`; fields that are not known are let pass.

    KeyError, TypeError, ValueError or AttributeError where it is no such answer.
    """
    capacity, search = told.get("capacity"), told["search"]
    return Plan(
        id=str(told["id"]),
        created_at=datetime.fromisoformat(told["created_at"]),
        model_version=told["model"]["version"],
        model_origin=told["model"]["origin"],
        steps=_steps(told["steps"]),
        before={host: _effects(there) for host, there in told["before"].items()},
        after={host: _effects(there) for host, there in told["after"].items()},
        request=request,
        generation=told["generation"],
        sums_before=_sums(told["sums_before"]),
        sums_after=_sums(told["sums_after"]),
        search=None if search is None else _search(search),
        capacity=None if capacity is None else _capacity(capacity, datetime.fromisoformat(told["created_at"])),
        variants=tuple(
            Variant(
                one["name"],
                _known_sums(one["sums"]),
                one["fit"],
                tuple(one["notes"]),
                one.get("runs_out_month"),
                one.get("instance_days"),
            )
            for one in told.get("variants", ())
        ),
        sizing=tuple(ClassSizing(**{name: one[name] for name in _SIZING}) for one in told.get("sizing", ())),
        undo=_steps(told.get("undo", ())),
        duration_s=_band(told.get("duration_s")),
        degraded=bool(told["degraded"]),
        notes=tuple(told["notes"]),
    )


_SIZING = ("name", "instances", "vcpus", "vcpus_then", "short", "short_mean", "riskiest", "busiest")
_SPARE = ("hosts", "label", "fit", "too_many", "in_the_way")


def _steps(told: Sequence[Json]) -> tuple[PlanStep, ...]:
    return tuple(_step(one) for one in told)


def _step(told: Json) -> PlanStep:
    newcomer = told.get("newcomer")
    settings = settings_from_json(told) if told.get("isolation") is not None else None
    changes = {name: settings_from_json(one) for name, one in told["changes"].items()}
    candidate = None
    if newcomer is not None and settings is not None:
        candidate = Candidate(
            rank=1,
            host=told["host"],
            score=number_from_json(told["score"]),
            combined_score=0.0,
            pinning=settings.pinning,
            isolation=settings,
            newcomer=effect_from_json(newcomer, told["instance"]),
            neighbours=(),
            tied_with=tuple(told["tied_with"]),
        )
    return PlanStep(
        instance=told["instance"],
        host=told["host"],
        candidate=candidate,
        rejected=tuple(Rejection(one["host"], one["code"], one["reason"]) for one in told["rejected"]),
        action=told["action"],
        source=told["source"],
        stage=int(told["stage"]),
        why=told["why"],
        gain=_band(told.get("gain")),
        settings=settings,
        changes=changes,
        vcpus=told.get("vcpus"),
        duration_s=_band(told.get("duration_s")),
        commands=commands_from_json(told.get("commands", ())),
        notes=tuple(told["notes"]),
    )


def _band(told: Json | None) -> Band | None:
    return None if told is None else band_from_json(told)


def _effects(told: Sequence[Json]) -> tuple[Effect, ...]:
    return tuple(effect_from_json(one, one["instance"]) for one in told)


def _sums(told: Json | None) -> PlanSums | None:
    return None if told is None else _known_sums(told)


def _known_sums(told: Json) -> PlanSums:
    worst, mean, total = (number_from_json(told[name]) for name in ("worst", "mean", "total"))
    costs = (told.get("watts"), told.get("price"))
    return PlanSums(told["hosts"], told["hosts_used"], told["instances"], told["below"], worst, mean, total, *costs)


def _search(told: Json) -> Search:
    value, bound, gap = (number_from_json(told[name]) for name in ("value", "bound", "gap"))
    return Search(told["aim"], value, bound, gap, told["ended"])


def _capacity(told: Json, asked_at: datetime) -> Capacity:
    spare = told.get("spare")
    return Capacity(
        fit=told["fit"],
        fit_lower=told["fit_lower"],
        by_rule=told["by_rule"],
        first_refusal=told["first_refusal"],
        runs_out_month=told["runs_out_month"],
        runway=tuple(
            RunwayPoint(one["month"], one["added"], one["load_factor"], _known_sums(one["sums"]), bool(one["fits"]))
            for one in told["runway"]
        ),
        spare=None if spare is None else SpareCapacity(**{name: spare[name] for name in _SPARE}),
        earliest_month=told.get("earliest_month"),
        latest_month=told.get("latest_month"),
        asked_at=asked_at,
    )
