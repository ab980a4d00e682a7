"""Plans: many instances placed one after another, each counting in for the next; no solver yet, no I/O."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from advisor import placement
from advisor.domain import (
    Band,
    Effect,
    Host,
    Instance,
    Inventory,
    Objective,
    PlacementRequest,
    Plan,
    PlanStep,
)
from advisor.snapshot import ClusterSnapshot
from models.prediction import Band as Bands
from models.prediction import Predictor

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)
Effects = Mapping[str, tuple[Effect, ...]]


def place_all(
    inventory: Inventory,
    instances: Sequence[Instance],
    predictor: Predictor,
    *,
    objective: Objective,
    now: datetime,
    fresh_s: float = math.inf,
    progress: Progress | None = None,
) -> Plan:
    """Place instances in the given order; where no host can take one, the step says why and the plan goes on.

    An instance that is on a host already is placed anew: its step names the best host, which may be the one it is on.
    Hosts count as seen when the inventory was (`observed_at`, None = now). The same input gives the same plan.
    """
    standing = {instance.id: instance for instance in inventory.instances}
    seen = dict.fromkeys((host.id for host in inventory.hosts), inventory.observed_at or now)
    plan_id = _identify(inventory, instances, objective, predictor, now)
    steps: list[PlanStep] = []

    def snapshot() -> ClusterSnapshot:
        there = replace(inventory, instances=tuple(standing.values()))
        return ClusterSnapshot.build(there, seen=seen, pending=(), taken_at=now)

    at_first = snapshot()
    current = at_first
    for number, instance in enumerate(instances):
        if progress:
            progress(f"placing {instance.id}", number / len(instances))
        answer = placement.recommend(
            current,
            predictor,
            PlacementRequest(instance, objective=objective),
            recommendation_id=f"{plan_id}.{number}",
            now=now,
            fresh_s=fresh_s,
        )
        if not answer.candidates:
            steps.append(PlanStep(instance.id, None, None, answer.rejected))
            continue
        best = answer.candidates[0]
        steps.append(PlanStep(instance.id, best.host, best))
        standing[instance.id] = replace(instance, host=best.host, settings=best.isolation)
        current = snapshot()
    if progress:
        progress("placed", 1.0)
    before = _effects(at_first, predictor, {})
    known = {effect.instance: effect.throughput_ratio for effects in before.values() for effect in effects}
    return Plan(
        id=plan_id,
        created_at=now,
        model_version=predictor.version,
        model_origin=predictor.origin,
        steps=tuple(steps),
        before=before,
        after=_effects(current, predictor, known),
    )


def _effects(snapshot: ClusterSnapshot, predictor: Predictor, before: Mapping[str, Band]) -> Effects:
    """What is predicted for every instance of every host, in one call; `before` is what it had, if it was there."""
    if not any(snapshot.residents):
        return {host.id: () for host in snapshot.hosts}
    prediction = predictor.predict(snapshot.scenes)
    return {
        host.id: tuple(
            Effect(
                instance=resident.id,
                throughput_ratio=_band(prediction.throughput, scene, slot),
                latency_ratio=_band(prediction.latency, scene, slot),
                jitter_ratio=_band(prediction.jitter, scene, slot),
                before=before.get(resident.id),
                outside_training=bool(prediction.outside[scene, slot]),
            )
            for slot, resident in sorted(enumerate(snapshot.residents[scene]), key=lambda pair: pair[1].id)
        )
        for scene, host in enumerate(snapshot.hosts)
    }


def _band(bands: Bands, scene: int, slot: int) -> Band:
    return Band(*(float(part[scene, slot]) for part in (bands.expected, bands.lower, bands.upper)))


def _identify(
    inventory: Inventory, instances: Sequence[Instance], objective: str, predictor: Predictor, now: datetime
) -> str:
    """Sorts by time (ms) and is the same for the same question at the same moment."""
    hosts: tuple[Host, ...] = inventory.hosts
    asked = repr((hosts, inventory.instances, inventory.workloads, tuple(instances), objective, predictor.version))
    return f"{int(now.timestamp() * 1000):012x}-{hashlib.sha256(asked.encode()).hexdigest()[:10]}"
