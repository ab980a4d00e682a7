"""Lexicographic objectives: the costs of a plan, level by level, shared by the search and the solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from advisor.domain import Objective
from advisor.planning.assignment.goal import Aim, Goal
from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.planning.assignment.pattern_evaluator import RATIO_TOLERANCE, Pattern
from advisor.planning.assignment.pattern_sets import PatternSet
from advisor.planning.assignment.search_state import SearchState
from models.arrays import Floats

# Costs of a plan: instances without a host, instances below a limit, moves, hosts in use, the greatest loss, and the
# sums of harm and of losses (see Pattern). Lower is better; a level is never worsened for a later one.
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
    """The cost levels of a goal in order of priority."""
    return tuple(dict.fromkeys((*_BY_AIM[goal.aim], *_BY_OBJECTIVE[goal.objective])))


def _cost(level: Level, pattern: Pattern, arrivals: int) -> float:
    if level == "moves":
        return float(arrivals)
    if level == "used":
        return float(bool(pattern.kinds))
    if level == "below":
        return float(len(pattern.below))
    if level == "unplaced":
        return 0.0
    return {"greatest": pattern.max_loss, "harm": pattern.harm, "lost": pattern.total_loss}[level]


def pattern_costs(level: Level, pattern_set: PatternSet) -> Floats:
    """The cost of each pattern at one level, (J,)."""
    pairs = zip(pattern_set.patterns, pattern_set.arrivals.tolist(), strict=True)
    return np.array([_cost(level, pattern, arrivals) for pattern, arrivals in pairs])


def objective_values(goal: Goal, state: SearchState, unplaced: int) -> tuple[float, ...]:
    """The costs of the current plan, level by level."""
    patterns = [state.pattern(host) for host in range(state.problem.hosts)]
    arrival_counts = [arrivals(state.problem, host, movers) for host, movers in enumerate(state.movers)]
    values = []
    for level in levels(goal):
        level_costs = [_cost(level, pattern, count) for pattern, count in zip(patterns, arrival_counts, strict=True)]
        values.append(max(level_costs, default=0.0) if level == "greatest" else sum(level_costs))
        if level == "unplaced":
            values[-1] = float(unplaced)
    return tuple(values)


def arrivals(problem: PackingProblem, host: int, movers: Kinds) -> int:
    """How many of these movers were not on the host at the start."""
    return (Counter(movers) - Counter(problem.initial[host])).total()


def lexicographically_less(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the first is lower, by more than rounding, at the first level that differs."""
    for mine, theirs in zip(first, second, strict=True):
        if abs(mine - theirs) > RATIO_TOLERANCE:
            return mine < theirs
    return False
