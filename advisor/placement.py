"""From a request and a snapshot to a ranked recommendation: filters, one matrix, one predict, order, reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from advisor import explanation, filters, isolation, pinning, ranking, render
from advisor.domain import (
    Band,
    Candidate,
    Effect,
    IsolationSettings,
    PlacementRequest,
    Reason,
    Recommendation,
    Rejection,
    Scene,
    SceneEffects,
    WorkloadProfile,
)
from advisor.newcomer import limits_of, newcomer_slot, profile_row, used_share, without_it
from advisor.snapshot import ClusterSnapshot
from models.prediction import Band as PredictedBand
from models.prediction import InterferencePrediction, Predictor
from models.prior import solve
from models.scene import ProfileTable, SceneBatch, build_batch, slot_values
from models.scene import stack as stack_scenes

MOST_TIES = 20  # hosts that a tie names beyond the ones that the answer shows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Question:
    """The candidate scenes of one request: for each feasible host every option, the newcomer in the last slot."""

    hosts: Ints  # (H,) positions in the snapshot
    scenes: SceneBatch  # options x hosts
    prediction: InterferencePrediction
    before: Floats  # (H, N+1) expected T/B of residents without the newcomer, 1 for the newcomer
    before_low: Floats
    before_high: Floats
    limits: Floats  # (H, N+1)


def recommend(
    snapshot: ClusterSnapshot,
    predictor: Predictor,
    request: PlacementRequest,
    *,
    recommendation_id: str,
    now: datetime,
    fresh_s: float,
    degraded: bool = False,
    notes: tuple[str, ...] = (),
) -> Recommendation:
    """Rank the hosts of a snapshot for one instance.

    The same question on the same snapshot has the same answer; no feasible host gives an empty list with reasons.
    """
    kept, rejected = filters.apply(snapshot, request, fresh_s=fresh_s)
    table, row, unknown = profile_row(snapshot, request)
    if unknown:
        what = request.instance.workload or f"what {request.instance.id} runs"
        notes = (*notes, f"Nothing is known about {what}: it is treated as unknown and the intervals are wide.")
    candidates: tuple[Candidate, ...] = ()
    if kept:
        candidates, broken = _rank(snapshot, predictor, request, np.array(kept), table, row)
        rejected = tuple(sorted((*rejected, *broken), key=lambda one: one.host))
    return Recommendation(
        id=recommendation_id,
        created_at=now,
        request=request,
        model_version=predictor.version,
        model_origin=predictor.origin,
        degraded=degraded,
        snapshot_age_s=max((now - snapshot.taken_at).total_seconds(), 0.0),
        candidates=candidates[: request.limit],
        rejected=rejected,
        notes=notes,
    )


def _rank(
    snapshot: ClusterSnapshot,
    predictor: Predictor,
    request: PlacementRequest,
    hosts: Ints,
    table: ProfileTable,
    row: int | None,
) -> tuple[tuple[Candidate, ...], list[Rejection]]:
    base = without_it(snapshot, request, hosts, table)
    options = pinning.options(base, request.instance)
    question = _ask(snapshot, predictor, request, hosts, base, options, row)
    count = len(hosts)
    scores = _scores(snapshot, request, question, len(options))
    usable = np.concatenate([option.usable for option in options])
    chosen = ranking.choose_options(scores, len(options), np.array([option.pins for option in options]), usable)
    picked = chosen * count + np.arange(count)
    names = [snapshot.hosts[host].id for host in hosts]
    settings = [
        replace(
            request.instance.settings,
            pinning=pinning.as_pinning(options[chosen[at]], at, request.instance.vcpus),
        )
        for at in range(count)
    ]
    final = _Chosen(question, scores, picked, settings)
    final = _climb(snapshot, predictor, request, final, names)
    fine = ~(final.scores.breaks_newcomer | final.scores.breaks_neighbour)[final.picked]
    value = final.scores.score[final.picked]
    ordered = [at for at in ranking.order(value, names) if fine[at]]
    broken = [_limit_rejection(snapshot, request, final, at, names[at]) for at in range(count) if not fine[at]]
    return _candidates(snapshot, request, final, ordered, names), broken


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What stands for each feasible host: the scene picked for it and the settings of the newcomer there."""

    question: _Question
    scores: ranking.Scores
    picked: Ints
    settings: list[IsolationSettings]


def _ask(
    snapshot: ClusterSnapshot,
    predictor: Predictor,
    request: PlacementRequest,
    hosts: Ints,
    base: SceneBatch,
    options: Sequence[pinning.PinningOption],
    row: int | None,
) -> _Question:
    """Predict every host without the newcomer and with it under every option, in one matrix."""
    values = newcomer_slot(base, snapshot, hosts, request.instance, row)
    absent = base.with_slot(**{**values, "present": np.zeros(len(base), dtype=bool)})
    with_options = [base.with_slot(**{**values, "affinity": option.affinity}) for option in options]
    everything = stack_scenes([absent, *with_options])
    prediction = predictor.predict(everything)
    count = len(base)
    before = prediction.throughput
    occupied = absent.present
    return _Question(
        hosts=hosts,
        scenes=everything.take(np.arange(count, len(everything))),
        prediction=_part(prediction, count),
        before=np.where(occupied, before.expected[:count], 1.0),
        before_low=np.where(occupied, before.lower[:count], 1.0),
        before_high=np.where(occupied, before.upper[:count], 1.0),
        limits=limits_of(snapshot, hosts, request.instance, absent.slots),
    )


def _part(prediction: InterferencePrediction, start: int) -> InterferencePrediction:
    """The prediction from scene `start` on."""
    throughput, latency, jitter = (
        PredictedBand(band.expected[start:], band.lower[start:], band.upper[start:])
        for band in (prediction.throughput, prediction.latency, prediction.jitter)
    )
    return InterferencePrediction(throughput, latency, jitter, prediction.outside[start:])


def _scores(snapshot: ClusterSnapshot, request: PlacementRequest, question: _Question, times: int) -> ranking.Scores:
    return ranking.score(
        question.prediction,
        question.scenes.present,
        np.tile(question.before, (times, 1)),
        np.tile(question.limits, (times, 1)),
        np.tile(used_share(snapshot, request, question.hosts), times),
        request.objective,
    )


def _climb(
    snapshot: ClusterSnapshot, predictor: Predictor, request: PlacementRequest, chosen: _Chosen, names: list[str]
) -> _Chosen:
    """Where a host breaks a limit, try the isolation ladder there and keep the first rung that breaks none."""
    del names
    question = chosen.question
    breaks = (chosen.scores.breaks_newcomer | chosen.scores.breaks_neighbour)[chosen.picked]
    if not breaks.any():
        return chosen
    scenes = [question.scenes]
    picked, settings = chosen.picked.copy(), list(chosen.settings)
    tried: list[tuple[int, IsolationSettings]] = []
    for at in map(int, np.flatnonzero(breaks)):
        host = snapshot.hosts[question.hosts[at]]
        newcomer = replace(request.instance, settings=settings[at])
        for rung in isolation.ladder(host, newcomer):
            one = question.scenes.take(picked[at : at + 1])
            width = one.driver_cpus.shape[1]
            values = slot_values(replace(newcomer, settings=rung.settings), 0, host.pcpus, width)
            scenes.append(
                one.with_last(**{name: values[name] for name in ("cap", "weight", "net_mode", "net_rate", "net_ceil")})
            )
            tried.append((at, rung.settings))
    if not tried:
        return chosen
    everything = stack_scenes(scenes)
    prediction = predictor.predict(everything)
    owner = np.concatenate([np.tile(np.arange(len(question.hosts)), _times(question)), [at for at, _ in tried]])
    scores = ranking.score(
        prediction,
        everything.present,
        question.before[owner],
        question.limits[owner],
        used_share(snapshot, request, question.hosts)[owner],
        request.objective,
    )
    fine = ~(scores.breaks_newcomer | scores.breaks_neighbour)
    first = len(question.scenes)
    for number, (at, wanted) in reversed(list(enumerate(tried))):
        if fine[first + number]:
            picked[at], settings[at] = first + number, wanted
    return _Chosen(replace(question, scenes=everything, prediction=prediction), scores, picked, settings)


def _times(question: _Question) -> int:
    return len(question.scenes) // len(question.hosts)


def _limit_rejection(
    snapshot: ClusterSnapshot, request: PlacementRequest, final: _Chosen, at: int, host: str
) -> Rejection:
    scene = final.picked[at]
    expected = final.question.prediction.throughput.expected[scene]
    if final.scores.breaks_newcomer[scene]:
        limit = request.instance.min_throughput_ratio
        return Rejection(
            host,
            "limit.newcomer",
            f"{request.instance.id} would reach {expected[-1]:.2f} of its own speed, its limit is {limit}, "
            "and no weight, cap or tc class mends it",
        )
    limits, before = final.question.limits[at], final.question.before[at]
    under = [slot for slot in range(len(limits) - 1) if expected[slot] < limits[slot] <= before[slot]]
    slot = under[0]
    resident = snapshot.residents[final.question.hosts[at]][slot]
    return Rejection(
        host,
        "limit.neighbour",
        f"{resident.id} would fall to {expected[slot]:.2f} of its own speed, its limit is "
        f"{resident.min_throughput_ratio}, and no weight, cap or tc class mends it",
    )


def _candidates(
    snapshot: ClusterSnapshot, request: PlacementRequest, final: _Chosen, ordered: list[int], names: list[str]
) -> tuple[Candidate, ...]:
    question, scores = final.question, final.scores
    expected, half = scores.expected[final.picked], scores.half_width[final.picked]
    shown = ordered[: request.limit]
    prior = solve(question.scenes.take(final.picked[shown]))
    found = []
    for rank, at in enumerate(shown, start=1):
        scene = int(final.picked[at])
        host = snapshot.hosts[question.hosts[at]]
        slots = [slot for slot in range(question.scenes.slots - 1) if question.scenes.present[scene, slot]]
        residents = tuple(snapshot.residents[question.hosts[at]][slot] for slot in slots)
        settings = final.settings[at]
        nic_limit = float(prior.limits[rank - 1, -1, 2])
        if nic_limit < 1 and settings.network is None:
            share = nic_limit * float(prior.demands.net[rank - 1, -1]) / (host.nic_mbit or np.inf)
            settings = replace(settings, network=isolation.uplink_class(host, request.instance, share))
        why: tuple[Reason, ...] = ()
        if request.explain:
            mine = question.scenes.affinity[scene, -1]
            common = [float((question.scenes.affinity[scene, slot] & mine).sum()) for slot in slots]
            why = explanation.reasons(prior, rank - 1, residents, slots, common)
            if rank == 1 and len(ordered) > 1:
                other = ordered[1]
                tie = ranking.tied(expected, half, at, other)
                gap = float(scores.score[scene] - scores.score[final.picked[other]])
                why = (*why, explanation.compared(names[at], names[other], gap, tie=tie))
        found.append(
            Candidate(
                rank=rank,
                host=host.id,
                score=float(scores.score[scene]),
                combined_score=float(scores.combined[scene]),
                pinning=settings.pinning,
                isolation=settings,
                newcomer=_effect(request.instance.id, question, scene, question.scenes.slots - 1, at, newcomer=True),
                neighbours=tuple(
                    _effect(resident.id, question, scene, slot, at)
                    for slot, resident in zip(slots, residents, strict=True)
                ),
                tied_with=tuple(
                    names[other]
                    for other in ordered[: max(request.limit, MOST_TIES)]
                    if other != at and ranking.tied(expected, half, at, other)
                ),
                reasons=why,
                commands=(
                    # nothing is set for an instance that is yet to be placed
                    render.commands(host, request.instance, IsolationSettings(), settings, neighbours=residents)
                    if request.commands
                    else ()
                ),
            )
        )
    return tuple(found)


def _effect(name: str, question: _Question, scene: int, slot: int, at: int, *, newcomer: bool = False) -> Effect:
    prediction = question.prediction
    before = None
    if not newcomer:
        before = Band(
            float(question.before[at, slot]),
            float(question.before_low[at, slot]),
            float(question.before_high[at, slot]),
        )
    return Effect(
        instance=name,
        throughput_ratio=_band(prediction, "throughput", scene, slot),
        latency_ratio=_band(prediction, "latency", scene, slot),
        jitter_ratio=_band(prediction, "jitter", scene, slot),
        before=before,
        outside_training=bool(prediction.outside[scene, slot]),
    )


def _band(prediction: InterferencePrediction, kind: str, scene: int, slot: int) -> Band:
    band = getattr(prediction, kind)
    return Band(float(band.expected[scene, slot]), float(band.lower[scene, slot]), float(band.upper[scene, slot]))


def predict_scene(scene: Scene, predictor: Predictor, *, workloads: Sequence[WorkloadProfile]) -> SceneEffects:
    """What the instances of one scene do to each other; workloads of the scene itself win over `workloads`.

    ValueError when an instance is pinned beyond the host's pCPUs.
    """
    batch = build_batch([(scene.host, scene.instances)], ProfileTable.build((*workloads, *scene.workloads)))
    prediction = predictor.predict(batch)
    effects = tuple(
        Effect(
            instance=instance.id,
            throughput_ratio=_band(prediction, "throughput", 0, slot),
            latency_ratio=_band(prediction, "latency", 0, slot),
            jitter_ratio=_band(prediction, "jitter", 0, slot),
            outside_training=bool(prediction.outside[0, slot]),
        )
        for slot, instance in enumerate(scene.instances)
    )
    combined = sum(effect.throughput_ratio.expected for effect in effects)
    return SceneEffects(predictor.version, predictor.origin, False, effects, combined)
