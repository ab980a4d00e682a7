"""Objectives of a search, and the bounds that no assignment can beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from advisor.domain import Objective
from advisor.planning.assignment.packing_problem import SIZES, Aim, Goal, Kinds, PackingProblem
from advisor.planning.assignment.search_state import RATIO_TOLERANCE, Pattern, PatternSet, SearchState
from advisor.rounding import with_slack
from models.arrays import Floats

# Costs of a plan: instances without a host, instances below a limit, moves, hosts in use, the greatest loss, and the
# sums of harm, of chances to miss a limit, and of losses (see Pattern). Lower is better; a level is never worsened for
# a later one.
Level = Literal["unplaced", "below", "moves", "used", "greatest", "harm", "missed", "lost"]

_BY_AIM: dict[Aim, tuple[Level, ...]] = {
    "admit": ("unplaced",),
    "evacuate": ("unplaced",),
    "consolidate": ("used", "moves"),
    "rebalance": ("below", "moves"),
}
_BY_OBJECTIVE: dict[Objective, tuple[Level, ...]] = {
    "worst": ("greatest", "harm"),
    "total": ("lost",),
    "limits": ("missed", "lost"),
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
    by_level = {"greatest": pattern.max_loss, "harm": pattern.harm, "missed": pattern.missed}
    return by_level.get(level, pattern.total_loss)


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


# Bounds that no plan can beat, computed without a search.

MAX_PAIRS = 100_000  # pairs of kinds times host classes that a bound predicts: a few seconds


def relaxation_bound(level: Level, state: SearchState, unplaced: int) -> float:
    """The lowest possible cost of a level, by sizes, incompatible pairs and each instance on its own best host.

    The bound assumes that no instance runs faster beside others than alone. Where one was measured or predicted to, a
    plan may look better than its bound by that much. `unplaced` instances cost nothing here.
    """
    problem = state.problem
    if level == "unplaced":
        without_host = sum(max(0, many - problem.hosts) for many in _incompatible(state, Counter(problem.waiting)))
        return float(max(_without_room(state), without_host))
    if level == "used":
        all_kinds = Counter(kind for there in (problem.waiting, *problem.initial) for kind in there)
        if unplaced:
            return float(_fewest_hosts(state))
        return float(max([_fewest_hosts(state), *_incompatible(state, all_kinds)]))
    if level in {"below", "moves"}:
        return 0.0
    by: Level = "missed" if level == "missed" else "lost"
    kinds = sorted({*problem.waiting, *(kind for there in problem.initial for kind in there)})
    classes = range(len(problem.classes))
    keys = [(number, (kind,)) for kind in kinds for number in classes]
    state.evaluator.evaluate_keys(keys)
    alone = {(kind, number): state.evaluator.known(number, (kind,)) for kind in kinds for number in classes}
    least_loss = {kind: min(_cost(by, alone[kind, number], 0) for number in classes) for kind in kinds}
    fixed_patterns = [state.evaluator.at(host, ()) for host in range(problem.hosts)]
    movable_losses = [least_loss[kind] for there in (problem.waiting, *problem.initial) for kind in there]
    if level == "greatest":
        return max([*(pattern.max_loss for pattern in fixed_patterns), *movable_losses], default=0.0)
    smallest_losses = sorted(movable_losses)[: len(movable_losses) - unplaced] if unplaced else movable_losses
    return sum(_cost(by, pattern, 0) for pattern in fixed_patterns) + sum(smallest_losses)


def _without_room(state: SearchState) -> int:
    """How many waiting instances have no room even if they could be split: smallest first, for each resource."""
    problem = state.problem
    placeable = len(problem.waiting)
    allowed_kinds = [kind for kind in problem.waiting if problem.allowed[kind].any()]
    fixed = np.array([problem.used(host, problem.fixed[host]) for host in range(problem.hosts)])
    left = np.maximum(with_slack(problem.room) - fixed, 0.0)
    for resource in SIZES:
        free = left[:, resource].sum()
        needs = np.sort([problem.needs[kind, :, resource].min() for kind in allowed_kinds])
        placeable = min(placeable, int((np.cumsum(needs) <= free).sum()))
    return len(problem.waiting) - min(placeable, len(allowed_kinds))


def _incompatible(state: SearchState, count: Counter[int]) -> list[int]:
    """Sizes of groups of instances of which no two can share a host; each instance is in one group at most.

    Two kinds are incompatible when together they break a limit on every class of hosts. The result is empty when there
    are more than MAX_PAIRS pairs to predict. Instances that were below their limit at the start and may stay so are not
    counted.
    """
    problem = state.problem
    count = count - state.tolerated
    kinds, classes = sorted(count), range(len(problem.classes))
    if len(kinds) * (len(kinds) + 1) // 2 * len(classes) > MAX_PAIRS:
        return []
    pairs = [(first, second) for at, first in enumerate(kinds) for second in kinds[at:]]
    state.evaluator.evaluate_keys((number, pair) for pair in pairs for number in classes)
    incompatible = {pair for pair in pairs if all(state.evaluator.known(number, pair).below for number in classes)}
    unassigned = [kind for kind in kinds if (kind, kind) in incompatible]
    degree = Counter(kind for pair in incompatible for kind in pair)
    clique_sizes = []
    while unassigned:
        clique: list[int] = []
        for kind in sorted(unassigned, key=lambda kind: (-degree[kind], kind)):
            if all((min(kind, other), max(kind, other)) in incompatible for other in clique):
                clique.append(kind)
        clique_sizes.append(sum(count[kind] for kind in clique))
        unassigned = [kind for kind in unassigned if kind not in clique]
    return clique_sizes


def fewest_hosts_if_all_move(state: SearchState) -> int:
    """The number of hosts needed by size alone if every instance could move."""
    return _fewest_hosts(state, ((),) * state.problem.hosts, state.problem.fixed)


def _fewest_hosts(state: SearchState, stay: Sequence[Kinds] | None = None, extra: Sequence[Kinds] = ()) -> int:
    """The number of hosts needed by size alone, largest hosts first.

    Hosts with instances that must `stay` are in use; `extra` are instances that move in addition to the movable ones.
    """
    problem = state.problem
    stay = problem.fixed if stay is None else stay
    in_use = np.array([bool(there) for there in stay], dtype=bool)
    moving: Sequence[int] = [kind for there in (problem.waiting, *problem.initial, *extra) for kind in there]
    used = np.array([problem.used(host, there) for host, there in enumerate(stay)])
    lower_bound = int(in_use.sum()) if in_use.any() else int(bool(moving))
    room = with_slack(problem.room)
    for resource in SIZES:
        needs = sum(float(problem.needs[kind, :, resource].min()) for kind in moving)
        left = needs - np.maximum(room[in_use, resource] - used[in_use, resource], 0.0).sum()
        if left > 0:
            rooms = np.sort(room[~in_use, resource])[::-1]
            lower_bound = max(lower_bound, int(in_use.sum()) + int((np.cumsum(rooms) < left).sum()) + 1)
    return lower_bound
