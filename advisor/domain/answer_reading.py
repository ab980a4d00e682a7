"""Recommendations from the JSON of the public contract: what a service answered, as it was decided there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from advisor.domain.answers import (
    Band,
    Candidate,
    Command,
    CpuTime,
    Effect,
    Headroom,
    MitigationStep,
    Reason,
    Recommendation,
    Rejection,
    SceneEffects,
)
from advisor.domain.evidence import Evidence, LevelHeld
from advisor.domain.questions import PlacementRequest
from profiler.observed import IsolationSettings, NetworkSettings, Pinning

Json = Mapping[str, Any]


def recommendation_from_json(told: Json, request: PlacementRequest) -> Recommendation:
    """The inverse of `recommendation_as_json` for an answer to `request`; fields that are not known are let pass.

    What became null because it was not finite is infinite again; `expected` and `half_width` of candidates are not
    told. KeyError, TypeError, ValueError or AttributeError where it is no such answer.
    """
    evidence = told.get("evidence")
    return Recommendation(
        id=str(told["id"]),
        created_at=datetime.fromisoformat(told["created_at"]),
        request=request,
        model_version=told["model"]["version"],
        model_origin=told["model"]["origin"],
        degraded=bool(told["degraded"]),
        snapshot_age_s=float(told["snapshot_age_s"]),
        candidates=tuple(_candidate(one, request.instance.id) for one in told["candidates"]),
        rejected=tuple(
            Rejection(one["host"], one["code"], one["reason"], _steps(one["mitigation"])) for one in told["rejected"]
        ),
        notes=tuple(told["notes"]),
        evidence=None if evidence is None else _evidence(evidence),
    )


def scene_effects_from_json(told: Json) -> SceneEffects:
    """The answer to a Scene from the JSON of `POST /v1/predictions`; errors as of `recommendation_from_json`."""
    return SceneEffects(
        told["model"]["version"],
        told["model"]["origin"],
        bool(told["degraded"]),
        tuple(effect_from_json(one, one["instance"]) for one in told["effects"]),
        number_from_json(told["combined_score"]),
        told.get("crowded"),
    )


def _evidence(told: Json) -> Evidence:
    held = told.get("held")
    return Evidence(told["level"], told["advice"], None if held is None else LevelHeld(**held))


def _candidate(told: Json, newcomer: str) -> Candidate:
    return Candidate(
        rank=told["rank"],
        host=told["host"],
        score=number_from_json(told["score"]),
        combined_score=number_from_json(told["combined_score"]),
        pinning=pinning_from_json(told["pinning"]),
        isolation=settings_from_json(told),
        newcomer=effect_from_json(told["newcomer"], newcomer),
        neighbours=tuple(effect_from_json(one, one["instance"]) for one in told["neighbours"]),
        tied_with=tuple(told["tied_with"]),
        reasons=tuple(Reason(**{**one, "share": number_from_json(one["share"])}) for one in told["reasons"]),
        commands=commands_from_json(told.get("commands", ())),
        rungs=_steps(told["mitigation"]),
        changes={name: settings_from_json(one) for name, one in told["changes"].items()},
        headroom=_headroom(told["headroom"]),
        crowded=told.get("crowded"),
        calibration=told.get("calibration", "none"),
        evidence=dict(told.get("evidence", {})),
    )


def _steps(told: Sequence[Json]) -> tuple[MitigationStep, ...]:
    return tuple(
        MitigationStep(
            action=one["action"],
            text=one["text"],
            changes={name: settings_from_json(settings) for name, settings in one["changes"].items()},
            effects=tuple(effect_from_json(effect, effect["instance"]) for effect in one["effects"]),
            satisfies=bool(one["satisfies"]),
            driver_cpus=None if one["driver_cpus"] is None else tuple(one["driver_cpus"]),
            notes=tuple(one["notes"]),
        )
        for one in told
    )


def effect_from_json(told: Json, instance: str) -> Effect:
    """What happens to one instance; errors as of `recommendation_from_json`."""
    jitter, cpu, before = told.get("jitter_ratio"), told.get("cpu"), told.get("before")
    return Effect(
        instance,
        band_from_json(told["throughput_ratio"]),
        band_from_json(told["latency_ratio"]),
        None if before is None else band_from_json(before),
        bool(told["outside_training"]),
        None if jitter is None else band_from_json(jitter),
        None if cpu is None else CpuTime(**cpu),
    )


def band_from_json(told: Json) -> Band:
    """An interval; errors as of `recommendation_from_json`."""
    return Band(number_from_json(told["expected"]), number_from_json(told["lower"]), number_from_json(told["upper"]))


def commands_from_json(told: Sequence[Json]) -> tuple[Command, ...]:
    """Commands with their undo; errors as of `recommendation_from_json`."""
    return tuple(Command(one["tool"], tuple(one["argv"]), tuple(one["undo"]), one.get("note", "")) for one in told)


def _headroom(told: Json | None) -> Headroom | None:
    if told is None:
        return None
    before = {name: told.get(name) for name in ("cpu_before", "memory_before", "nic_before")}
    return Headroom(
        number_from_json(told["cpu"]),
        number_from_json(told["memory"]),
        number_from_json(told["nic"]),
        bool(told["one_numa_node"]),
        **before,
    )


def settings_from_json(told: Json) -> IsolationSettings:
    """Pinning and isolation as settings; errors as of `recommendation_from_json`."""
    held = told["isolation"]
    network = held["network"]
    return IsolationSettings(
        pinning=pinning_from_json(told["pinning"]),
        cap_percent=held["cap_percent"],
        weight=held["weight"],
        network=None if network is None else NetworkSettings(**network),
        disk_limit_mb_s=held["disk_limit_mb_s"],
    )


def pinning_from_json(told: Mapping[str, Sequence[int]] | None) -> Pinning | None:
    return None if told is None else Pinning(tuple(tuple(told[str(vcpu)]) for vcpu in range(len(told))))


def number_from_json(value: float | None) -> float:
    """A figure, which is null in JSON where it is not finite."""
    return math.inf if value is None else float(value)
