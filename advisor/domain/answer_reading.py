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
