"""From a request and a snapshot to a ranked recommendation: filters, prediction, order, ladder, answer."""

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
from advisor.placement.host_classes import ClassPredictions, HostClasses, Question, kinds, predict
from advisor.placement.mitigation_step import MOST_TRIED, mend, rejections
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
from models.prediction import BandArrays, InterferencePrediction, Predictor, unasked

MOST_TIES = 20  # hosts that a tie names beyond the ones that the answer shows


def recommend(snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest) -> Recommendation:
    """Rank the hosts of a snapshot for one instance; the request is a checked one.

    The same question on the same snapshot has the same answer; no feasible host gives an empty list with reasons.
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
    kept, rejected = filters.apply(snapshot, request, fresh_s=context.fresh_s)
    table, row, unknown = profile_row(snapshot, request)
    if unknown:
        what = request.instance.workload or f"what {request.instance.id} runs"
        taken = "it counts as busy on all its vCPUs and as using nothing else, with wider intervals"
        notes = (*notes, f"Nothing is known about {what}: {taken}.")
    found: tuple[Candidate, ...] = ()
    if kept:
        question = Question(snapshot, request, answering.predictor, table, row)
        found, broken = _rank(question, np.array(kept, dtype=np.int64), answering.remembered)
        rejected = tuple(sorted((*rejected, *broken), key=lambda one: one.host))
    return Recommendation(
        id=new_id(now),
        created_at=now,
        request=request,
        model_version=answering.predictor.version,
        model_origin=answering.predictor.origin,
        degraded=answering.degraded,
        snapshot_age_s=max((now - snapshot.taken_at).total_seconds(), 0.0),
        candidates=found,
        rejected=rejected,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Ranked:
    """H hosts from best to worst by what is predicted of their kinds: `hosts` (H,) positions in the snapshot, `kinds`
    (H,), and by kind (G,) the option that suits it best, what it is worth under that, and whether a limit breaks."""

    hosts: Ints
    kinds: Ints
    option: Ints
    scores: scoring.Scores
    broken: Bools

    def standing(self, told: ClassPredictions, rank: int) -> RankedHost:
        """The host of a rank, from 0."""
        kind = int(self.kinds[rank])
        value, expected, half = (
            float(one[kind]) for one in (self.scores.score, self.scores.expected, self.scores.half_width)
        )
        return RankedHost(int(self.hosts[rank]), told.options[self.option[kind]], value, expected, half)


def _rank(
    question: Question, hosts: Ints, remembered: PredictionCache
) -> tuple[tuple[Candidate, ...], list[Rejection]]:
    request = question.request
    found = kinds(question, hosts)
    told = predict(question, found, remembered)
    ranked = _ordered(hosts, found, told, request)
    broken = ranked.broken[ranked.kinds]
    fine = np.flatnonzero(~broken)[: max(request.limit, MOST_TIES)]
    standings = [ranked.standing(told, rank) for rank in fine.tolist()]
    rungs, mended = _mended(question, found, told, ranked, standings)
    standings = _merged([*standings, *mended])
    gone = {one.host for one in mended}
    left = [
        (position, kind, int(ranked.option[kind]))
        for position, kind in zip(ranked.hosts[broken].tolist(), ranked.kinds[broken].tolist(), strict=True)
        if position not in gone
    ]
    answer = candidates(question, standings, remembered) if standings else ()
    return answer, rejections(question, found, told, left, rungs)


def _ordered(hosts: Ints, found: HostClasses, told: ClassPredictions, request: PlacementRequest) -> _Ranked:
    """Choose the option of every kind, and order the hosts."""
    at, kind = np.nonzero(told.usable)
    present, expected = found.present[kind], told.expected[at, kind]
    latency, waiting = unasked(present), None
    if not np.isnan(found.waits).all():
        latency = BandArrays(*(told.latency[at, kind],) * 3)
        waiting = scoring.Waiting(found.waits[kind], told.latency_before[kind])
    asked = scoring.score(
        InterferencePrediction(BandArrays(expected, told.lower[at, kind], expected), latency, latency, present),
        present,
        told.before[kind],
        found.limits[kind],
        found.used[kind],
        request.objective,
        waiting,
    )
    number = np.full(told.usable.shape, -1)  # of its scene, where an option is a choice
    number[at, kind] = np.arange(len(at))
    scores = asked.take(number.ravel())
    option = scoring.choose_options(scores, len(told.options), told.pins, told.usable.ravel())
    best = asked.take(number[option, np.arange(len(found))])
    by_rank = scoring.order(best.score[found.of], hosts)
    return _Ranked(hosts[by_rank], found.of[by_rank], option, best, best.breaks_newcomer | best.breaks_neighbour)


def _mended(
    question: Question, found: HostClasses, told: ClassPredictions, ranked: _Ranked, standings: Sequence[RankedHost]
) -> tuple[dict[int, tuple[MitigationStep, ...]], list[RankedHost]]:
    """Try the ladder where it may matter: on the best host of all, and while too few hosts break nothing.

    Returns what was tried, by the position of the host, and how the hosts stand that were mended.
    """
    rungs: dict[int, tuple[MitigationStep, ...]] = {}
    mended: list[RankedHost] = []
    if not question.request.mend:
        return rungs, mended
    others = [question.snapshot.hosts[one.host].id for one in standings[: question.request.limit]]
    in_vain: set[int] = set()  # kinds of hosts: what does not mend one of a kind mends none
    for rank in np.flatnonzero(ranked.broken[ranked.kinds]).tolist():
        kind = int(ranked.kinds[rank])
        if len(rungs) == MOST_TRIED or (rank > 0 and len(standings) + len(mended) >= question.request.limit):
            break
        if kind not in in_vain:
            one = ranked.standing(told, rank)
            rungs[one.host], better = mend(question, found, told, one, kind, others)
            mended += [better] if better else []
            in_vain |= set() if better else {kind}
    return rungs, mended


def _merged(standings: Sequence[RankedHost]) -> list[RankedHost]:
    by_rank = scoring.order(np.array([one.score for one in standings]), np.array([one.host for one in standings]))
    return [standings[at] for at in by_rank.tolist()]


def predict_scene(scene: Scene, predictor: Predictor, *, workloads: Sequence[WorkloadProfile]) -> SceneEffects:
    """What the instances of one scene do to each other; workloads of the scene itself win over `workloads`.

    ValueError when an instance is pinned beyond the host's pCPUs.
    """
    batch = build_batch([(scene.host, scene.instances)], ProfileTable.build((*workloads, *scene.workloads)))
    effects = scene_effects(predictor.predict(batch), [one.id for one in scene.instances])
    combined = sum(effect.throughput_ratio.expected for effect in effects)
    return SceneEffects(predictor.version, predictor.origin, False, effects, combined)
