"""Placing: questions answered on the cloud as it is now, stored with their entry in the audit log, and hosts held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from advisor import deadline
from advisor.access.audit import Audit
from advisor.deadline import stage
from advisor.domain import HostRanking, Instance, Move, MoveSeen, PlacementRequest, Recommendation, Scene, SceneEffects
from advisor.errors import DeadlinePassed, NotFound, StorageLocked
from advisor.lifecycle import anomalies, monitoring
from advisor.lifecycle.monitoring import HowItHeld, Monitor
from advisor.placement import decision, sequential
from advisor.placement.requests import check_request, is_of_now
from advisor.planning.joint_placement import JointAnswer, paying_moves, place_jointly
from advisor.planning.repair import MOST_S
from advisor.prediction.active import QuestionContext
from advisor.serving.recommendations import EncodedRecommendation, answer
from advisor.serving.snapshot_cache import CloudView, SnapshotCache, as_pending
from advisor.settings import Settings
from advisor.snapshot import ClusterSnapshot
from advisor.store import answers as recommendations
from advisor.store import counters, hosts, instances, stays
from advisor.store.engine import SILENCE_S
from advisor.store.instances import Pending
from advisor.store.transactions import LaterWrites, Transactions, found_soon

T = TypeVar("T")
_ELSEWHERE = timedelta(seconds=5)  # for so long after an answer was held another client is taken to be placing, too
_SEARCHED = 0.5  # of the time that a question has left, at most, for a joint search; the rest is for its answers
_ATTEMPTS = 1  # at an answer that no other replica's answer overtakes, before the others wait for it
_CROWDED = timedelta(seconds=5)  # for which, once one was overtaken, the others wait at once: none is made in vain
_ALONE_S = 0.5  # in which an answer is made while others wait; twice as much each time that it was not enough


class PlacementService:
    """Where instances should go on the cloud as it is now, pending answers included; thread-safe.

    `stored` is called after answers were stored.
    """

    def __init__(
        self,
        cache: SnapshotCache,
        monitor: Monitor,
        audit: Audit,
        settings: Settings,
        transactions: Transactions,
        later: LaterWrites,
        clock: Callable[[], datetime],
        stored: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._monitor = monitor
        self._audit = audit
        self._settings = settings
        # Who lost power asks again: an answer must not wait for the disk.
        self._read, self._write = transactions.read, partial(transactions.write, synced=False)
        self._later = later
        self._clock = clock
        self._stored = stored
        self._one_at_a_time = threading.Lock()
        self._crowded_until_s = 0.0  # of the monotonic clock: other replicas hold answers, too

    def predict(self, scene: Scene) -> SceneEffects:
        """What co-located instances do to each other; workloads that the scene lacks are looked up by name.

        An instance of unknown demand counts as in a placement, with what is estimated from similar ones of the cloud.
        """
        view, active = self._cache.at(self._clock())
        own = {workload.name for workload in scene.workloads}
        estimated = (one if one.workload in own else view.snapshot.with_class(one) for one in scene.instances)
        scene = replace(scene, instances=tuple(estimated))
        effects = decision.answer_scene(active, scene, view.inventory.workloads)
        with self._read() as connection:
            factors = self._monitor.factors(connection, effects.model_version, [scene.host], view.doubted)
        return monitoring.inflated_scene(effects, scene.host, factors)

    def place(self, request: PlacementRequest) -> EncodedRecommendation:
        """Answer and store; unless it is a dry run, the first candidate counts as placed for `reserve_s` seconds."""
        check_request(request)
        if request.dry_run or self._settings.reserve_s == 0:
            encoded, _ = self._answer(request, former=True)
            with stage("store"):
                self._later.write(
                    partial(self._keep, recommendation=encoded, held=False),
                    key=encoded.head.id,
                    value=encoded,
                    synced=False,
                )
            self._stored()
            return encoded
        with self._one_at_a_time:  # in this process, so that each answer counts in the former ones

            def attempt(alone: Connection | None) -> EncodedRecommendation | None:
                encoded, view = self._answer(request, former=False)
                return encoded if self._hold([encoded], view, alone=alone) else None

            return self._until_held(attempt)

    def in_turn(
        self,
        requests: Sequence[PlacementRequest],
        *,
        hold: bool,
        holds_next: bool = False,
        without: Collection[str] = (),
    ) -> tuple[Recommendation, ...]:
        """Answer for a scheduler that puts instances on hosts and changes no settings.

        Each answer counts as carried out for the next one. With `hold` the answers are stored with their first
        candidates, which count as placed for `reserve_s` seconds. Without it, and without a candidate, each leaves
        only an entry in the audit log; `holds_next` leaves that out where a host was found, because the caller asks
        again and holds it. `without` are instances that count as gone.
        """
        for request in requests:
            check_request(request)
        if not hold:
            answers, _ = self._in_turn(requests, without)
            looks = [answer for answer in answers if not (holds_next and answer.candidates)]
            self._note_later(looks)
            return answers
        with self._one_at_a_time:

            def attempt(alone: Connection | None) -> tuple[Recommendation, ...] | None:
                answers, view = self._in_turn(requests, without)
                return answers if self._hold_first(answers, view, alone=alone) else None

            return self._until_held(attempt)

    def jointly(self, requests: Sequence[PlacementRequest], *, hold: bool, time_limit_s: float) -> JointAnswer:
        """The same as `in_turn`, but the order, or the hosts of a plan, may be others where that harms less.

        The search ends after `time_limit_s`, and at the latest with most of the caller's deadline. Meanwhile others may
        have hosts held. Where they did, or the inventory changed, the answers are made anew: on the hosts that were
        found, or in the given order where that is better by now.
        """
        for request in requests:
            check_request(request)
        until = time.monotonic() + min(time_limit_s, deadline.left_s() * _SEARCHED)
        if not hold:
            joint, _ = self._jointly(requests, until)
            self._note_later(joint.answers)
            return joint
        joint, view = self._jointly(requests, until)
        with self._one_at_a_time:

            def attempt(alone: Connection | None) -> JointAnswer | None:
                nonlocal joint, view
                if self._is_old(view):
                    joint, view = self._jointly(requests, until, joint)
                return joint if self._hold_first(joint.answers, view, alone=alone) else None

            return self._until_held(attempt)

    def scores(
        self, request: PlacementRequest, *, hold: bool, holds_next: bool = False, without: Collection[str] = ()
    ) -> HostRanking:
        """One such question of which only scores are wanted, which is less work: the answer has the first candidate
        where it is held, and none else."""
        check_request(request)
        if not hold:
            ranking, _ = self._ranked(request, without, detailed=0)
            if not (holds_next and ranking.scores):
                best = next(iter(ranking.scores), None)
                with stage("store"):
                    self._later.write(partial(self._note, recommendation=ranking.answer, best=best), synced=False)
            return ranking
        with self._one_at_a_time:

            def attempt(alone: Connection | None) -> HostRanking | None:
                ranking, view = self._ranked(request, without, detailed=1)
                answer = ranking.answer
                held, looks = ([_as_held(answer)], ()) if answer.candidates else ([], (answer,))
                return ranking if self._hold(held, view, looks, alone=alone) else None

            return self._until_held(attempt)

    def hold(self, placed: Sequence[Instance]) -> bool:
        """Count instances where their scheduler has put them, for `reserve_s` seconds; whether others place, too.

        Nothing is predicted for them, and only the audit log keeps it. Instances on a host that is not known are left
        out. Others are callers that had an answer held in the last seconds.
        """
        now = self._clock()
        reserve = timedelta(seconds=self._settings.reserve_s)
        if not placed or not reserve:
            with self._read() as connection:
                return instances.answered_since(connection, now - _ELSEWHERE, reserve)
        with self._in_turn_to_hold() as connection:
            counters.bump(connection, "pending")
            instances.purge_pending(connection, now, reserve)
            known_hosts = hosts.staying(connection, [instance.host for instance in placed if instance.host])
            on_known_hosts = [instance for instance in placed if instance.host in known_hosts]
            instances.hold_pending(
                connection, [Pending("", instance, None, now + reserve) for instance in on_known_hosts]
            )
            if on_known_hosts:
                self._audit.record(
                    connection, "placement.hold", [instance.id for instance in on_known_hosts], hosts=len(known_hosts)
                )
            return instances.answered_since(connection, now - _ELSEWHERE, reserve)

    def release(self, instance_ids: Sequence[str]) -> None:
        """Hold no host for these instances any longer: their scheduler gave up. Who holds none is left alone."""
        with self._in_turn_to_hold() as connection:
            if instances.drop_pending(connection, instance_ids):
                counters.bump(connection, "pending")
                self._audit.record(connection, "placement.release", list(instance_ids))

    def get(self, recommendation_id: str) -> Recommendation:
        """A stored answer; NotFound when there is none such."""
        waiting = self._later.find(recommendation_id)
        if isinstance(waiting, EncodedRecommendation):
            return waiting.recommendation

        def find() -> Recommendation | None:
            with self._read() as connection:
                return recommendations.get(connection, recommendation_id)

        stored = found_soon(find, is_new=is_of_now(recommendation_id, self._clock()))
        if stored is None:
            raise NotFound(f"there is no recommendation {recommendation_id}")
        return stored

    def evacuation(self, host: str, targets: Sequence[str] | None = None) -> tuple[Move, ...]:
        """Where the residents of a host go when it is emptied, `targets` None = to any other host; holds nothing."""
        return self._moves([host], lambda snapshot, context: sequential.evacuation(snapshot, context, host, targets))

    def improvements(self, targets: Mapping[str, Sequence[str]], *, most: int, within_s: float) -> tuple[Move, ...]:
        """The moves of a rebalance in which the instances in `targets` may go to their hosts; holds nothing."""

        def find(snapshot: ClusterSnapshot, context: QuestionContext) -> tuple[Move, ...]:
            return paying_moves(snapshot, context, targets, most=most, within_s=within_s, moved=self._moved)

        return self._moves([], find)

    def _moved(self) -> tuple[MoveSeen, ...]:
        with self._read() as connection:
            return stays.moves(connection, self._clock().timestamp() - MOST_S)

    def _moves(
        self, about: Sequence[str], find: Callable[[ClusterSnapshot, QuestionContext], tuple[Move, ...]]
    ) -> tuple[Move, ...]:
        now = self._clock()
        with self._read() as connection:
            view, chosen = self._cache.seen_by(connection, now)
        advised = find(view.snapshot, QuestionContext(chosen, now, self._settings.fresh_s))
        going = [(move.instance, move.target) for move in advised if move.target]
        names = dict.fromkeys([*about, *(name for pair in going for name in pair)])
        detail = {"moves": len(going), "stuck": len(advised) - len(going), "model": chosen.predictor.version}
        self._later.write(
            lambda connection: self._audit.record(connection, "moves.answer", list(names), **detail), synced=False
        )
        return advised

    def _answer(self, request: PlacementRequest, *, former: bool) -> tuple[EncodedRecommendation, CloudView]:
        now = self._clock()
        with stage("snapshot"), self._read() as connection:
            view, chosen = self._cache.seen_by(connection, now)
            own = chosen.predictor.version
            how_it_held = self._monitor.how_it_held(connection, own, view.inventory.hosts, view.doubted)
        encoded = answer(
            view.snapshot,
            QuestionContext(chosen, now, self._settings.fresh_s),
            request,
            self._cache.answers(view, chosen, now),
            lambda version: how_it_held if version == own else self._how_it_held(version, view),
            alarms=view.alarms,
            former=former,
        )
        return encoded, view

    def _in_turn(
        self, requests: Sequence[PlacementRequest], without: Collection[str]
    ) -> tuple[tuple[Recommendation, ...], CloudView]:
        view, snapshot, context = self._asked_about(without)
        return self._widened(sequential.in_turn(snapshot, context, requests), view), view

    def _jointly(
        self, requests: Sequence[PlacementRequest], until: float, former: JointAnswer | None = None
    ) -> tuple[JointAnswer, CloudView]:
        view, snapshot, context = self._asked_about(())
        joint = place_jointly(snapshot, context, requests, until=until, former=former)
        return replace(joint, answers=self._widened(joint.answers, view)), view

    def _is_old(self, view: CloudView) -> bool:
        """Whether answers were held, or the inventory changed, since this view was taken."""
        with self._read() as connection:
            now = counters.read(connection)
        return (now.inventory, now.pending) != (view.counts.inventory, view.counts.pending)

    def _widened(self, answers: Sequence[Recommendation], view: CloudView) -> tuple[Recommendation, ...]:
        """The answers with intervals as wide as outcomes showed that they must be, and with alarms."""
        held = {version: self._how_it_held(version, view) for version in {answer.model_version for answer in answers}}
        wide = (monitoring.inflated_recommendation(answer, held[answer.model_version]) for answer in answers)
        return tuple(anomalies.annotated(answer, view.alarms) for answer in wide)

    def _ranked(
        self, request: PlacementRequest, without: Collection[str], *, detailed: int
    ) -> tuple[HostRanking, CloudView]:
        view, snapshot, context = self._asked_about(without)
        ranking = sequential.ranked_as_it_is(snapshot, context, request, detailed=detailed)
        begun = context.now - _ELSEWHERE + timedelta(seconds=self._settings.reserve_s)
        if any(place.recommendation and place.expires_at > begun for place in view.pending):
            ranking = replace(ranking, per_host=False)
        if not detailed:
            return ranking, view
        answer = ranking.answer
        wide = monitoring.inflated_recommendation(answer, self._how_it_held(answer.model_version, view))
        return replace(ranking, answer=anomalies.annotated(wide, view.alarms)), view

    def _asked_about(self, without: Collection[str]) -> tuple[CloudView, ClusterSnapshot, QuestionContext]:
        """The cloud as it is now, and without these instances."""
        now = self._clock()
        with stage("snapshot"), self._read() as connection:
            view, chosen = self._cache.seen_by(connection, now)
        snapshot = view.snapshot.without(without) if without else view.snapshot
        return view, snapshot, QuestionContext(chosen, now, self._settings.fresh_s)

    def _how_it_held(self, version: str, view: CloudView) -> HowItHeld:
        with self._read() as connection:
            return self._monitor.how_it_held(connection, version, view.inventory.hosts, view.doubted)

    def _until_held(self, attempt: Callable[[Connection | None], T | None]) -> T:
        """What an attempt gives that no other replica's answer overtook. Once one was overtaken, it is made, and its
        hosts are held, in a transaction for whose end every other replica's answer waits: no place is given twice.

        They wait for `_ALONE_S`. What takes longer is made beside them, so that most of it is remembered when they wait
        again.
        """
        crowded = time.monotonic() < self._crowded_until_s
        for _ in range(0 if crowded else _ATTEMPTS):
            if (given := attempt(None)) is not None:
                return given
            self._crowded_until_s = time.monotonic() + _CROWDED.total_seconds()
        alone_s = _ALONE_S
        while True:
            self._cache.at(self._clock())  # others do not wait while a cloud is laid out
            try:
                given = self._alone(attempt, alone_s)
            except DeadlinePassed:
                deadline.check()  # of the caller: then all is over
                given, alone_s = attempt(None), alone_s * 2
                if given is None:
                    continue
            if given is None:
                raise StorageLocked("other answers were held in between again and again; try again")
            return given

    def _alone(self, attempt: Callable[[Connection | None], T | None], most_s: float) -> T | None:
        """An attempt for whose end other replicas wait; DeadlinePassed, and nothing written, after this time."""
        with ExitStack() as opened:
            with stage("store"):
                connection = opened.enter_context(self._in_turn_to_hold())
                counters.hold(connection, "pending")
            with deadline.within(min(most_s, deadline.left_s())):
                return attempt(connection)

    def _in_turn_to_hold(self) -> AbstractContextManager[Connection]:
        """A transaction that waits for other replicas' answers for as long as its caller does."""
        return self._write(wait_s=min(max(deadline.left_s(), 0.0), SILENCE_S))

    def _hold_first(
        self, answers: Sequence[Recommendation], view: CloudView, *, alone: Connection | None = None
    ) -> bool:
        """Hold the first candidate of each answer and note those without one, as `_hold`."""
        looks = [answer for answer in answers if not answer.candidates]
        return self._hold([_as_held(answer) for answer in answers if answer.candidates], view, looks, alone=alone)

    def _hold(
        self,
        answers: Sequence[EncodedRecommendation],
        view: CloudView,
        looks: Sequence[Recommendation] = (),
        *,
        alone: Connection | None = None,
    ) -> bool:
        """Store answers, hold their hosts and note `looks`; False, and nothing written, when another answer was held
        since the view. `alone` is the transaction for which other answers wait already."""
        now = self._clock()
        reserve = timedelta(seconds=self._settings.reserve_s)
        until = now + reserve
        pending_by_answer = {
            answer.head.id: as_pending(answer.recommendation, until) for answer in answers if self._settings.reserve_s
        }
        coming = [place for place in pending_by_answer.values() if place is not None]
        opened = nullcontext(alone) if alone is not None else self._in_turn_to_hold()
        with stage("store"), opened as connection:
            if coming:
                if not counters.bump_from(connection, "pending", view.counts.pending):
                    return False
                instances.purge_pending(connection, now, reserve)
                # some may be gone since the snapshot
                known_hosts = hosts.staying(connection, [place.host for place in coming])
                instances.hold_pending(connection, [place for place in coming if place.host in known_hosts])
            for answer in answers:
                self._keep(connection, answer, held=pending_by_answer.get(answer.head.id) is not None)
            for look in looks:
                self._note(connection, look)
        self._stored()
        return True

    def _keep(self, connection: Connection, recommendation: EncodedRecommendation, *, held: bool) -> None:
        head = recommendation.head
        recommendations.add(connection, head, recommendation.stored)
        first = head.candidates[0].host if head.candidates else None
        about = [head.id, head.request.instance.id, *filter(None, [first])]
        detail = {"host": first, "dry_run": head.request.dry_run, "held": held, "model": head.model_version}
        self._audit.record(connection, "placement.answer", about, **detail)

    def _note_later(self, looks: Sequence[Recommendation]) -> None:
        def note(connection: Connection) -> None:
            for look in looks:
                self._note(connection, look)

        if looks:
            with stage("store"):
                self._later.write(note, synced=False)

    def _note(self, connection: Connection, recommendation: Recommendation, best: str | None = None) -> None:
        """The entry of an answer that is not stored; `best` is its host where it names none."""
        first = recommendation.candidates[0].host if recommendation.candidates else best
        about = [recommendation.request.instance.id, *filter(None, [first])]
        detail = {"host": first, "rejected": len(recommendation.rejected), "model": recommendation.model_version}
        self._audit.record(connection, "placement.look", about, **detail)


def _as_held(answer: Recommendation) -> EncodedRecommendation:
    """What is stored of a scheduler's answer: the host that is held, as if no other had been asked for."""
    request = replace(answer.request, limit=1)
    return EncodedRecommendation.only_stored(replace(answer, request=request, candidates=answer.candidates[:1]))
