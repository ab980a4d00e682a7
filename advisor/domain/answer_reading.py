"""Answers from the JSON of the public contract: what a service answered, as it was decided there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from advisor.domain import codec
from advisor.domain.answers import Recommendation, SceneEffects
from advisor.domain.plan_questions import PlanRequest
from advisor.domain.plans import Plan
from advisor.domain.questions import PlacementRequest

Json = Mapping[str, Any]
# Null is said of what is not finite where the domain has a number in any case; elsewhere it is None there, too.
_NUMBERS = {"expected", "lower", "upper", "score", "combined_score", "share", "worst", "mean", "total"}
_NUMBERS |= {"value", "bound", "gap"}
_OF_HEADROOM = {"cpu", "memory", "nic"}


def recommendation_from_json(told: Json, request: PlacementRequest) -> Recommendation:
    """The inverse of `recommendation_as_json` for an answer to `request`; fields that are not known are let pass.

    What became null because it was not finite is infinite again; `expected` and `half_width` of candidates are not
    reported. KeyError, TypeError, ValueError or AttributeError where it is no such answer.
    """
    answer = _as_in_domain(told)
    for candidate in filter(None, (*answer["candidates"], *answer.get("tuned", ()), answer.get("present"))):
        candidate["newcomer"]["instance"] = request.instance.id
    return codec.decode(Recommendation, {**answer, "request": codec.encode(request)})


def scene_effects_from_json(told: Json) -> SceneEffects:
    """The answer to a Scene from the JSON of `POST /v1/predictions`; errors as of `recommendation_from_json`."""
    return codec.decode(SceneEffects, _as_in_domain(told))


def plan_from_json(told: Json, request: PlanRequest) -> Plan:
    """A plan that answers `request`, from the JSON of `POST /v1/plans`; errors as of `recommendation_from_json`."""
    answer = _as_in_domain(told)
    for step in answer["steps"]:
        if step.get("newcomer") is not None and "settings" in step:
            newcomer = {**step["newcomer"], "instance": step["instance"]}
            same = {name: step[name] for name in ("host", "score", "pinning", "isolation", "tied_with")}
            step["candidate"] = {**same, "rank": 1, "combined_score": 0.0, "newcomer": newcomer, "neighbours": ()}
    if answer.get("capacity") is not None:
        answer["capacity"]["asked_at"] = answer["created_at"]
    return codec.decode(Plan, {**answer, "request": codec.encode(request)})


def _as_in_domain(told: Any) -> Any:
    """JSON of REST with the names and the shape of the domain's types added; all that REST says stays in it.

    What is meant shows in the types beside it, for hosts and instances may have the names of fields.
    """
    if isinstance(told, list):
        return [_as_in_domain(item) for item in told]
    if not isinstance(told, dict):
        return told
    model, isolation, pinning = (told.get(name) for name in ("model", "isolation", "pinning"))
    is_headroom = isinstance(told.get("one_numa_node"), bool)
    numbers = _OF_HEADROOM if is_headroom else _NUMBERS
    answer = {
        name: math.inf if part is None and name in numbers else _as_in_domain(part) for name, part in told.items()
    }
    if is_headroom:
        answer["one_node"] = told["one_numa_node"]
    if isinstance(told.get("host"), str) and "mitigation" in told:
        answer["rungs"] = answer["mitigation"]
    if isinstance(model, dict) and "version" in model:
        answer |= {"model_version": model["version"], "model_origin": model["origin"]}
    if isinstance(isolation, dict) and "cap_percent" in isolation:  # in `changes`, all of it is the settings
        cpus = None if pinning is None else [pinning[str(vcpu)] for vcpu in range(len(pinning))]
        settings = {**isolation, "pinning": None if cpus is None else {"cpus": cpus}}
        answer |= {**settings, "isolation": settings, "settings": settings}
    return answer
