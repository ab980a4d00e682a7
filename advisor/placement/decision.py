"""Ranks hosts for a request on a snapshot: filters, prediction, order, mitigation, answer."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.deadline import stage
from advisor.domain import (
    Candidate,
    HostRanking,
    MitigationStep,
    PlacementRequest,
    Recommendation,
    Rejection,
    Scene,
    SceneEffects,
    WorkloadProfile,
)
from advisor.placement import requests
from advisor.placement.candidates import RankedHost, candidates, scene_effects
from advisor.placement.changed_hosts import MAX_MITIGATED_HOSTS, losing, mitigate, rejections, tuned_hosts
from advisor.placement.evidence import class_note, evidence_of, with_class, with_counts
from advisor.placement.host_classes import (
    ClassPredictions,
    HostClasses,
    PlacementQuestion,
    best_options,
    host_classes,
    predict_classes,
)
from advisor.placement.requests import check_scene, new_id
from advisor.placement.screen import as_it_stands, by_promise, headroom_of, looks_ahead, may_screen, reserved
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor, PredictionCache, QuestionContext, crowded
from advisor.prediction.posted import note_of, posted_of
from advisor.scheduling import filters, scoring
from advisor.scheduling.pinning import profile_row
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats, Ints
from models.data.scene import ProfileTable, build_batch
from models.physics.demands import ASSUMED
from models.prediction import TARGETS, Predictor

MAX_TIES = 20  # hosts that a tie may name beyond those in the answer
SCREENED_FROM = 64  # hosts: of fewer all are predicted
FINALISTS, FIRST_PART = 64, 4  # of many hosts so many are predicted at first, of fewer one in so many
LEARNED_FINALISTS, FURTHER = 32, 2  # by a learned model, which then predicts at most one for each so many of them
SURELY_FIRST = 4  # twice as many where a host that is shown was not in the first so manieth part of them
MORE_FOR_LIMITS = 4  # so many times as many where too few keep all limits


def recommend(snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest) -> Recommendation:
    """Rank the hosts of a snapshot for one instance; the request is a checked one.

    The same question on the same snapshot has the same answer; without a feasible host the list is empty and the
    reasons say why.
    """
    return rank_hosts(snapshot, context, request, detailed=request.limit).answer


def rank_hosts(
    snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest, *, detailed: int
) -> HostRanking:
    """The same question, with the scores of `request.limit` hosts, and everything of at most `detailed` of them."""
    request = with_class(snapshot, request)
    requests.check(request, context.active.predictor)
    unknown = requests.notes(snapshot, request, context.active.predictor)
    return active.ask(
        context.active,
        lambda answering: _ranking(snapshot, replace(context, active=answering), request, unknown, detailed),
    )


def answer_scene(answering: ActivePredictor, scene: Scene, workloads: Sequence[WorkloadProfile]) -> SceneEffects:
    """What the instances of a scene do to each other, by the prior where the active predictor fails.

    `workloads` are looked up by name where the scene has none. InvalidInput when the scene contradicts itself.
    """
    check_scene(scene)
    named = {instance.workload for instance in scene.instances}
    wanted = [workload for workload in workloads if workload.name in named]
    return active.ask(
        answering, lambda used: replace(predict_scene(scene, used.predictor, workloads=wanted), degraded=used.degraded)
    )


def _ranking(
    snapshot: ClusterSnapshot,
    context: QuestionContext,
    request: PlacementRequest,
    unknown_metrics: Sequence[str],
    detailed: int,
) -> HostRanking:
    answering, now = context.active, context.now
    notes = (*answering.notes, *unknown_metrics)
    with stage("filters"):
        feasible, rejected = filters.apply(snapshot, request, fresh_s=context.fresh_s)
    table, row, unknown = profile_row(snapshot, request)
    if unknown and (like := class_note(snapshot, request.instance)):
        notes = (*notes, like)
    elif unknown and "cpu" in request.instance.demand:
        known = f"Of {request.instance.id} only its demand for CPUs is known"
        notes = (*notes, f"{known}: it counts as using nothing else.")
    elif unknown:
        subject = request.instance.workload or f"what {request.instance.id} runs"
        usual = f"{ASSUMED.mean:.0%} of its vCPUs, as in public traces"
        assumption = f"it counts as using {usual}, and nothing else, with a wide range"
        notes = (*notes, f"Nothing is known about {subject}: {assumption}.")
    answer_candidates: tuple[Candidate, ...] = ()
    tuned: tuple[Candidate, ...] = ()
    scores: dict[str, float] = {}
    per_host = True
    if feasible:
        question = PlacementQuestion(snapshot, request, answering.predictor, table, row)
        kept, others = filters.preferred(snapshot, request.instance, feasible)
        positions = np.array(kept, dtype=np.int64)
        per_host = not looks_ahead(question, positions)
        answer_candidates, limit_rejections, scores, worse, unpredicted = _rank(
            question, positions, answering.remembered, detailed
        )
        if others and not scores:  # where soft rules hold a limit would not
            positions, others = np.array(feasible, dtype=np.int64), ()
            answer_candidates, limit_rejections, scores, worse, unpredicted = _rank(
                question, positions, answering.remembered, detailed
            )
        if unpredicted:
            notes = (*notes, f"{unpredicted} more hosts may break a limit: enough others keep all and promise more.")
        rejected = (*rejected, *others)
        if detailed and request.tune and request.mitigate:
            with stage("predict"):
                tuned = tuned_hosts(question, worse, answering.remembered)
        rejected = tuple(sorted((*rejected, *limit_rejections), key=lambda rejection: rejection.host))
    present = None
    if detailed and (request.mitigate or request.explain):
        with stage("explain"):
            present = as_it_stands(snapshot, context, request, answer_candidates)
    answer_candidates = with_counts(snapshot, request, answer_candidates)
    shown = [candidate.host for candidate in answer_candidates]
    notes = (*notes, *requests.of_probes(snapshot, shown, answering.predictor))
    if moved := note_of(snapshot, request.instance, answer_candidates, answering.predictor):
        notes = (*notes, moved)
    answer = Recommendation(
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
        evidence=evidence_of(snapshot, request, answer_candidates),
        present=present,
        tuned=with_counts(snapshot, request, tuned),
    )
    return HostRanking(answer, scores, per_host)


@dataclass(frozen=True, slots=True)
class _RankedHosts:
    """H hosts from best to worst, with the predictions of their classes.

    `hosts` (H,) are positions in the snapshot and `class_of_host` (H,) their classes. By class (G,) come the best
    option, its scores, the lowest T/B and the speed of the new VM's answers as in RankedHost, whether a limit is
    violated, and what of the score is `reserved`. On so many further hosts that are `unpredicted` one may be.
    """

    hosts: Ints
    class_of_host: Ints
    option: Ints
    scores: scoring.Scores
    lowest: Floats
    speed: Floats
    broken: Bools
    reserved: Floats
    unpredicted: int = 0

    @property
    def within_limits(self) -> Ints:
        """The hosts that keep all limits, from best to worst."""
        return self.hosts[~self.broken[self.class_of_host]]

    def scores_of(self, hosts: Ints, shown: int) -> tuple[Floats, float]:
        """The scores of the same hosts in another order, (H,), and about the least one of the first so many that keep
        all limits, -inf where there are fewer."""
        score = self.scores.score[self.class_of_host]
        best = score[~self.broken[self.class_of_host]][:shown]
        place = np.argsort(self.hosts)[np.searchsorted(np.sort(self.hosts), hosts)]
        return score[place], float(best.min()) - scoring.EQUAL if len(best) == shown else -np.inf

    def ranked_hosts(self, question: PlacementQuestion, predictions: ClassPredictions, ranks: Ints) -> list[RankedHost]:
        """The hosts of these ranks, from 0."""
        if not len(ranks):
            return []
        headroom = headroom_of(question, self.hosts[ranks])
        scores = self.scores
        return [
            RankedHost(
                int(self.hosts[rank]),
                predictions.options[self.option[at]],
                score=float(scores.score[at]),
                expected=float(scores.expected[at]),
                half_width=float(scores.half_width[at]),
                lowest=float(self.lowest[at]),
                speed=float(self.speed[at]),
                headroom=headroom.of(place),
                reserved=float(self.reserved[at]),
            )
            for place, (rank, at) in enumerate(zip(ranks.tolist(), self.class_of_host[ranks].tolist(), strict=True))
        ]


def _rank(
    question: PlacementQuestion, hosts: Ints, remembered: PredictionCache, detailed: int
) -> tuple[tuple[Candidate, ...], list[Rejection], dict[str, float], Iterator[int], int]:
    """Candidates, as many as are `detailed`; the hosts on which a limit breaks; the scores of those that are shown; the
    positions of hosts where an instance keeps less than its own speed, in the order in which a change is tried; and
    the number of hosts that were not predicted although a limit may break there."""
    request = question.request
    screened = len(hosts) >= SCREENED_FROM and may_screen(question) and not looks_ahead(question, hosts)
    ranking = _rank_promising if screened else _rank_all
    with stage("predict"):
        classes, predictions, ranked = ranking(question, hosts, remembered)
        broken = ranked.broken[ranked.class_of_host]
        within_limits = np.flatnonzero(~broken)[: max(request.limit, MAX_TIES)]
        ranked_hosts = ranked.ranked_hosts(question, predictions, within_limits)
        steps_by_host, mitigated = _mitigate_hosts(question, classes, predictions, ranked, ranked_hosts)
    ranked_hosts = _merged([*ranked_hosts, *mitigated]) if mitigated else ranked_hosts
    mitigated_hosts = {host.host for host in mitigated}
    not_mitigated = [
        (position, host_class, int(ranked.option[host_class]))
        for position, host_class in zip(
            ranked.hosts[broken].tolist(), ranked.class_of_host[broken].tolist(), strict=True
        )
        if position not in mitigated_hosts
    ]
    scores = {
        question.snapshot.hosts[ranked_host.host].id: ranked_host.score for ranked_host in ranked_hosts[: request.limit]
    }
    shown = replace(question, request=replace(request, limit=detailed)) if 0 < detailed < request.limit else question
    with stage("explain"):
        answer = candidates(shown, ranked_hosts, remembered) if ranked_hosts and detailed else ()
    lowest = ranked.lowest[ranked.class_of_host].tolist()
    worse = losing(ranked.hosts.tolist(), lowest, request.limit, broken)
    rejected = rejections(question, classes, predictions, not_mitigated, steps_by_host)
    return answer, rejected, scores, worse, ranked.unpredicted


def _rank_all(
    question: PlacementQuestion, hosts: Ints, remembered: PredictionCache, *, pins: bool = True
) -> tuple[HostClasses, ClassPredictions, _RankedHosts]:
    """Predict and order the hosts at these positions; without `pins` as if none could be chosen."""
    classes = host_classes(question, hosts)
    predictions = predict_classes(question, classes, remembered, pins=pins)
    return classes, predictions, _rank_hosts(question, hosts, classes, predictions, remembered)


def _rank_promising(
    question: PlacementQuestion, hosts: Ints, remembered: PredictionCache
) -> tuple[HostClasses, ClassPredictions, _RankedHosts]:
    """The same of those that the answer is about.

    The most promising ones of each kind of host are predicted, and twice as many of a kind that has a host which is
    shown and not in the first quarter; more of all kinds while too few keep all limits. Of a learned model then those
    whose estimate, corrected as it corrected those that were predicted, comes near to what is shown, and pinnings at
    last (decision 194).
    """
    promise = by_promise(question, hosts, remembered)
    by_rank = promise.order[~promise.needed[promise.order]]
    shown = max(question.request.limit, 2)
    least = max(2 * question.request.limit, MAX_TIES)
    of_kind = [by_rank[promise.kind[by_rank] == one] for one in np.unique(promise.kind[by_rank]).tolist()]
    learned = question.predictor.origin != "analytic"
    some = LEARNED_FINALISTS if learned else FINALISTS
    share = max(min(some, len(hosts) // FIRST_PART), least) / max(len(by_rank), 1)
    counts = [max(math.ceil(share * len(places)), least) for places in of_kind]
    grows = [True]
    while any(grows):
        chosen = promise.needed.copy()
        for places, count in zip(of_kind, counts, strict=True):
            chosen[places[:count]] = True
        ranking = _rank_all(question, hosts[chosen], remembered, pins=not learned)
        best = ranking[2].within_limits[:shown]
        too_few = len(best) < question.request.limit
        grows = [
            count < len(places)
            and (too_few or (not learned and bool(np.isin(best, hosts[places[count // SURELY_FIRST : count]]).any())))
            for places, count in zip(of_kind, counts, strict=True)
        ]
        times = MORE_FOR_LIMITS if too_few else 2
        counts = [count * times if more else count for count, more in zip(counts, grows, strict=True)]
    if learned:
        # Of few hosts the first are a quarter already, and each further step costs as much as some of them.
        most = sum(counts) // FURTHER if len(hosts) // FIRST_PART >= LEARNED_FINALISTS else 0
        chosen[promise.further(chosen, *ranking[2].scores_of(hosts[chosen], shown))[:most]] = True
        ranking = _rank_all(question, hosts[chosen], remembered)
    classes, predictions, ranked = ranking
    return classes, predictions, replace(ranked, unpredicted=int((promise.doubtful & ~chosen).sum()))


def _rank_hosts(
    question: PlacementQuestion,
    hosts: Ints,
    classes: HostClasses,
    predictions: ClassPredictions,
    remembered: PredictionCache,
) -> _RankedHosts:
    """Choose the best option of every class, and order the hosts."""
    request = question.request
    option, best = best_options(question, classes, predictions)
    every, kept_for_others = np.arange(len(classes)), np.zeros(len(classes))
    if looks_ahead(question, hosts):
        kept_for_others = reserved(question, classes, remembered)
        best = best.less(kept_for_others)
    lowest = np.where(classes.present, predictions.expected[option, every], np.inf).min(axis=1)
    speed = np.full(len(classes), np.nan)
    if request.instance.service == "latency":
        speed = 1 / predictions.latency[option, every, -1]
    broken = best.breaks_new_vm | best.breaks_neighbour
    score, fine = best.score[classes.of], ~broken[classes.of]
    by_rank = scoring.order(score, hosts)
    if request.objective != "pack":
        least_shown = score[by_rank[fine[by_rank]]][: max(request.limit, MAX_TIES)].min(initial=np.inf)
        by_rank = _order(question, hosts, score, lowest[classes.of], speed[classes.of], least_shown)
    return _RankedHosts(hosts[by_rank], classes.of[by_rank], option, best, lowest, speed, broken, kept_for_others)


def _order(
    question: PlacementQuestion, hosts: Ints, score: Floats, lowest: Floats, speed: Floats, least_shown: float
) -> Ints:
    """Positions (H,) from best to worst: of equal scores first those where no instance is badly off, answers are quick,
    the instance is already, and most is left.

    All arrays are (H,). Headroom is looked at where it may decide who is shown, down to the score `least_shown`.
    """
    close = np.flatnonzero(score >= least_shown - scoring.EQUAL)
    least, fits = np.full(len(hosts), -np.inf), np.zeros(len(hosts))
    if len(close):
        headroom = headroom_of(question, hosts[close])
        least[close], fits[close] = headroom.least, headroom.one_node
    return scoring.order(
        scoring.grouped(score, scoring.EQUAL),
        hosts,
        scoring.grouped(lowest, scoring.NOTICED),
        np.nan_to_num(scoring.grouped(speed, scoring.NOTICED)),
        np.isin(hosts, [own for own, _ in question.snapshot.where(question.request.instance.id)]).astype(np.float64),
        fits,
        least,
    )


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
    if not question.request.mitigate:
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
            (ranked_host,) = ranked.ranked_hosts(question, predictions, np.array([rank]))
            steps_by_host[ranked_host.host], mitigated_host = mitigate(
                question, classes, predictions, ranked_host, host_class, others
            )
            mitigated += [mitigated_host] if mitigated_host else []
            failed_classes |= set() if mitigated_host else {host_class}
    return steps_by_host, mitigated


def _merged(ranked_hosts: Sequence[RankedHost]) -> list[RankedHost]:
    """In the order of scores; of equal ones in the order in which they are given."""
    score = np.array([ranked.score for ranked in ranked_hosts])
    by_rank = scoring.order(scoring.grouped(score, scoring.EQUAL), np.arange(len(score)))
    return [ranked_hosts[at] for at in by_rank.tolist()]


def predict_scene(
    scene: Scene, predictor: Predictor, *, workloads: Sequence[WorkloadProfile], targets: Collection[str] = TARGETS
) -> SceneEffects:
    """The effects of one scene's instances on each other; workloads of the scene itself override `workloads`, and what
    is not among `targets` is nan.

    ValueError when an instance is pinned beyond the host's pCPUs.
    """
    table = ProfileTable.build((*workloads, *scene.workloads))
    posted = posted_of(predictor)
    if posted is not None:
        table = replace(table, subjects=posted.subjects)
    batch = build_batch([(scene.host, scene.instances)], table)
    prediction = predictor.predict(batch, targets)
    effects = scene_effects(prediction, [instance.id for instance in scene.instances])
    combined = sum(effect.throughput_ratio.expected for effect in effects)
    return SceneEffects(predictor.version, predictor.origin, False, effects, combined, crowded(prediction, 0))
