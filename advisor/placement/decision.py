"""Ranks hosts for a request on a snapshot: filters, prediction, order, mitigation, answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import (
    Candidate,
    MitigationStep,
    PlacementRequest,
    Recommendation,
    Rejection,
    Scene,
    SceneEffects,
    WorkloadProfile,
)
from advisor.placement import metric_names
from advisor.placement.candidates import RankedHost, candidates, scene_effects
from advisor.placement.host_classes import (
    ClassPredictions,
    HostClasses,
    PlacementQuestion,
    host_classes,
    predict_classes,
)
from advisor.placement.mitigation_step import MAX_MITIGATED_HOSTS, mitigate, rejections
from advisor.placement.request_checks import check_scene, new_id
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.prediction.cache import PredictionCache
from advisor.prediction.context import QuestionContext
from advisor.scheduling import filters, scoring
from advisor.scheduling.newcomer import profile_row
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Ints
from models.data.scene import ProfileTable, build_batch
from models.physics.demands import ASSUMED
from models.prediction import BandArrays, InterferencePrediction, Predictor, unasked

MAX_TIES = 20  # hosts that a tie may name beyond those in the answer


def recommend(snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest) -> Recommendation:
    """Rank the hosts of a snapshot for one instance; the request is a checked one.

    The same question on the same snapshot has the same answer; without a feasible host the list is empty and the
    reasons say why.
    """
    metric_names.check(request, context.active.predictor)
    unknown = metric_names.notes(snapshot, request, context.active.predictor)
    return active.ask(
        context.active, lambda answering: _recommend(snapshot, replace(context, active=answering), request, unknown)
    )


def answer_scene(answering: ActivePredictor, scene: Scene, workloads: Sequence[WorkloadProfile]) -> SceneEffects:
    """What the instances of a scene do to each other, by the prior where the active predictor fails.

    `workloads` are looked up by name where the scene has none. InvalidInput when the scene contradicts itself.
    """
    check_scene(scene)
    named = {instance.workload for instance in scene.instances}
    wanted = [workload for workload in workloads if workload.name in named]
    return active.ask(
        answering,
        lambda used: replace(predict_scene(scene, used.predictor, workloads=wanted), degraded=used.degraded),
    )


def _recommend(
    snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest, unknown_metrics: Sequence[str]
) -> Recommendation:
    answering, now = context.active, context.now
    notes = (*answering.notes, *unknown_metrics)
    feasible, rejected = filters.apply(snapshot, request, fresh_s=context.fresh_s)
    table, row, unknown = profile_row(snapshot, request)
    if unknown and "cpu" in request.instance.demand:
        known = f"Of {request.instance.id} only its demand for CPUs is known"
        notes = (*notes, f"{known}: it counts as using nothing else.")
    elif unknown:
        subject = request.instance.workload or f"what {request.instance.id} runs"
        usual = f"{ASSUMED.mean:.0%} of its vCPUs, as in public traces"
        assumption = f"it counts as using {usual}, and nothing else, with a wide range"
        notes = (*notes, f"Nothing is known about {subject}: {assumption}.")
    answer_candidates: tuple[Candidate, ...] = ()
    if feasible:
        question = PlacementQuestion(snapshot, request, answering.predictor, table, row)
        answer_candidates, limit_rejections = _rank(question, np.array(feasible, dtype=np.int64), answering.remembered)
        rejected = tuple(sorted((*rejected, *limit_rejections), key=lambda rejection: rejection.host))
    return Recommendation(
        id=new_id(now),
        created_at=now,
        request=request,
        model_version=answering.predictor.version,
        model_origin=answering.predictor.origin,
        degraded=answering.degraded,
        snapshot_age_s=max((now - snapshot.taken_at).total_seconds(), 0.0),
        candidates=answer_candidates,
        rejected=rejected,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _RankedHosts:
    """H hosts from best to worst, with the predictions of their classes.

    `hosts` (H,) are positions in the snapshot and `class_of_host` (H,) their classes. By class (G,) come the best
    option, its scores, and whether a limit is violated.
    """

    hosts: Ints
    class_of_host: Ints
    option: Ints
    scores: scoring.Scores
    broken: Bools

    def ranked_host(self, predictions: ClassPredictions, rank: int) -> RankedHost:
        """The host of a rank, from 0."""
        host_class = int(self.class_of_host[rank])
        value, expected, half_width = (
            float(values[host_class]) for values in (self.scores.score, self.scores.expected, self.scores.half_width)
        )
        return RankedHost(
            int(self.hosts[rank]), predictions.options[self.option[host_class]], value, expected, half_width
        )


def _rank(
    question: PlacementQuestion, hosts: Ints, remembered: PredictionCache
) -> tuple[tuple[Candidate, ...], list[Rejection]]:
    request = question.request
    classes = host_classes(question, hosts)
    predictions = predict_classes(question, classes, remembered)
    ranked = _rank_hosts(hosts, classes, predictions, request)
    broken = ranked.broken[ranked.class_of_host]
    within_limits = np.flatnonzero(~broken)[: max(request.limit, MAX_TIES)]
    ranked_hosts = [ranked.ranked_host(predictions, rank) for rank in within_limits.tolist()]
    steps_by_host, mitigated = _mitigate_hosts(question, classes, predictions, ranked, ranked_hosts)
    ranked_hosts = _merged([*ranked_hosts, *mitigated])
    mitigated_hosts = {host.host for host in mitigated}
    not_mitigated = [
        (position, host_class, int(ranked.option[host_class]))
        for position, host_class in zip(
            ranked.hosts[broken].tolist(), ranked.class_of_host[broken].tolist(), strict=True
        )
        if position not in mitigated_hosts
    ]
    answer = candidates(question, ranked_hosts, remembered) if ranked_hosts else ()
    return answer, rejections(question, classes, predictions, not_mitigated, steps_by_host)


def _rank_hosts(
    hosts: Ints, classes: HostClasses, predictions: ClassPredictions, request: PlacementRequest
) -> _RankedHosts:
    """Choose the best option of every class, and order the hosts."""
    option_rows, class_rows = np.nonzero(predictions.usable)
    present, expected = classes.present[class_rows], predictions.expected[option_rows, class_rows]
    latency, waiting = unasked(present), None
    if not np.isnan(classes.waits).all():
        latency = BandArrays(*(predictions.latency[option_rows, class_rows],) * 3)
        waiting = scoring.Waiting(classes.waits[class_rows], predictions.latency_before[class_rows])
    scene_scores = scoring.score(
        InterferencePrediction(
            BandArrays(expected, predictions.lower[option_rows, class_rows], expected), latency, latency, present
        ),
        present,
        predictions.before[class_rows],
        classes.limits[class_rows],
        classes.used[class_rows],
        request.objective,
        waiting,
    )
    number = np.full(predictions.usable.shape, -1)  # number of the scene, -1 where the option is not usable
    number[option_rows, class_rows] = np.arange(len(option_rows))
    scores = scene_scores.take(number.ravel())
    option = scoring.choose_options(scores, len(predictions.options), predictions.pins, predictions.usable.ravel())
    best = scene_scores.take(number[option, np.arange(len(classes))])
    by_rank = scoring.order(best.score[classes.of], hosts)
    return _RankedHosts(hosts[by_rank], classes.of[by_rank], option, best, best.breaks_newcomer | best.breaks_neighbour)


def _mitigate_hosts(
    question: PlacementQuestion,
    classes: HostClasses,
    predictions: ClassPredictions,
    ranked: _RankedHosts,
    ranked_hosts: Sequence[RankedHost],
) -> tuple[dict[int, tuple[MitigationStep, ...]], list[RankedHost]]:
    """Try mitigation where it may matter: on the best host, and while too few hosts keep all limits.

    Returns the steps tried, by host position, and the hosts on which mitigation succeeded.
    """
    steps_by_host: dict[int, tuple[MitigationStep, ...]] = {}
    mitigated: list[RankedHost] = []
    if not question.request.mend:
        return steps_by_host, mitigated
    others = [question.snapshot.hosts[ranked_host.host].id for ranked_host in ranked_hosts[: question.request.limit]]
    failed_classes: set[int] = set()  # what fails on one host of a class fails on all
    for rank in np.flatnonzero(ranked.broken[ranked.class_of_host]).tolist():
        host_class = int(ranked.class_of_host[rank])
        if len(steps_by_host) == MAX_MITIGATED_HOSTS or (
            rank > 0 and len(ranked_hosts) + len(mitigated) >= question.request.limit
        ):
            break
        if host_class not in failed_classes:
            ranked_host = ranked.ranked_host(predictions, rank)
            steps_by_host[ranked_host.host], mitigated_host = mitigate(
                question, classes, predictions, ranked_host, host_class, others
            )
            mitigated += [mitigated_host] if mitigated_host else []
            failed_classes |= set() if mitigated_host else {host_class}
    return steps_by_host, mitigated


def _merged(ranked_hosts: Sequence[RankedHost]) -> list[RankedHost]:
    by_rank = scoring.order(
        np.array([ranked.score for ranked in ranked_hosts]), np.array([ranked.host for ranked in ranked_hosts])
    )
    return [ranked_hosts[at] for at in by_rank.tolist()]


def predict_scene(scene: Scene, predictor: Predictor, *, workloads: Sequence[WorkloadProfile]) -> SceneEffects:
    """The effects of one scene's instances on each other; workloads of the scene itself override `workloads`.

    ValueError when an instance is pinned beyond the host's pCPUs.
    """
    batch = build_batch([(scene.host, scene.instances)], ProfileTable.build((*workloads, *scene.workloads)))
    effects = scene_effects(predictor.predict(batch), [instance.id for instance in scene.instances])
    combined = sum(effect.throughput_ratio.expected for effect in effects)
    return SceneEffects(predictor.version, predictor.origin, False, effects, combined)
