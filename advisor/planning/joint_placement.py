"""Several new VMs at once, with residents that move for them where that pays."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import (
    BurstFigures,
    BurstTrial,
    Candidate,
    Host,
    Instance,
    JointSearch,
    Move,
    Objective,
    PlacementRequest,
    PlanRequest,
    Recommendation,
)
from advisor.placement import sequential
from advisor.placement.evidence import with_class
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.packing_problem import NO_LIMIT, Goal
from advisor.planning.migration_order import ScheduledChange, schedule
from advisor.planning.migration_time import MigrationLimits
from advisor.planning.plan_context import PlanContext, changes_of
from advisor.planning.repair import MeasuredMoves, Rest
from advisor.prediction import active
from advisor.prediction.active import QuestionContext, crowded, effect
from advisor.rounding import SLACK
from advisor.scheduling import filters, scoring
from advisor.scheduling.pinning import with_own_profile
from advisor.snapshot import ClusterSnapshot, share_promised
from models.arrays import Floats
from models.data.scene import affinity_on, build_batch, slot_values, stack
from models.prediction import Predictor

# Candidates for the new VMs of a plan: predicted effects on the host that the plan gives them.

ARRIVALS_PER_PREDICTION = 2048  # new VMs in one prediction
Arrival = tuple[Host, Sequence[Instance], Instance]  # host, its residents, the new VM


def candidates(
    start: ClusterSnapshot, scheduled: Sequence[ScheduledChange], predictor: Predictor, objective: Objective
) -> Mapping[str, Candidate]:
    """The candidate of every new VM at the moment of its step, by id."""
    arrivals = _arrivals(start, scheduled)
    by_id: dict[str, Candidate] = {}
    for first in range(0, len(arrivals), ARRIVALS_PER_PREDICTION):
        by_id |= _predicted(start, arrivals[first : first + ARRIVALS_PER_PREDICTION], predictor, objective)
    return by_id


def _arrivals(start: ClusterSnapshot, scheduled: Sequence[ScheduledChange]) -> list[Arrival]:
    positions = start.names.positions
    now = [{instance.id: instance for instance in residents} for residents in start.residents]
    arrivals: list[Arrival] = []
    for step in scheduled:
        then, former = step.change.then, step.change.former
        at = positions[then.host or ""]
        if former is None:
            arrivals.append((start.hosts[at], tuple(now[at].values()), then))
        else:
            now[positions[former.host or ""]].pop(then.id, None)
        now[at][then.id] = then
    return arrivals


def _predicted(
    start: ClusterSnapshot, arrivals: Sequence[Arrival], predictor: Predictor, objective: Objective
) -> Mapping[str, Candidate]:
    table = start.scenes.table
    absent = build_batch([(host, residents) for host, residents, _ in arrivals], table)
    width = absent.driver_cpus.shape[1]
    slots = [
        slot_values(
            new_vm,
            table.row(new_vm.workload, host.platform),
            affinity_on(host, new_vm, width),
            table.subject(new_vm),
        )
        for host, _, new_vm in arrivals
    ]
    scenes = absent.with_slot(**{name: np.stack([slot[name] for slot in slots]) for name in slots[0]})
    present_before = np.zeros_like(scenes.present)
    present_before[:, :-1] = absent.present
    without_new_vm = scenes.with_last(present=False)
    prediction = predictor.predict(stack([without_new_vm, scenes]))
    count = len(arrivals)
    before, after = prediction.take(slice(count)), prediction.take(slice(count, None))
    former_ratios = np.where(present_before, before.throughput.expected, 1.0)
    half_before = np.where(present_before, before.throughput.expected - before.throughput.lower, 0.0)
    limits = _limits(arrivals, scenes.slots, "min_throughput_ratio")
    waits, shorts = (_limits(arrivals, scenes.slots, name) for name in ("max_latency_ratio", "max_time_short"))
    ceilings = scoring.ceilings(after, before, present_before, waits, shorts)
    vcpu_use = [share_promised(host, (*residents, new_vm)) for host, residents, new_vm in arrivals]
    scores = scoring.score(
        after,
        scenes.present,
        former_ratios,
        limits,
        np.array(vcpu_use),
        objective,
        ceilings,
        half_before,
        scoring.more_short(after.time_short(), np.where(present_before, before.time_short(), 0.0), scenes.profiled),
    )
    by_id = {}
    for row, (host, residents, new_vm) in enumerate(arrivals):
        neighbours = [effect(resident.id, after, row, slot, before) for slot, resident in enumerate(residents)]
        by_id[new_vm.id] = Candidate(
            rank=1,
            host=host.id,
            score=float(scores.score[row]),
            combined_score=float(scores.combined[row]),
            pinning=new_vm.settings.pinning,
            isolation=new_vm.settings,
            new_vm=effect(new_vm.id, after, row, scenes.slots - 1),
            neighbours=tuple(sorted(neighbours, key=lambda shown: shown.instance)),
            crowded=crowded(after, row),
        )
    return by_id


def _limits(arrivals: Sequence[Arrival], slots: int, name: str) -> Floats:
    """A limit of every instance, the new VM in the last slot, nan = none; (S, N)."""
    limits = np.full((len(arrivals), slots), np.nan)
    for row, (_, residents, new_vm) in enumerate(arrivals):
        for slot, instance in (*enumerate(residents), (slots - 1, new_vm)):
            limit = getattr(instance, name)
            limits[row, slot] = np.nan if limit is None else limit
    return limits


# Moves that pay, for schedulers that carry them out themselves: a rebalance in which each mover has its own hosts.


def paying_moves(
    snapshot: ClusterSnapshot,
    context: QuestionContext,
    targets: Mapping[str, Sequence[str]],
    *,
    most: int,
    within_s: float,
    moved: MeasuredMoves = tuple,
) -> tuple[Move, ...]:
    """At most `most` moves that a rebalance would make, in an order in which each breaks no limit.

    `targets` maps the instances that may move to their allowed hosts. No instance takes a detour over a third host,
    because such a scheduler knows one move of each instance. Instances that
    `moved` lately rest. The search stops after `within_s` seconds.
    """
    if within_s <= 0 or not targets:
        return ()
    request = PlanRequest(kind="rebalance", movable=tuple(targets), max_moves=most, time_limit_s=within_s)
    plan = PlanContext.of(request, context.active, now=context.now, fresh_s=context.fresh_s)
    plan = replace(plan, rest=Rest.of(snapshot, moved(), context.now, request.rest_h))
    limit_s = max(min(within_s, plan.left_s / 2), 0.01)
    goal = replace(
        plan.goal(snapshot, "rebalance", (), limit_s),
        targets_of={name: frozenset(hosts) for name, hosts in targets.items()},
    )
    assignment = assign(snapshot, context.active, goal, now=context.now, fresh_s=context.fresh_s)
    former = {instance.id: instance for residents in snapshot.residents for instance in residents}
    ordered = schedule(
        snapshot,
        changes_of(assignment, former),
        context.active.predictor,
        keep_ratio=request.keep_ratio,
        limits=MigrationLimits.of(request),
        between=(),
        most_moves=most,
    )
    moves = []
    for step in ordered.scheduled:
        then, source, gain = step.change.then, step.change.former, step.change.gain
        if source is not None and then.host is not None and gain is not None:
            why = f"reduces the loss of the instances on both hosts by {gain.expected:.2f}, beyond uncertainty"
            moves.append(Move(then.id, source.host or "", then.host, why, gain=gain.expected))
    return tuple(moves)


PLAN_SHARE = 0.4  # of the time that is left, for one plan; its hosts are answered in turn after it
# By the objective of the answers, whose own plan comes first.
PLANS: dict[Objective, tuple[Objective, ...]] = {
    "worst": ("worst", "total"),
    "total": ("total", "worst"),
    "limits": ("limits", "worst", "total"),
    "pack": ("pack", "worst", "total"),
}
PLANNED: dict[Objective, BurstTrial] = {
    "worst": "planned_worst", "total": "planned_total", "limits": "planned_limits", "pack": "planned_pack",
}  # fmt: skip
EQUAL_HARM = 1e-6  # of harms that differ by no more the earlier trial is kept


@dataclass(frozen=True, slots=True)
class JointAnswer:
    """The answers in the order of their questions, and how they were found."""

    answers: tuple[Recommendation, ...]
    search: JointSearch


def place_jointly(
    snapshot: ClusterSnapshot,
    context: QuestionContext,
    requests: Sequence[PlacementRequest],
    *,
    until: float,
    former: JointAnswer | None = None,
) -> JointAnswer:
    """One answer per question, together at least as good as in the given order; checked requests of one objective.

    The first trial answers in turn in the given order. The others answer in turn with the largest first, and on the
    hosts that plans find, so that each answer keeps what an answer in turn keeps. The trial with the fewest instances
    without a host is kept, of those the one with the least harm; with `pack` fewer instances that are not kept, and
    then fewer hosts in use, come before harm. After `until`, by the monotonic clock, nothing more is tried.

    The same questions on the same cloud have the same answer unless time ends the search. With the `former` answer to
    these questions, on a cloud that has changed since, its hosts are the only other trial, and nothing is searched.
    """
    knowing = sequential.knowing_profiles(snapshot, requests)
    return active.ask(
        context.active,
        lambda answering: _BurstSearch(knowing, replace(context, active=answering), tuple(requests), until).answer(
            former
        ),
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """Answers in the order of their questions, and the cloud with all of them carried out."""

    answers: tuple[Recommendation, ...]
    after: ClusterSnapshot


@dataclass(frozen=True, slots=True)
class _BurstSearch:
    snapshot: ClusterSnapshot
    context: QuestionContext
    requests: tuple[PlacementRequest, ...]
    until: float

    @property
    def left_s(self) -> float:
        return self.until - time.monotonic()

    @property
    def objective(self) -> Objective:
        return self.requests[0].objective if self.requests else "worst"

    def answer(self, former: JointAnswer | None) -> JointAnswer:
        objective = self.objective
        predictor = self.context.active.predictor
        in_turn = self._in_turn(range(len(self.requests)), until=math.inf)
        assert in_turn is not None  # noqa: S101 - without a time limit it is finished
        best = in_turn
        chosen: BurstTrial = "given"
        given_figures = best_figures = figures(in_turn.after, in_turn.answers, predictor, objective)
        tried: list[BurstTrial] = ["given"]
        in_time = True
        for name, trial in self._trials(former):
            if trial is None:
                in_time = False
                continue
            tried.append(name)
            trial_figures = figures(trial.after, trial.answers, predictor, objective)
            if _better(trial_figures, best_figures, objective):
                best, chosen, best_figures = trial, name, trial_figures
        search = JointSearch(chosen, tuple(tried), "search" if in_time else "time", best_figures, given_figures)
        if former is not None:
            search = replace(search, tried=former.search.tried, ended=former.search.ended)
        return JointAnswer(best.answers, search)

    def _trials(self, former: JointAnswer | None) -> Iterator[tuple[BurstTrial, _Placed | None]]:
        """The trials beside the given order, None = time was over before it was finished."""
        if len(self.requests) < 2:
            return
        if former is not None:
            hosts = {
                answer.request.instance.id: answer.candidates[0].host for answer in former.answers if answer.candidates
            }
            yield (
                former.search.chosen,
                self._in_turn(self._named_first(range(len(self.requests))), hosts, until=math.inf),
            )
            return
        yield "largest_first", self._in_turn(self._largest_first(), until=self.until)
        for objective in PLANS[self.objective]:
            planned = self._planned(objective) if self.left_s > 0 else None
            order = self._named_first(range(len(self.requests)))
            yield PLANNED[objective], None if planned is None else self._in_turn(order, planned, until=self.until)

    def _in_turn(self, order: Sequence[int], hosts: Mapping[str, str] | None = None, *, until: float) -> _Placed | None:
        """The answers in turn in this order, None when time is over first.

        Where `hosts` has one for an instance, it is asked about alone, and all others only if that refuses.
        """
        turn, answers = sequential.Turn(self.snapshot, self.context), dict[int, Recommendation]()
        for position in order:
            if time.monotonic() > until:
                return None
            request = self.requests[position]
            answers[position] = turn.ask(request, (hosts or {}).get(request.instance.id))
        return _Placed(tuple(answers[position] for position in range(len(self.requests))), turn.snapshot)

    def _largest_first(self) -> list[int]:
        """The order by the largest share of the cloud's vCPUs or memory."""
        vcpus = sum(host.pcpus for host in self.snapshot.hosts) or 1
        memory = sum(host.memory_mb for host in self.snapshot.hosts) or 1
        instances = [request.instance for request in self.requests]
        shares = [max(instance.vcpus / vcpus, instance.memory_mb / memory) for instance in instances]
        return self._named_first(sorted(range(len(instances)), key=lambda at: -shares[at]))

    def _named_first(self, order: Sequence[int]) -> list[int]:
        """The same order, but first those that others are to be beside: an instance cannot be placed beside one that
        is not there yet."""
        named = {name for request in self.requests for name in request.constraints.affinity}
        return sorted(order, key=lambda at: self.requests[at].instance.id not in named)

    def _planned(self, objective: Objective) -> Mapping[str, str]:
        """The hosts of a plan that admits all, by instance; one that finds none is left out."""
        new_vms = {
            request.instance.id: with_own_profile(with_class(self.snapshot, request)) for request in self.requests
        }
        base = self.snapshot.without(new_vms)
        allowed = {
            request.instance.id: frozenset(
                base.hosts[at].id for at in filters.apply(base, request, fresh_s=self.context.fresh_s)[0]
            )
            for request in self.requests
        }
        stale_too = any(request.constraints.allow_stale for request in self.requests)
        goal = Goal(
            aim="admit",
            new_vms=tuple(replace(new_vm, host=None) for new_vm in new_vms.values()),
            targets_of=allowed,
            objective=objective,
            keep_ratio=NO_LIMIT,  # as in a placement, only limits of their own protect instances
            time_limit_s=max(self.left_s * PLAN_SHARE, 0.01),
        )
        fresh_s = math.inf if stale_too else self.context.fresh_s
        solution = assign(base, self.context.active, goal, now=self.context.now, fresh_s=fresh_s)
        return {name: host for name, host in solution.where.items() if host is not None}


def figures(
    after: ClusterSnapshot, answers: Sequence[Recommendation], predictor: Predictor, objective: Objective
) -> BurstFigures:
    """What the answers do together to every instance on the hosts that they use, as if all new VMs came at once.

    The harm of one answer is 1 - its score, before anything is kept for others. That of several is the same formula
    over every instance on all of these hosts: summed over hosts it would count less where two are harmed on the same
    one. For `pack` it is that of `worst`.
    """
    placed = {answer.request.instance.id: answer.candidates[0].host for answer in answers if answer.candidates}
    hosts_used = int(after.scenes.present.any(axis=1).sum()) if after.hosts else 0
    if not placed:
        return BurstFigures(0, 0, hosts_used, 0.0)
    hosts = np.array(sorted({after.names.positions[host] for host in placed.values()}), dtype=np.int64)
    scenes = after.scenes.take(hosts)
    resident = scenes.present.copy()
    for row, host in enumerate(hosts.tolist()):
        for slot, instance in enumerate(after.residents[host]):
            resident[row, slot] &= instance.id not in placed
    prediction = predictor.predict(stack([replace(scenes, present=resident), scenes]))
    was, then = prediction.take(slice(len(hosts))), prediction.take(slice(len(hosts), None))
    expected, present = then.throughput.expected, scenes.present
    ratio_before = np.where(resident, was.throughput.expected, 1.0)
    doubt_before = np.where(resident, was.throughput.expected - was.throughput.lower, 0.0)
    doubt = np.where(present, np.maximum(expected - then.throughput.lower - doubt_before, 0.0), 0.0)
    limits = after.min_ratio[hosts]
    if objective == "total":
        lost = np.where(present, ratio_before - expected, 0.0).sum()
        harm = float(lost + scoring.CAUTION * np.sqrt((doubt**2).sum()))
    else:
        short_before = np.where(resident, was.time_short(), 0.0)
        more_short = scoring.more_short(then.time_short(), short_before, scenes.profiled)
        losses = np.where(present, scoring.losses(expected, doubt, ratio_before, more_short), 0.0)
        harm = scoring.harm(float(losses.max()), float(losses.sum()))
    if objective == "limits":
        more = scoring.chance_below(expected, expected - then.throughput.lower, limits, ratio_before)
        harm = scoring.HARM_COUNTS * harm + float(np.where(present, more, 0.0).sum())
    needed = np.minimum(np.where(np.isnan(limits), scoring.KEPT, limits), ratio_before)
    not_kept = present & (expected < needed - SLACK)
    return BurstFigures(len(placed), int(not_kept.sum()), hosts_used, harm)


def _better(one: BurstFigures, other: BurstFigures, objective: Objective) -> bool:
    """Whether the first is better, its harm by more than rounding."""
    first, second = (
        (-it.placed, *((it.not_kept, it.hosts_used) if objective == "pack" else ())) for it in (one, other)
    )
    return first < second or (first == second and one.harm < other.harm - EQUAL_HARM)
