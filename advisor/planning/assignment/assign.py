"""Assigns instances to hosts: starts from the advisor's own answers or the present, and searches on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from advisor.deadline import Progress
from advisor.domain import Host, Instance, listed, unpinned
from advisor.domain.plans import PlanEnd, Search
from advisor.domain.rules import has_soft
from advisor.placement import sequential
from advisor.planning.assignment import search_summary
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.objectives import levels, lexicographically_less
from advisor.planning.assignment.packing_problem import Assignment, Goal, build_problem, request_of
from advisor.planning.assignment.search_state import PatternEvaluator, SearchState
from advisor.planning.assignment.search_summary import LEVEL_NAMES, obstacles
from advisor.planning.assignment.strategies import FEW_PLACEMENTS, SearchResult, search
from advisor.planning.cloud_evaluation import required_ratios_of
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor, QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.prediction import Predictor

# Places new VMs one after another, each on the host and with the settings that a placement advises.


def place_in_turn(
    snapshot: ClusterSnapshot, chosen: ActivePredictor, goal: Goal, *, now: datetime, fresh_s: float, clock: SearchClock
) -> tuple[Mapping[str, Instance], bool]:
    """New VMs by id with the advised host and settings, and whether all of them were tried.

    Each placement sees the new VMs placed before it. New VMs that no host takes are left out. The loop stops when
    half of the remaining time is used; the second value is then False.

    Instances without a limit of their own get the plan's, so that the ranking protects what the plan must protect. A
    new VM gets the lowest limit over all hosts because its host is not known yet.
    """
    keep_s = clock.left_s / 2
    hosts = list(snapshot.hosts)
    pairs = [
        (host, instance) for host, residents in zip(hosts, snapshot.residents, strict=True) for instance in residents
    ]
    min_ratios = required_ratios_of(pairs, snapshot.scenes.table, goal.keep_ratio).tolist()
    limited_by_id = {
        instance.id: replace(instance, min_throughput_ratio=limit)
        for (_, instance), limit in zip(pairs, min_ratios, strict=True)
    }
    limited_placed = {name: limited_by_id[name] for name in snapshot.names.placed if name in limited_by_id}
    snapshot = snapshot.changed(
        instances=limited_placed,
        seen={},
        pending=[limited_by_id.get(instance.id, instance) for instance in snapshot.names.coming],
        taken_at=snapshot.taken_at,
    )
    advised_by_id: dict[str, Instance] = {}
    context = QuestionContext(chosen, now, fresh_s)
    for instance in goal.new_vms:
        if clock.left_s < keep_s:
            return advised_by_id, False
        request = replace(request_of(_limited(instance, hosts, snapshot, goal), goal, None), limit=1)
        recommendation = sequential.as_it_is(snapshot, context, request)
        if recommendation.candidates:
            step = sequential.there(recommendation)
            advised_by_id[instance.id] = replace(instance, host=step.host, settings=step.settings)
            snapshot = sequential.after(snapshot, step)
    return advised_by_id, True


def _limited(instance: Instance, hosts: Sequence[Host], snapshot: ClusterSnapshot, goal: Goal) -> Instance:
    min_ratios = required_ratios_of([(host, instance) for host in hosts], snapshot.scenes.table, goal.keep_ratio)
    return replace(instance, min_throughput_ratio=float(min_ratios.min()))


SEARCH_SHARE = 0.75  # of the time limit; steps already begun may take a tenth more, reporting takes the rest


def assign(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    goal: Goal,
    *,
    now: datetime,
    fresh_s: float,
    progress: Progress | None = None,
) -> Assignment:
    """Find the assignment that reaches the goal best.

    Limits and `keep_ratio` are checked on expected values, as in a placement. No instance falls below a limit unless it
    was below that limit before. Objectives are risk-averse: they subtract the ranking's CAUTION half widths. The full
    model predicts every host that is considered; losses of workload pairs only order the hosts of a large cloud. HiGHS
    solves small clouds over all patterns that a host can hold; local search solves the others.

    Where new VMs are few, they are also placed one after another with the settings that a placement advises, and the
    search continues from there. The better result is answered, so a plan is never worse than placement in turn. Bounds
    apply to plans that leave every instance's settings unchanged.

    The same question with the same seed has the same answer on every machine: `time_limit_s` stands for work
    (`advisor.work`) where that is counted. `Search.ended` is `time` where it, or the wall clock, ends the search.
    """
    return active.ask(
        chosen,
        lambda answering: _AssignmentSearch(snapshot, answering.predictor, goal, now, fresh_s, progress).answer(
            answering.notes
        ),
    )


@dataclass(frozen=True, slots=True)
class _AssignmentSearch:
    """One goal on one cloud with one predictor."""

    snapshot: ClusterSnapshot
    predictor: Predictor
    goal: Goal
    now: datetime
    fresh_s: float
    progress: Progress | None

    def answer(self, notes: Sequence[str]) -> Assignment:
        """The assignment; `notes` come from the choice of the predictor and are passed on."""
        goal, clock = self.goal, SearchClock.of(SEARCH_SHARE * self.goal.time_limit_s)
        if not self.snapshot.hosts:
            return self._without_hosts(notes)
        self._say("looking at the cloud", 0.0)
        already_placed = [instance.id for instance in goal.new_vms if instance.id in self.snapshot.names.placed]
        base = self.snapshot.without(already_placed) if already_placed else self.snapshot
        goal = replace(goal, new_vms=tuple(replace(instance, host=None) for instance in goal.new_vms))
        self._say("searching", 0.1)
        result = self._search(base, goal, clock)
        if goal.aim == "admit" and len(self.snapshot.hosts) * len(goal.new_vms) <= FEW_PLACEMENTS:
            self._say("placing one after another", 0.6)
            advised_by_id, all_tried = place_in_turn(
                base, ActivePredictor(self.predictor), goal, now=self.now, fresh_s=self.fresh_s, clock=clock
            )
            advised_new_vms = tuple(advised_by_id.get(instance.id, instance) for instance in goal.new_vms)
            advised_result = self._search(base, replace(goal, new_vms=advised_new_vms), clock)
            result = advised_result if lexicographically_less(advised_result.values, result.values) else result
            if not all_tried and result.search.ended == "search":
                result = replace(result, search=replace(result.search, ended="time"))
        result, broken = self._without_soft(base, goal, clock, result)
        self._say("choosing hosts", 0.9)
        return self._assignment(base, result, (*notes, *broken))

    def _without_soft(
        self, base: ClusterSnapshot, goal: Goal, clock: SearchClock, result: SearchResult
    ) -> tuple[SearchResult, tuple[str, ...]]:
        """Where instances find no host, the result in which their soft rules do not count, and a note of that."""
        if goal.aim not in {"admit", "evacuate"}:
            return result, ()
        where, _ = search_summary.final_hosts(result.state)
        residents = (one for there in base.residents for one in there)
        homeless = {name for name, host in where.items() if host is None}
        soft = sorted(one.id for one in (*goal.new_vms, *residents) if one.id in homeless and has_soft(one))
        if not soft or clock.over:
            return result, ()
        other = self._search(base, replace(result.goal, soft_off=frozenset(soft)), clock)
        if not lexicographically_less(other.values, result.values):
            return result, ()
        hosts, _ = search_summary.final_hosts(other.state)
        who = listed([name for name in soft if hosts.get(name) is not None])
        return other, (f"Not every soft rule could be kept of {who}.",)

    def _search(self, base: ClusterSnapshot, goal: Goal, clock: SearchClock) -> SearchResult:
        problem = build_problem(base, goal, self.fresh_s)
        state = SearchState.of(
            PatternEvaluator.of(problem, self.predictor), "pack" if goal.aim == "consolidate" else goal.objective
        )
        return search(state, goal, clock)

    def _assignment(self, base: ClusterSnapshot, result: SearchResult, notes: Sequence[str]) -> Assignment:
        state = result.state
        where, moves = search_summary.final_hosts(state)
        all_instances = (*self.goal.new_vms, *(instance for residents in base.residents for instance in residents))
        before = {instance.id: instance for instance in all_instances}
        planned = {**before, **{instance.id: instance for instance in result.goal.new_vms}}
        if self.goal.aim == "evacuate":
            planned |= {name: unpinned(before[name]) for name, host in where.items() if host is not None}
        after = search_summary.apply_assignment(base, planned, where)
        refused = search_summary.rejections(state, after, result.goal, where, self.fresh_s)
        self._say("done", 1.0)
        return Assignment(
            where=where,
            refused=refused,
            gains=search_summary.gains_by_name(moves, result.gains),
            settings={
                name: planned[name].settings for name in where if planned[name].settings != before[name].settings
            },
            after=after,
            search=result.search,
            notes=(*notes, *obstacles(state, result.goal, refused, result.search.ended)),
            below=search_summary.left_below(state, result.goal, result.search.ended),
        )

    def _without_hosts(self, notes: Sequence[str]) -> Assignment:
        waiting = self.goal.new_vms
        ended: PlanEnd = "in the way" if waiting else "already fine"
        return Assignment(
            where=dict.fromkeys((instance.id for instance in waiting), None),
            refused={instance.id: () for instance in waiting},
            gains={},
            settings={},
            after=self.snapshot,
            search=Search(LEVEL_NAMES[levels(self.goal)[0]], 0.0, 0.0, 0.0, ended),
            notes=(*notes, "The cloud has no hosts."),
        )

    def _say(self, what: str, share: float) -> None:
        if self.progress:
            self.progress(what, share)
