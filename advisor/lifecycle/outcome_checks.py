"""From an observed outcome to rows of predicted beside observed: which scene it was, and what each model said.

A model that fails gives no rows and a line in the log; an observation is never refused for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from advisor.domain import (
    AnsweredAs,
    Band,
    Candidate,
    Effect,
    Host,
    Instance,
    Inventory,
    Page,
    PredictedVsObserved,
    Recommendation,
    RecommendationOutcome,
    Scene,
    WorkloadProfile,
    settings_there,
)
from advisor.placement import decision
from advisor.store import answers as recommendations
from advisor.store.answers import OBSERVED_AS, RecordedOutcome
from advisor.validation import misfit
from models.evaluation.prediction_checks import CheckedPrediction, clip, widen
from models.features.examples import measured
from models.prediction import Predictor
from profiler.observed import Colocation, Outcome

# Stored answers beside their reported outcomes: each band that was predicted, and the ratio that was measured.


def outcomes_page(
    connection: Connection, which: AnsweredAs, *, cursor: str | None, limit: int
) -> Page[RecommendationOutcome]:
    """Answers with their outcomes, newest first."""
    answers = recommendations.list_with_outcomes(
        connection, reported=which == "reported", real=which == "real", cursor=cursor, limit=limit
    )
    return Page(tuple(outcome_beside(*item) for item in answers.items), answers.next_cursor)


def outcome_beside(answer: Recommendation, outcome: RecordedOutcome | None) -> RecommendationOutcome:
    """An answer and its outcome, instance by instance: the new VM first, then as it was reported."""
    if outcome is None:
        return RecommendationOutcome(answer)
    placed = next((candidate for candidate in answer.candidates if candidate.host == outcome.host), None)
    bands = (
        {effect.instance: effect.throughput_ratio for effect in (placed.new_vm, *placed.neighbours)} if placed else {}
    )
    new_vm = answer.request.instance.id
    names = sorted(outcome.ratios, key=lambda name: (name != new_vm, name))
    rows = tuple(PredictedVsObserved(name, outcome.ratios[name], bands.get(name)) for name in names)
    return RecommendationOutcome(answer, outcome.host, outcome.recorded_at, rows)


log = logging.getLogger(__name__)
BANDS = {"throughput": "throughput_ratio", "latency": "latency_ratio", "jitter": "jitter_ratio"}  # of an Effect


@dataclass(frozen=True, slots=True)
class OutcomeScorer:
    """A predictor that is compared with outcomes, in its role (one of `models.evaluation.prediction_checks.ROLES`)."""

    role: str
    predictor: Predictor


def of_colocation(
    colocation: Colocation, inventory: Inventory, judges: Sequence[OutcomeScorer], now: datetime
) -> tuple[CheckedPrediction, ...]:
    """What the judges say of a co-location, beside what was measured; nothing where the inventory has no such host.

    The host is the one named like the platform, else the first of that platform.
    """
    scene = _scene_of(colocation, inventory)
    ratios = {target: measured(colocation, target) for target in ("throughput", "latency")}
    ratios["jitter"] = _jitter(colocation)
    if scene is None or not any(ratios.values()):
        return ()
    key = json.dumps([colocation.run, colocation.platform, colocation.repeat])
    source = f"c-{hashlib.sha256(key.encode()).hexdigest()[:40]}"
    return tuple(row for judge in judges for row in judged(judge, scene, inventory.workloads, ratios, source, now))


def source_of(recommendation_id: str) -> str:
    """Under which source a placement's outcome is kept; ids of the service have 23 characters."""
    return f"{OBSERVED_AS}{recommendation_id}"[:64]


def of_placement(
    answer: Recommendation,
    host: str,
    ratios: Mapping[str, float],
    inventory: Inventory,
    judges: Sequence[OutcomeScorer],
    now: datetime,
) -> tuple[CheckedPrediction, ...]:
    """What was answered about `host`, beside the throughput ratio T/B of each instance there; nothing for a host that
    the answer does not have.

    The stored answer counts for the model that gave it. The other judges are asked about the same scene, unless one of
    its instances has left the inventory since.
    """
    candidate = next((shown for shown in answer.candidates if shown.host == host), None)
    if candidate is None:
        return ()
    by_target = {"throughput": ratios}
    source = source_of(answer.id)
    instances = {instance.id: instance for instance in (*inventory.instances, answer.request.instance)}
    stored_host = next((stored for stored in inventory.hosts if stored.id == host), None)
    platform = platform_of(stored_host) if stored_host else host
    factor = answer.widened.get(host, 1.0)
    effects = [_narrowed(effect, factor) for effect in (candidate.new_vm, *candidate.neighbours)]
    rows = _rows(effects, instances, by_target, source, now, answer.model_version, "active", platform)
    scene = _scene_at(answer, candidate, stored_host, instances)
    if scene is None:
        return rows
    others = [judge for judge in judges if judge.role != "active" and judge.predictor.version != answer.model_version]
    return (
        *rows,
        *(row for judge in others for row in judged(judge, scene, inventory.workloads, by_target, source, now)),
    )


def run_of(recommendation_id: str) -> str:
    """The run under which a placement's outcome is kept beside the co-locations that users post."""
    return f"outcome:{recommendation_id}"


def as_colocation(
    answer: Recommendation, host: str, ratios: Mapping[str, float], inventory: Inventory
) -> Colocation | None:
    """What was reported of a placement, as users post co-locations: everything that is on `host` now, and the new VM
    as it was advised where the inventory has it elsewhere; None where fewer than two are there, or no such host is."""
    if all(one.id != host for one in inventory.hosts):
        return None
    there = {one.id: Instance(one.id) for one in inventory.instances if one.host == host}
    new_vm = answer.request.instance
    if new_vm.id in ratios and new_vm.id not in there:
        candidate = next((shown for shown in answer.candidates if shown.host == host), None)
        settings = settings_there(new_vm, candidate) if candidate else new_vm.settings
        there[new_vm.id] = replace(new_vm, host=None, settings=settings)
    if len(there) < 2 or not ratios.keys() & there.keys():
        return None
    reached = [
        Outcome(one, "throughput", 1.0 if name in ratios else None, ratios.get(name), "1")
        for name, one in sorted(there.items())
    ]
    return Colocation(run_of(answer.id), host, "1", tuple(reached))


def platform_of(host: Host) -> str:
    """The platform that a host counts to; a host that is like no other is a platform of its own."""
    return host.platform or host.id


def _jitter(colocation: Colocation) -> dict[str, float]:
    """Co-located over solo jitter per instance, where both were measured and are not 0."""
    return {
        outcome.instance.id: outcome.colocated / outcome.solo
        for outcome in colocation.outcomes
        if outcome.outcome == "jitter_ms" and outcome.solo and outcome.colocated
    }


def _scene_of(colocation: Colocation, inventory: Inventory) -> Scene | None:
    name = colocation.platform
    fitting = [host for host in inventory.hosts if name and name in {host.id, host.platform}]
    if not fitting:
        return None
    host = min(fitting, key=lambda candidate_host: (candidate_host.id != name, candidate_host.id))
    instances = tuple({outcome.instance.id: outcome.instance for outcome in colocation.outcomes}.values())
    return _possible(host, instances, colocation.driver_cpus)


def _scene_at(
    answer: Recommendation, candidate: Candidate, host: Host | None, instances: Mapping[str, Instance]
) -> Scene | None:
    """The scene that a candidate meant, as far as the inventory still knows which were there."""
    neighbours = [instances.get(effect.instance) for effect in candidate.neighbours]
    if host is None or None in neighbours:
        return None
    new_vm, profiles = answer.request.instance, ()  # type: tuple[Instance, tuple[WorkloadProfile, ...]]
    if answer.request.profile is not None and answer.request.profile.known:
        # No id holds a blank, so this name hides no workload of that name.
        profile = replace(answer.request.profile, name=f"asked {new_vm.id}", platform="")
        new_vm, profiles = replace(new_vm, workload=profile.name), (profile,)
    new_vm = replace(new_vm, settings=settings_there(new_vm, candidate))
    residents = tuple(neighbour for neighbour in neighbours if neighbour is not None)
    scene = _possible(host, (*residents, new_vm), ())
    return None if scene is None else replace(scene, workloads=profiles)


def _possible(host: Host, instances: tuple[Instance, ...], driver_cpus: tuple[int, ...]) -> Scene | None:
    if host.lacks(driver_cpus) or misfit(host, instances):
        return None
    return Scene(replace(host, driver_cpus=driver_cpus) if driver_cpus else host, instances)


def judged(
    judge: OutcomeScorer,
    scene: Scene,
    workloads: Sequence[WorkloadProfile],
    ratios: Mapping[str, Mapping[str, float]],
    source: str,
    now: datetime,
    *,
    platform: str = "",
) -> tuple[CheckedPrediction, ...]:
    """What one judge predicts for a scene beside the `ratios` by target and instance; nothing where it fails.

    The rows are those of `platform`, empty = the host's own.
    """
    names = {instance.workload for instance in scene.instances}
    profiles = [workload for workload in workloads if workload.name in names]
    try:
        effects = decision.predict_scene(scene, judge.predictor, workloads=profiles, targets=ratios.keys()).effects
    except Exception:
        log.exception("model %s said nothing about an observed outcome", judge.predictor.version)
        return ()
    instances = {instance.id: instance for instance in scene.instances}
    version, where = judge.predictor.version, platform or platform_of(scene.host)
    return _rows(effects, instances, ratios, source, now, version, judge.role, where)


def _rows(
    effects: Sequence[Effect],
    instances: Mapping[str, Instance],
    ratios: Mapping[str, Mapping[str, float]],
    source: str,
    now: datetime,
    version: str,
    role: str,
    platform: str,
) -> tuple[CheckedPrediction, ...]:
    rows: list[CheckedPrediction] = []
    for effect in effects:
        instance = instances.get(effect.instance)
        for target, by_instance in ratios.items():
            band: Band | None = getattr(effect, BANDS[target])
            if band is None or effect.instance not in by_instance or not _usable(band):
                continue
            rows.append(
                CheckedPrediction(
                    source=source,
                    time=now,
                    version=version,
                    role=role,
                    target=target,
                    platform=platform,
                    workload=(instance.workload or "") if instance else "",
                    instance=effect.instance,
                    expected=band.expected,
                    lower=band.lower,
                    upper=min(band.upper, 1e15),  # no number for "any" on every database
                    outside=effect.outside_training,
                    observed=clip(by_instance[effect.instance]),
                )
            )
    return tuple(rows)


def _usable(band: Band) -> bool:
    """False for what a failing model gave."""
    return 0 < band.expected < 1e15 and 0 <= band.lower <= band.upper


def _narrowed(effect: Effect, factor: float) -> Effect:
    """An effect as the model gave it, before its throughput band was widened by `factor`."""
    band = effect.throughput_ratio
    edges = (widen(band.expected, edge, 1 / factor) for edge in (band.lower, band.upper))
    return replace(effect, throughput_ratio=Band(band.expected, *edges))
