"""Rebalancing: makes only moves whose gain exceeds their cost and their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Band
from advisor.planning.assignment import neighborhoods, pattern_sets, solver
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.local_search import HostChanges, SearchClock
from advisor.planning.assignment.move_cost import MoveCosts, less
from advisor.planning.assignment.move_value import (
    EXPECTED,
    KindMove,
    cost_of,
    gain,
    gain_between,
    is_worth_it,
    moves_made,
    undo_unworthy,
)
from advisor.planning.assignment.objectives import levels
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.pattern_evaluator import Pattern
from advisor.planning.assignment.search_state import SearchState
from advisor.scheduling.scoring import harm

HOSTS_PER_PREDICTION = 32  # source hosts in one prediction
MAX_TURNS = 6  # rounds of making and undoing moves
RatedChange = tuple[int, float, int, HostChanges]  # fewer below a limit (< 0), negative gain, moves, hosts afterwards


@dataclass(frozen=True, slots=True)
class RebalanceResult:
    """The gains by move, and how the search ended.

    `ended` is True when no further move is worth it, False when time or moves ran out. `bound` is the number of
    instances that stay below a limit in any plan.
    """

    gains: Mapping[KindMove, Band]
    ended: bool
    bound: float


def rebalance(state: SearchState, goal: Goal, clock: SearchClock) -> RebalanceResult:
    """Move instances while a move is worth it, then undo moves that no longer are.

    Where all patterns of the cloud can be enumerated, the solver finds the fewest moves that bring most instances
    within their limits; of these the worthwhile ones are made. A move is worth it when it gains
    (`move_value.gain`) more than its cost, `move_gain` and the uncertainty, and no instance falls below a limit. A
    rebalanced cloud is therefore left unchanged by the next rebalance.
    """
    costs = MoveCosts(state.problem, goal.pays_within_s, goal.host_mbit)
    bound = _by_solver(state, goal, clock, costs)
    ended = False
    for _ in range(MAX_TURNS):
        ended = _relieve(state, goal, clock, costs) and _moves(state, goal, clock, costs)
        if not undo_unworthy(state, goal, costs):
            break
    return RebalanceResult({move: gain(state, move, costs) for move in moves_made(state)}, ended, bound)


def _by_solver(state: SearchState, goal: Goal, clock: SearchClock, costs: MoveCosts) -> float:
    """Apply the solver's worthwhile moves; returns how many instances stay below a limit at least."""
    below = sum(len(state.pattern(host).below) for host in range(state.problem.hosts))
    if not below:
        return 0.0
    pattern_set = pattern_sets.enumerate_patterns(state, state.movers)
    if pattern_set is None:
        return 0.0
    before = list(state.movers)
    solved = solver.solve(pattern_set, levels(goal), before, most_moves=goal.max_moves, seconds=clock.left_s / 2)
    state.place_all(solved.movers)
    undo_unworthy(state, goal, costs)
    if sum(len(state.pattern(host).below) for host in range(state.problem.hosts)) >= below:
        state.place_all(before)
    bound = solved.bounds[0]  # -inf where the time was over before the solver had any
    return math.ceil(bound - 1e-6) if math.isfinite(bound) else 0.0


def _relieve(state: SearchState, goal: Goal, clock: SearchClock, costs: MoveCosts) -> bool:
    """Bring hosts with instances below a limit within it, the worst first; True when every host was tried.

    Moves that are worth it only together are made together.
    """
    for sources in _batches(state, goal):
        for source in sources:
            if clock.over:
                return False
            below_before = len(state.pattern(source).below)
            if not below_before:
                continue
            before = list(state.movers)
            moves_left = None if goal.max_moves is None else goal.max_moves - len(moves_made(state))
            neighborhoods.relieve(state, source, moves_left)
            undo_unworthy(state, goal, costs)
            if len(state.pattern(source).below) >= below_before:
                state.place_all(before)
    return True


def _moves(state: SearchState, goal: Goal, clock: SearchClock, costs: MoveCosts) -> bool:
    """Make worthwhile moves and swaps, best first; True when none is left."""
    passed: set[tuple[Kinds, ...]] = set()  # gains compare two hosts each, so nothing else excludes a circle
    while not clock.over and tuple(state.movers) not in passed:
        passed.add(tuple(state.movers))
        best = _best_changes(state, goal, clock, costs, neighborhoods.moves_off)
        best = best or _best_changes(state, goal, clock, costs, neighborhoods.swaps)
        if not best:
            return not clock.over
        touched: set[int] = set()
        for _, _, count, sides in sorted(best):
            if goal.max_moves is not None and len(moves_made(state)) + count > goal.max_moves:
                return False
            if touched.isdisjoint(host for host, _ in sides):
                for side in sides:
                    state.place(*side)
                    touched.add(side[0])
    return not clock.over


def _batches(state: SearchState, goal: Goal) -> Iterator[list[int]]:
    """Hosts where enough could be gained, the most harmed first: no move gives back more than is lost now."""
    harms = np.array([_harm(state.pattern(host)) if movers else 0.0 for host, movers in enumerate(state.movers)])
    order = [host for host in np.argsort(-harms, kind="stable").tolist() if harms[host] > goal.move_gain]
    known = set(order)
    order += [host for host in range(len(harms)) if state.pattern(host).below and host not in known]
    for first in range(0, len(order), HOSTS_PER_PREDICTION):
        yield order[first : first + HOSTS_PER_PREDICTION]


def _best_changes(
    state: SearchState,
    goal: Goal,
    clock: SearchClock,
    costs: MoveCosts,
    neighborhood: Callable[[SearchState, int], Iterator[tuple[int, HostChanges]]],
) -> list[RatedChange]:
    """The best worthwhile change of each host, among those of a neighborhood."""
    best: dict[int, RatedChange] = {}
    for sources in _batches(state, goal):
        options = [change for source in sources for change in neighborhood(state, source)]
        state.evaluator.evaluate(side for _, sides in options for side in sides)
        for count, sides in options:
            before = [state.pattern(host) for host, _ in sides]
            after = [state.evaluator.at(*side) for side in sides]
            fewer = sum(len(pattern.below) for pattern in after) - sum(len(pattern.below) for pattern in before)
            band = less(gain_between(before, after), cost_of(state, costs, sides))
            if fewer <= 0 and is_worth_it(band, goal) and all(state.feasible(*side) for side in sides):
                change = (fewer, -round(band.expected, 9), count, sides)
                best[sides[0][0]] = min(best.get(sides[0][0], change), change)
        if clock.over:
            break
    return list(best.values())


def _harm(pattern: Pattern) -> float:
    losses = [each[EXPECTED] for each in pattern.losses]
    return harm(max(losses, default=0.0), sum(losses))
