"""Reaching a goal: which searches are put together for each aim, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Band
from advisor.domain.plans import PlanEnd, Search
from advisor.planning.assignment import packing, pattern_sets, rebalancing, solver
from advisor.planning.assignment.bounds import fewest_if_all_move, relaxed
from advisor.planning.assignment.consolidation import empty
from advisor.planning.assignment.ejection_chain import squeeze
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.local_search import Clock, fill, improve
from advisor.planning.assignment.move_value import Moved
from advisor.planning.assignment.objectives import less, levels, reached
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import SearchState, plus, size, used
from advisor.planning.assignment.search_summary import overfull, told

FEW_QUESTIONS = 5_000  # hosts times instances: up to so many, placing in turn is tried in several ways
FOR_SOLVER = 0.5  # of the time that is left


@dataclass(frozen=True, slots=True)
class Reached:
    """Everybody as they are seated in the end, what that costs level by level, and what each move is worth."""

    goal: Goal
    seats: SearchState
    values: tuple[float, ...]
    search: Search
    gains: Mapping[Moved, Band]


def reach(seats: SearchState, goal: Goal, clock: Clock) -> Reached:
    """Seat everybody as well as can be found; newcomers that have a host already sit there to begin with."""
    random = np.random.default_rng(goal.seed)
    gains: Mapping[Moved, Band] = {}
    if goal.aim == "rebalance":
        search, gains = _rebalanced(seats, goal, clock)
    elif goal.aim == "consolidate":
        search = _consolidated(seats, goal, clock)
    else:
        search = _placed(seats, goal, random, clock)
    return Reached(goal, seats, reached(goal, seats, _unplaced(seats)), search, gains)


def _placed(seats: SearchState, goal: Goal, random: np.random.Generator, clock: Clock) -> Search:
    """Seat those waiting: in turn, as given and the largest first, where somebody has no host then also packed, and
    then by moves and swaps, then by the solver."""
    ground = seats.ground
    if not ground.waiting:
        return told(goal, seats, reached(goal, seats, 0), "already fine", None, clock)
    orders = [ground.waiting]
    if ground.hosts * len(ground.waiting) <= FEW_QUESTIONS:
        orders.append(tuple(sorted(ground.waiting, key=lambda kind: (-size(seats, kind), kind))))
    starts = [(order, ground.start) for order in orders]
    advised = any(one.host for one in goal.newcomers)
    if advised:
        starts = [_seated(seats, goal)]
    tried = []
    for order, start in starts:
        seats.take_over(start)
        left = fill(seats, order, random, clock)
        tried.append((reached(goal, seats, len(left)), list(seats.movers), left))
    if all(left for _, _, left in tried) and not advised and not clock.over:
        seats.take_over(ground.start)
        left = fill(seats, packing.pack(seats, ground.waiting, clock), random, clock)
        tried.append((reached(goal, seats, len(left)), list(seats.movers), left))
    best = tried[0]
    for one in tried[1:]:
        best = one if less(one[0], best[0]) else best
    seats.take_over(best[1])
    ended = improve(seats, random, clock)
    if best[2]:
        left = squeeze(seats, fill(seats, best[2], random, clock), random, clock)
        ended = improve(seats, random, clock) if len(left) < len(best[2]) else ended
    solved = _solved(seats, goal, clock, None)
    unplaced = _unplaced(seats)
    solved = None if advised else solved  # it proves nothing of other settings
    return told(goal, seats, reached(goal, seats, unplaced), _end(unplaced, solved, ended), solved, clock)


def _seated(seats: SearchState, goal: Goal) -> tuple[tuple[int, ...], tuple[Kinds, ...]]:
    """Who is still to be placed, and who sits where: newcomers on the hosts that they came with."""
    ground = seats.ground
    movers = list(ground.start)
    left: list[int] = []
    for one, kind in zip(goal.newcomers, ground.waiting, strict=True):
        host = ground.snapshot.index(one.host) if one.host else None
        if host is None:
            left.append(kind)
            continue
        more = plus(movers[host], kind)
        seats.effects.ask([(host, more)])
        if ground.fits(host, more) and seats.accepted(host, more):
            movers[host] = more
        else:
            left.append(kind)
    return tuple(left), tuple(movers)


def _consolidated(seats: SearchState, goal: Goal, clock: Clock) -> Search:
    """Empty hosts, try everybody anew, then the solver: fewest hosts, then fewest moves."""
    least = round(relaxed("used", seats, 0, clock))
    if used(seats) <= least:
        return told(goal, seats, reached(goal, seats, 0), _as_it_is(seats), None, clock, bound=least)
    ended = empty(seats, clock, goal.max_moves, least)
    if used(seats) > least and not clock.over:
        ended = packing.anew(seats, clock, goal.max_moves, least) and ended
    solved = _solved(seats, goal, clock, goal.max_moves)
    stays = seats.movers == list(seats.ground.start) and ended
    end = _as_it_is(seats) if stays else _end(0, solved, ended)
    return told(goal, seats, reached(goal, seats, 0), end, solved, clock, bound=least)


def _as_it_is(seats: SearchState) -> PlanEnd:
    """What to say of a cloud that uses as few hosts as can be: those who may not be moved may be all that is in the
    way of fewer, and who is below a limit is not fine."""
    if any(seats.ground.fixed) and fewest_if_all_move(seats) < used(seats):
        return "in the way"
    below = any(seats.column(host).below for host in range(seats.ground.hosts))
    return "search" if below else "already fine"


def _rebalanced(seats: SearchState, goal: Goal, clock: Clock) -> tuple[Search, Mapping[Moved, Band]]:
    found = rebalancing.rebalance(seats, goal, clock)
    below = sum(len(seats.column(host).below) for host in range(seats.ground.hosts))
    end: PlanEnd = "time" if clock.over and not found.ended else "search"
    if found.ended and (below or overfull(seats)):
        end = "in the way"
    elif found.ended and not found.gains:
        end = "already fine"
    return told(goal, seats, reached(goal, seats, 0), end, None, clock, bound=found.bound), found.gains


def _solved(seats: SearchState, goal: Goal, clock: Clock, most_moves: int | None) -> solver.Solved | None:
    """What the solver found where it could be asked, taken over where it is better than what was there."""
    if clock.over:
        return None
    choices = pattern_sets.every(seats, seats.movers)
    if choices is None or clock.over:
        return None
    before, mine = list(seats.movers), reached(goal, seats, _unplaced(seats))
    found = solver.solve(
        choices, levels(goal), before, most_moves=most_moves, seconds=clock.left_s * FOR_SOLVER, seed=goal.seed
    )
    if found is not None:
        seats.take_over(found.movers)
        if not less(reached(goal, seats, _unplaced(seats)), mine):
            seats.take_over(before)
    return found


def _unplaced(seats: SearchState) -> int:
    """How many of those waiting sit nowhere; residents that are not emptied off always sit somewhere."""
    ground = seats.ground
    there = sum(len(movers) for movers in seats.movers)
    return len(ground.waiting) + sum(len(movers) for movers in ground.start) - there


def _end(unplaced: int, solved: solver.Solved | None, ended: bool) -> PlanEnd:
    if unplaced:
        return "in the way" if ended or (solved is not None and solved.proven) else "time"
    if solved is not None and solved.proven:
        return "optimal"
    return "search" if ended else "time"
