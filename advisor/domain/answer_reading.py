"""Answers from JSON: what a service answered, of this version or an earlier one, as it was decided there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.domain import codec
from advisor.domain.answers import Recommendation
from advisor.domain.effects import SceneEffects
from advisor.domain.plan_questions import PlanRequest
from advisor.domain.plans import Plan
from advisor.domain.questions import PlacementRequest

Json = Mapping[str, Any]


def recommendation_from_json(told: Json, request: PlacementRequest) -> Recommendation:
    """The answer to `request` from the JSON of `POST /v1/placements`; fields that are not known are let pass.

    What became null because it was not finite is infinite again; what is not sent has its default. KeyError, TypeError,
    ValueError or AttributeError where it is no such answer.
    """
    name, present = request.instance.id, told.get("present")
    candidates = {
        "candidates": [_candidate(one, name) for one in told["candidates"]],
        "tuned": [_candidate(one, name) for one in told.get("tuned", ())],
        "present": None if present is None else _candidate(present, name),
    }
    return codec.decode(Recommendation, {**told, **candidates, "request": request})


def scene_effects_from_json(told: Json) -> SceneEffects:
    """The answer to a Scene from the JSON of `POST /v1/predictions`; errors as of `recommendation_from_json`."""
    return codec.decode(SceneEffects, told)


def plan_from_json(told: Json, request: PlanRequest) -> Plan:
    """A plan that answers `request`, from the JSON of `POST /v1/plans`; errors as of `recommendation_from_json`."""
    steps = {name: [_step(one) for one in told.get(name, ())] for name in ("steps", "undo")}
    return codec.decode(Plan, {**told, **steps, "request": request})


def _candidate(told: Json, name: str) -> Json:
    """With the pinning among its settings, and the new VM's name, which earlier versions did not send."""
    effect = "new_vm" if "new_vm" in told else "newcomer"
    settings = {part: told.get(part) for part in ("isolation", "pinning")}
    return {**told, "isolation": settings, effect: {"instance": name, **told[effect]}}


def _step(told: Json) -> Json:
    """With its settings in one, which earlier versions sent apart."""
    if "settings" in told or told.get("isolation") is None:
        return told
    return {**told, "settings": {part: told.get(part) for part in ("isolation", "pinning")}}
