"""Strategies by goal: rebalancing, consolidation, evacuation, each as a sequence of searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Band
from advisor.domain.plans import PlanEnd, Search
from advisor.planning.assignment import local_search, packing, search_state, solver
from advisor.planning.assignment.local_search import HostChanges, SearchClock, improve, insert_by_ejection, place_each
from advisor.planning.assignment.move_value import (
    EXPECTED,
    KindMove,
    MoveCosts,
    cost_of,
    gain,
    gain_between,
    is_worth_it,
    less,
    moves_made,
    undo_unworthy,
)
from advisor.planning.assignment.objectives import (
    fewest_hosts_if_all_move,
    levels,
    lexicographically_less,
    objective_values,
    relaxation_bound,
)
from advisor.planning.assignment.packing import empty_hosts
from advisor.planning.assignment.packing_problem import Goal, Kinds
from advisor.planning.assignment.search_state import Pattern, SearchState, dominant_share, hosts_in_use, plus
from advisor.planning.assignment.search_summary import overcommitted, summarize
from advisor.scheduling.scoring import harm

# Rebalancing: makes only moves whose gain exceeds their cost and their uncertainty.

HOSTS_PER_PREDICTION = 32  # source hosts in one prediction
NEARLY = 0.9  # of the best gain of a host's changes
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
    pattern_set = search_state.enumerate_patterns(state, state.movers)
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
            local_search.relieve(state, source, moves_left)
            undo_unworthy(state, goal, costs)
            if len(state.pattern(source).below) >= below_before:
                state.place_all(before)
    return True


def _moves(state: SearchState, goal: Goal, clock: SearchClock, costs: MoveCosts) -> bool:
    """Make worthwhile moves and swaps, best first; True when none is left."""
    passed: set[tuple[Kinds, ...]] = set()  # gains compare two hosts each, so nothing else excludes a circle
    while not clock.over and tuple(state.movers) not in passed:
        passed.add(tuple(state.movers))
        best = _best_changes(state, goal, clock, costs, local_search.moves_off)
        best = best or _best_changes(state, goal, clock, costs, local_search.swaps)
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
    """The best worthwhile change of each host, among those of a neighborhood.

    In a large cloud, where many hosts have the same best target, also those that are nearly as good, and hosts that are
    harmed less come in when no change is left of those that are harmed most.
    """
    best: dict[int, list[RatedChange]] = {}
    large = state.problem.hosts > local_search.SMALL_CLOUD
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
                best.setdefault(sides[0][0], []).append(change)
        if clock.over or (large and best):
            break
    if not large:
        return [min(changes) for changes in best.values()]
    return [change for changes in best.values() for change in changes if _nearly(change, min(changes))]


def _nearly(change: RatedChange, best: RatedChange) -> bool:
    """Whether a change brings as many back within a limit and gains nearly as much."""
    return change[0] == best[0] and -change[1] >= NEARLY * -best[1]


def _harm(pattern: Pattern) -> float:
    losses = [each[EXPECTED] for each in pattern.losses]
    return harm(max(losses, default=0.0), sum(losses))


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
    result = rebalance(state, goal, clock)
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
    pattern_set = search_state.enumerate_patterns(state, state.movers)
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
