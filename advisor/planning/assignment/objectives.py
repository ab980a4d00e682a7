"""Aims: what is least in a good plan, level by level, in figures that the search and the solver share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from advisor.domain import Objective
from advisor.planning.assignment.goal import Aim, Goal
from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.planning.assignment.pattern_evaluator import SAME, Pattern
from advisor.planning.assignment.pattern_sets import Choices
from advisor.planning.assignment.search_state import SearchState
from models.arrays import Floats

# Of a plan: who has no host, who is below a limit, moves, hosts in use, the most harmed's loss, the sums of harm and of
# losses (see Column). All are to be as low as can be, and none gives up anything for a later one.
Level = Literal["unplaced", "below", "moves", "used", "greatest", "harm", "lost"]

_BY_AIM: dict[Aim, tuple[Level, ...]] = {
    "admit": ("unplaced",),
    "evacuate": ("unplaced",),
    "consolidate": ("used", "moves"),
    "rebalance": ("below", "moves"),
}
_BY_OBJECTIVE: dict[Objective, tuple[Level, ...]] = {
    "worst": ("greatest", "harm"),
    "total": ("lost",),
    "pack": ("used", "lost"),
}


def levels(goal: Goal) -> tuple[Level, ...]:
    """The levels of a goal, the first one decides."""
    return tuple(dict.fromkeys((*_BY_AIM[goal.aim], *_BY_OBJECTIVE[goal.objective])))


def _cost(level: Level, column: Pattern, arrivals: int) -> float:
    if level == "moves":
        return float(arrivals)
    if level == "used":
        return float(bool(column.kinds))
    if level == "below":
        return float(len(column.below))
    if level == "unplaced":
        return 0.0
    return {"greatest": column.most, "harm": column.harm, "lost": column.lost}[level]


def costs(level: Level, choices: Choices) -> Floats:
    """What each column costs, (J,)."""
    pairs = zip(choices.columns, choices.arrivals.tolist(), strict=True)
    return np.array([_cost(level, column, arrivals) for column, arrivals in pairs])


def reached(goal: Goal, seats: SearchState, unplaced: int) -> tuple[float, ...]:
    """What the plan as it is seated costs, level by level."""
    columns = [seats.column(host) for host in range(seats.ground.hosts)]
    came = [arrivals(seats.ground, host, there) for host, there in enumerate(seats.movers)]
    found = []
    for level in levels(goal):
        each = [_cost(level, column, count) for column, count in zip(columns, came, strict=True)]
        found.append(max(each, default=0.0) if level == "greatest" else sum(each))
        if level == "unplaced":
            found[-1] = float(unplaced)
    return tuple(found)


def arrivals(ground: PackingProblem, host: int, movers: Kinds) -> int:
    """How many of these were not on the host."""
    return (Counter(movers) - Counter(ground.start[host])).total()


def less(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the first is better, by more than rounding, on the first level on which they differ."""
    for mine, theirs in zip(one, other, strict=True):
        if abs(mine - theirs) > SAME:
            return mine < theirs
    return False
