"""The strategy of each aim: which searches run in which order, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Band
from advisor.domain.plans import PlanEnd, Search
from advisor.planning.assignment import packing, pattern_sets, rebalancing, solver
from advisor.planning.assignment.bounds import fewest_hosts_if_all_move, relaxation_bound
from advisor.planning.assignment.consolidation import empty_hosts
from advisor.planning.assignment.ejection_chain import insert_by_ejection
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.local_search import SearchClock, improve, place_each
from advisor.planning.assignment.move_value import KindMove
from advisor.planning.assignment.objectives import levels, lexicographically_less, objective_values
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import SearchState, dominant_share, hosts_in_use, plus
from advisor.planning.assignment.search_summary import overcommitted, summarize

FEW_PLACEMENTS = 5_000  # hosts times instances: up to so many, placement in turn is tried in several orders
SOLVER_SHARE = 0.5  # of the remaining time


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The final state, its costs level by level, and the gain of each move."""

    goal: Goal
    state: SearchState
    values: tuple[float, ...]
    search: Search
    gains: Mapping[KindMove, Band]


def search(state: SearchState, goal: Goal, clock: SearchClock) -> SearchResult:
    """Search for the best state; new VMs that already have a host start there."""
    random = np.random.default_rng(goal.seed)
    gains: Mapping[KindMove, Band] = {}
    if goal.aim == "rebalance":
        search, gains = _rebalanced(state, goal, clock)
    elif goal.aim == "consolidate":
        search = _consolidated(state, goal, clock)
    else:
        search = _placed(state, goal, random, clock)
    return SearchResult(goal, state, objective_values(goal, state, _unplaced(state)), search, gains)


def _placed(state: SearchState, goal: Goal, random: np.random.Generator, clock: SearchClock) -> Search:
    """Place waiting instances in turn in several orders, packed where some have no host, then search and solve."""
    problem = state.problem
    if not problem.waiting:
        return summarize(goal, state, objective_values(goal, state, 0), "already fine", None)
    orders = [problem.waiting]
    if problem.hosts * len(problem.waiting) <= FEW_PLACEMENTS:
        orders.append(tuple(sorted(problem.waiting, key=lambda kind: (-dominant_share(state, kind), kind))))
    starts = [(order, problem.initial) for order in orders]
    advised = any(attempt.host for attempt in goal.new_vms)
    if advised:
        starts = [_seated(state, goal)]
    attempts = []
    for order, start in starts:
        state.place_all(start)
        left = place_each(state, order, random, clock)
        attempts.append((objective_values(goal, state, len(left)), list(state.movers), left))
    if all(left for _, _, left in attempts) and not advised and not clock.over:
        state.place_all(problem.initial)
        left = place_each(state, packing.pack(state, problem.waiting, clock), random, clock)
        attempts.append((objective_values(goal, state, len(left)), list(state.movers), left))
    best = attempts[0]
    for attempt in attempts[1:]:
        best = attempt if lexicographically_less(attempt[0], best[0]) else best
    state.place_all(best[1])
    ended = improve(state, random, clock)
    if best[2]:
        left = insert_by_ejection(state, place_each(state, best[2], random, clock), random, clock)
        ended = improve(state, random, clock) if len(left) < len(best[2]) else ended
    solved = _solved(state, goal, clock, None)
    unplaced = _unplaced(state)
    solved = None if advised else solved  # it proves nothing for other settings
    return summarize(goal, state, objective_values(goal, state, unplaced), _end(unplaced, solved, ended), solved)


def _seated(state: SearchState, goal: Goal) -> tuple[tuple[int, ...], tuple[Kinds, ...]]:
    """The instances still to be placed, and the initial movers with new VMs on their advised hosts."""
    problem = state.problem
    movers = list(problem.initial)
    unplaced: list[int] = []
    for instance, kind in zip(goal.new_vms, problem.waiting, strict=True):
        host = problem.snapshot.index(instance.host) if instance.host else None
        if host is None:
            unplaced.append(kind)
            continue
        movers_here = plus(movers[host], kind)
        state.evaluator.evaluate([(host, movers_here)])
        if problem.fits(host, movers_here) and state.feasible(host, movers_here):
            movers[host] = movers_here
        else:
            unplaced.append(kind)
    return tuple(unplaced), tuple(movers)


def _consolidated(state: SearchState, goal: Goal, clock: SearchClock) -> Search:
    """Empty hosts, repack, then run the solver: fewest hosts, then fewest moves."""
    least = round(relaxation_bound("used", state, 0))
    if hosts_in_use(state) <= least:
        return summarize(goal, state, objective_values(goal, state, 0), _unchanged_end(state), None, bound=least)
    ended = empty_hosts(state, clock, goal.max_moves, least)
    if hosts_in_use(state) > least and not clock.over:
        ended = packing.repack(state, clock, goal.max_moves, least) and ended
    solved = _solved(state, goal, clock, goal.max_moves)
    unchanged = state.movers == list(state.problem.initial) and ended
    ended_as = _unchanged_end(state) if unchanged else _end(0, solved, ended)
    return summarize(goal, state, objective_values(goal, state, 0), ended_as, solved, bound=least)


def _unchanged_end(state: SearchState) -> PlanEnd:
    """How to describe a cloud that already uses the fewest hosts.

    Immovable instances may be the only obstacle to fewer hosts, and a cloud with instances below a limit is not fine.
    """
    if any(state.problem.fixed) and fewest_hosts_if_all_move(state) < hosts_in_use(state):
        return "in the way"
    below = any(state.pattern(host).below for host in range(state.problem.hosts))
    return "search" if below else "already fine"


def _rebalanced(state: SearchState, goal: Goal, clock: SearchClock) -> tuple[Search, Mapping[KindMove, Band]]:
    result = rebalancing.rebalance(state, goal, clock)
    below = sum(len(state.pattern(host).below) for host in range(state.problem.hosts))
    ended: PlanEnd = "time" if clock.over and not result.ended else "search"
    if result.ended and (below or overcommitted(state)):
        ended = "in the way"
    elif result.ended and not result.gains:
        ended = "already fine"
    return summarize(goal, state, objective_values(goal, state, 0), ended, None, bound=result.bound), result.gains


def _solved(state: SearchState, goal: Goal, clock: SearchClock, most_moves: int | None) -> solver.SolverResult | None:
    """The solver's result where the patterns can be enumerated; applied where it is better than the current state."""
    if clock.over:
        return None
    pattern_set = pattern_sets.enumerate_patterns(state, state.movers)
    if pattern_set is None or clock.over:
        return None
    before, value_before = list(state.movers), objective_values(goal, state, _unplaced(state))
    result = solver.solve(pattern_set, levels(goal), before, most_moves=most_moves, seconds=clock.left_s * SOLVER_SHARE)
    state.place_all(result.movers)
    if not lexicographically_less(objective_values(goal, state, _unplaced(state)), value_before):
        state.place_all(before)
    return result


def _unplaced(state: SearchState) -> int:
    """The number of instances without a host."""
    problem = state.problem
    placed = sum(len(movers) for movers in state.movers)
    return len(problem.waiting) + sum(len(movers) for movers in problem.initial) - placed


def _end(unplaced: int, solved: solver.SolverResult | None, ended: bool) -> PlanEnd:
    if unplaced:
        return "in the way" if ended or (solved is not None and solved.proven) else "time"
    if solved is not None and solved.proven:
        return "optimal"
    return "search" if ended else "time"
