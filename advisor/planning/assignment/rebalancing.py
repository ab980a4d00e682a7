"""Rebalancing: the few moves that are worth it, each by more than it costs and more than is uncertain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Band
from advisor.planning.assignment import neighborhoods, pattern_sets, solver
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.local_search import Clock
from advisor.planning.assignment.move_value import Moved, gain, gained, moved, settle, worth
from advisor.planning.assignment.neighborhoods import Sides
from advisor.planning.assignment.objectives import levels
from advisor.planning.assignment.search_state import SearchState

AT_ONCE = 32  # hosts of which movers are asked about in one prediction
TURNS = 6  # of moving and taking back, after which what stands is answered
Way = tuple[int, float, int, Sides]  # how many fewer are below a limit, less the gain, and how many moves it takes


@dataclass(frozen=True, slots=True)
class Found:
    """`gains` by move; `ended` = nothing more is worth it, else the time was over or no more moves were allowed;
    `bound` is how many are below a limit at least, whatever is moved."""

    gains: Mapping[Moved, Band]
    ended: bool
    bound: float


def rebalance(seats: SearchState, goal: Goal, clock: Clock) -> Found:
    """Move whoever gains by it until nothing more is worth a move, then take back what no longer is.

    Where all columns of the cloud can be told, the solver says which fewest moves bring most instances within their
    limits; of these, those are made that are worth it beside the others. A move is worth it when those whom it changes
    gain (`worth.gained`) more than `move_gain` and more than is uncertain, and nobody falls below a limit: so a cloud
    that was rebalanced is left as it is the next time.
    """
    bound = _by_solver(seats, goal, clock)
    ended = False
    for _ in range(TURNS):
        ended = _relieve(seats, goal, clock) and _moves(seats, goal, clock)
        if not settle(seats, goal):
            break
    return Found({move: gain(seats, move) for move in moved(seats)}, ended, bound)


def _by_solver(seats: SearchState, goal: Goal, clock: Clock) -> float:
    """Take over the fewest moves that bring most within their limits, without those that are not worth it;
    returns how many stay below at least."""
    below = sum(len(seats.column(host).below) for host in range(seats.ground.hosts))
    if not below:
        return 0.0
    choices = pattern_sets.every(seats, seats.movers)
    if choices is None:
        return 0.0
    before = list(seats.movers)
    solved = solver.solve(
        choices, levels(goal), before, most_moves=goal.max_moves, seconds=clock.left_s / 2, seed=goal.seed
    )
    if solved is None:
        return 0.0
    seats.take_over(solved.movers)
    settle(seats, goal)
    if sum(len(seats.column(host).below) for host in range(seats.ground.hosts)) >= below:
        seats.take_over(before)
    return math.ceil(solved.bounds[0] - 1e-6)


def _relieve(seats: SearchState, goal: Goal, clock: Clock) -> bool:
    """Bring hosts where somebody is below a limit within it, the worst first: by those moves that are worth it beside
    the others, though none may be alone; True when every host was tried."""
    for sources in _batches(seats, goal):
        for source in sources:
            if clock.over:
                return False
            were = len(seats.column(source).below)
            if not were:
                continue
            before = list(seats.movers)
            neighborhoods.relieve(seats, source, None if goal.max_moves is None else goal.max_moves - len(moved(seats)))
            settle(seats, goal)
            if len(seats.column(source).below) >= were:
                seats.take_over(before)
    return True


def _moves(seats: SearchState, goal: Goal, clock: Clock) -> bool:
    """Make moves that are worth it, those first that bring most within a limit, then the greatest gain; True when none
    is left."""
    while not clock.over:
        best = _found(seats, goal, clock, neighborhoods.away) or _found(seats, goal, clock, neighborhoods.exchanges)
        if not best:
            return not clock.over
        touched: set[int] = set()
        for _, _, count, sides in sorted(best):
            if goal.max_moves is not None and len(moved(seats)) + count > goal.max_moves:
                return False
            if touched.isdisjoint(host for host, _ in sides):
                for side in sides:
                    seats.seat(*side)
                    touched.add(side[0])
    return False


def _batches(seats: SearchState, goal: Goal) -> Iterator[list[int]]:
    """Hosts whose worst-off could gain enough, the worst first: what a move away gives back is what is lost now."""
    worst = np.array([seats.column(host).worst[0] for host in range(seats.ground.hosts)])
    worst = np.where([bool(there) for there in seats.movers], worst, np.inf)
    order = [host for host in np.argsort(worst, kind="stable").tolist() if worst[host] < 1 - goal.move_gain]
    known = set(order)
    order += [host for host in range(len(worst)) if seats.column(host).below and host not in known]
    for first in range(0, len(order), AT_ONCE):
        yield order[first : first + AT_ONCE]


def _found(
    seats: SearchState, goal: Goal, clock: Clock, each: Callable[[SearchState, int], Iterator[tuple[int, Sides]]]
) -> list[Way]:
    """The best way to relieve each host, where one is worth it, of those that `each` names."""
    best: dict[int, Way] = {}
    for sources in _batches(seats, goal):
        asked = [way for source in sources for way in each(seats, source)]
        seats.effects.ask(side for _, sides in asked for side in sides)
        for count, sides in asked:
            before = [seats.column(host) for host, _ in sides]
            after = [seats.effects.at(*side) for side in sides]
            fewer = sum(len(one.below) for one in after) - sum(len(one.below) for one in before)
            band = gained(before, after)
            if fewer <= 0 and worth(band, goal) and all(seats.accepted(*side) for side in sides):
                way = (fewer, -round(band.expected, 9), count, sides)
                best[sides[0][0]] = min(best.get(sides[0][0], way), way)
        if clock.over:
            break
    return list(best.values())
