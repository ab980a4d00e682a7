"""Places new VMs beside the residents without moving anybody: fast, because any host will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.domain import Instance, Rejection
from advisor.planning.assignment import solution
from advisor.planning.assignment.ejection_chain import insert_by_ejection
from advisor.planning.assignment.local_search import SearchClock, place_each
from advisor.planning.assignment.packing import pack
from advisor.planning.assignment.packing_problem import build_problem
from advisor.planning.assignment.pattern_evaluator import PatternEvaluator
from advisor.planning.assignment.search_state import SearchState
from advisor.planning.plan_context import PlanContext
from advisor.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class PlacedBeside:
    """The cloud with those who found a host, and by id why the others did not.

    `in_time` is False where an instance was refused because the time ended.
    """

    after: ClusterSnapshot
    refused: Mapping[str, tuple[Rejection, ...]]
    in_time: bool = True


def place_beside(
    context: PlanContext, snapshot: ClusterSnapshot, new_vms: Sequence[Instance], clock: SearchClock
) -> PlacedBeside:
    """Place new VMs in turn, else packed tightly, else where another new VM makes room.

    No instance falls below a limit, and residents stay where they are. Only whether a host is found matters, not which.
    """
    if not new_vms or not snapshot.hosts:
        return PlacedBeside(snapshot, {instance.id: () for instance in new_vms})
    goal = context.goal(snapshot, "admit", new_vms, clock.left_s)
    problem = build_problem(snapshot, goal, context.fresh_s)
    state = SearchState.of(PatternEvaluator.of(problem, context.chosen.predictor), "pack")
    random = np.random.default_rng(context.request.seed)
    if len(new_vms) > 1 and place_each(state, problem.waiting, random, clock) and not clock.over:
        state.place_all(problem.initial)
        unplaced = place_each(state, pack(state, problem.waiting, clock), random, clock)
        insert_by_ejection(state, unplaced, random, clock)
    elif len(new_vms) == 1:
        place_each(state, problem.waiting, random, clock)
    where, _ = solution.final_hosts(state)
    after = solution.apply_assignment(snapshot, {instance.id: instance for instance in new_vms}, where)
    in_time = None not in where.values() or not clock.over
    refused = solution.rejections(state, after, goal, where, context.fresh_s) if in_time else dict.fromkeys(
        (name for name, host in where.items() if host is None), ()
    )  # fmt: skip
    return PlacedBeside(after, refused, in_time)
