"""The exact solver: CP-SAT chooses one pattern per host, minimizing one level after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from advisor.planning.assignment.objectives import Level, pattern_costs
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.pattern_sets import PatternSet

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


UNITS_PER_RATIO = 1_000_000  # the solver knows integers only
# CP-SAT measures its work in deterministic units that are the same on every machine; a unit takes about a second.
WORK_PER_SECOND = 0.5


@dataclass(frozen=True, slots=True)
class SolverResult:
    """The chosen movers of each host, (H,), and what was proven.

    `bounds` has a lower bound for each level, nan where an earlier level was not proven; `proven` = all levels are.
    """

    movers: tuple[Kinds, ...]
    bounds: tuple[float, ...]
    proven: bool


def solve(
    pattern_set: PatternSet,
    levels: Sequence[Level],
    start: Sequence[Kinds],
    *,
    most_moves: int | None,
    seconds: float,
    seed: int,
) -> SolverResult | None:
    """The best choice of patterns, level by level; None where none was found in time.

    `start` (H,) is an initial choice. One worker and CP-SAT's deterministic time give the same result for the same seed
    unless `seconds` of the wall clock run out first.
    """
    from ortools.sat.python import cp_model  # takes half a second to import, so only a plan imports it

    model = cp_model.CpModel()
    sizes = [len(hosts) for hosts in pattern_set.hosts]
    used = [model.new_int_var(0, sizes[group], "") for group in pattern_set.group.tolist()]
    for group, size in enumerate(sizes):
        model.add(sum(used[index] for index in np.flatnonzero(pattern_set.group == group).tolist()) == size)
    holders: dict[int, list[tuple[int, int]]] = {kind: [] for kind in pattern_set.supply}
    for index, movers in enumerate(pattern_set.movers):
        for kind in dict.fromkeys(movers):
            holders[kind].append((index, movers.count(kind)))
    left_out = {kind: model.new_int_var(0, count, "") for kind, count in pattern_set.optional.items()}
    for kind, count in pattern_set.supply.items():
        model.add(sum(used[index] * times for index, times in holders[kind]) + left_out.get(kind, 0) == count)
    if most_moves is not None:
        model.add(
            sum(used[index] * int(times) for index, times in enumerate(pattern_set.arrivals) if times) <= most_moves
        )
    _hint(model, pattern_set, start, used, left_out)
    bounds: list[float] = []
    proven, values = True, None
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    for level in levels:
        cost = np.round(pattern_costs(level, pattern_set) * UNITS_PER_RATIO).astype(np.int64)
        goal = _greatest(model, used, sizes, pattern_set, cost) if level == "greatest" else sum(
            int(unit_cost) * variable for unit_cost, variable in zip(cost.tolist(), used, strict=True) if unit_cost
        ) + sum(UNITS_PER_RATIO * variable for variable in left_out.values() if level == "unplaced")  # fmt: skip
        if isinstance(goal, int):  # this level costs nothing whatever is chosen
            bounds.append(0.0 if proven else np.nan)
            continue
        model.minimize(goal)
        share = seconds / len(levels)
        solver.parameters.max_time_in_seconds = share
        solver.parameters.max_deterministic_time = share * WORK_PER_SECOND
        status = solver.solve(model)
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            break
        values = [solver.value(variable) for variable in used]
        bounds.append(solver.best_objective_bound / UNITS_PER_RATIO if proven else np.nan)
        proven = proven and status == cp_model.OPTIMAL
        model.add(goal <= round(solver.objective_value))
        model.clear_hints()  # type: ignore[no-untyped-call]
        for variable, value in zip(used, values, strict=True):
            model.add_hint(variable, value)
    if values is None:
        return None
    missing = len(levels) - len(bounds)
    return SolverResult(_by_host(pattern_set, values), (*bounds, *(np.nan,) * missing), proven and not missing)


def _greatest(
    model: cp_model.CpModel,
    used: list[cp_model.IntVar],
    sizes: list[int],
    pattern_set: PatternSet,
    cost: NDArray[np.int64],
) -> cp_model.IntVar:
    """The greatest cost of a used pattern."""
    least = int(cost.min())
    greatest = model.new_int_var(least, int(cost.max()), "")
    for index, (unit_cost, variable) in enumerate(zip(cost.tolist(), used, strict=True)):
        if unit_cost > least:
            is_used = model.new_bool_var("")
            model.add(variable <= sizes[pattern_set.group[index]] * is_used)
            model.add(greatest >= unit_cost).only_enforce_if(is_used)
    return greatest


def _hint(
    model: cp_model.CpModel,
    pattern_set: PatternSet,
    start: Sequence[Kinds],
    used: list[cp_model.IntVar],
    out: dict[int, cp_model.IntVar],
) -> None:
    count: dict[tuple[int, Kinds], int] = {}
    left = dict(pattern_set.supply)
    for group, hosts in enumerate(pattern_set.hosts):
        for host in hosts:
            count[group, start[host]] = count.get((group, start[host]), 0) + 1
            for kind in start[host]:
                left[kind] -= 1
    for index, variable in enumerate(used):
        model.add_hint(variable, count.get((int(pattern_set.group[index]), pattern_set.movers[index]), 0))
    for kind, variable in out.items():
        model.add_hint(variable, left[kind])


def _by_host(pattern_set: PatternSet, values: Sequence[int]) -> tuple[Kinds, ...]:
    """Assign the chosen patterns to the hosts of their groups in order."""
    dealt: dict[int, Kinds] = {}
    queues = [list(hosts) for hosts in pattern_set.hosts]
    for index, times in enumerate(values):
        for _ in range(times):
            dealt[queues[pattern_set.group[index]].pop(0)] = pattern_set.movers[index]
    return tuple(dealt[host] for host in range(len(dealt)))
