"""The solver: columns chosen by CP-SAT so that everybody is somewhere, one aim after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from advisor.planning.assignment.objectives import Level, costs
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.pattern_sets import Choices

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


FINE = 1_000_000  # ratios are counted in millionths: the solver knows integers only
# CP-SAT counts its work in a time of its own that is the same on every machine; a unit is about a second on one.
WORK_PER_SECOND = 0.5


@dataclass(frozen=True, slots=True)
class Solved:
    """`movers` (H,) by host; `bounds` by level what none can be below, nan where a level before was not proven;
    `proven` = all levels are."""

    movers: tuple[Kinds, ...]
    bounds: tuple[float, ...]
    proven: bool


def solve(
    choices: Choices,
    levels: Sequence[Level],
    start: Sequence[Kinds],
    *,
    most_moves: int | None,
    seconds: float,
    seed: int,
) -> Solved | None:
    """The best choice, level by level: none gives up anything for a later one. None where nothing is found in time.

    `start` (H,) is a choice to begin with. One worker and CP-SAT's own time make it the same for the same seed, unless
    `seconds` of the wall clock run out first.
    """
    from ortools.sat.python import cp_model  # takes half a second to load: only who plans waits for it

    model = cp_model.CpModel()
    sizes = [len(hosts) for hosts in choices.hosts]
    used = [model.new_int_var(0, sizes[group], "") for group in choices.group.tolist()]
    for group, size in enumerate(sizes):
        model.add(sum(used[at] for at in np.flatnonzero(choices.group == group).tolist()) == size)
    holders: dict[int, list[tuple[int, int]]] = {kind: [] for kind in choices.supply}
    for at, movers in enumerate(choices.movers):
        for kind in dict.fromkeys(movers):
            holders[kind].append((at, movers.count(kind)))
    out = {kind: model.new_int_var(0, count, "") for kind, count in choices.optional.items()}
    for kind, count in choices.supply.items():
        model.add(sum(used[at] * times for at, times in holders[kind]) + out.get(kind, 0) == count)
    if most_moves is not None:
        model.add(sum(used[at] * int(times) for at, times in enumerate(choices.arrivals) if times) <= most_moves)
    _hint(model, choices, start, used, out)
    bounds: list[float] = []
    proven, found = True, None
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    for level in levels:
        cost = np.round(costs(level, choices) * FINE).astype(np.int64)
        goal = _greatest(model, used, sizes, choices, cost) if level == "greatest" else sum(
            int(each) * one for each, one in zip(cost.tolist(), used, strict=True) if each
        ) + sum(FINE * one for one in out.values() if level == "unplaced")  # fmt: skip
        if isinstance(goal, int):  # it costs nothing whatever is chosen
            bounds.append(0.0 if proven else np.nan)
            continue
        model.minimize(goal)
        share = seconds / len(levels)
        solver.parameters.max_time_in_seconds = share
        solver.parameters.max_deterministic_time = share * WORK_PER_SECOND
        status = solver.solve(model)
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            break
        found = [solver.value(one) for one in used]
        bounds.append(solver.best_objective_bound / FINE if proven else np.nan)
        proven = proven and status == cp_model.OPTIMAL
        model.add(goal <= round(solver.objective_value))
        model.clear_hints()  # type: ignore[no-untyped-call]
        for one, value in zip(used, found, strict=True):
            model.add_hint(one, value)
    if found is None:
        return None
    missing = len(levels) - len(bounds)
    return Solved(_by_host(choices, found), (*bounds, *(np.nan,) * missing), proven and not missing)


def _greatest(
    model: cp_model.CpModel, used: list[cp_model.IntVar], sizes: list[int], choices: Choices, cost: NDArray[np.int64]
) -> cp_model.IntVar:
    """The greatest cost of a column that is used."""
    least = int(cost.min())
    greatest = model.new_int_var(least, int(cost.max()), "")
    for at, (each, one) in enumerate(zip(cost.tolist(), used, strict=True)):
        if each > least:
            there = model.new_bool_var("")
            model.add(one <= sizes[choices.group[at]] * there)
            model.add(greatest >= each).only_enforce_if(there)
    return greatest


def _hint(
    model: cp_model.CpModel,
    choices: Choices,
    start: Sequence[Kinds],
    used: list[cp_model.IntVar],
    out: dict[int, cp_model.IntVar],
) -> None:
    count: dict[tuple[int, Kinds], int] = {}
    left = dict(choices.supply)
    for group, hosts in enumerate(choices.hosts):
        for host in hosts:
            count[group, start[host]] = count.get((group, start[host]), 0) + 1
            for kind in start[host]:
                left[kind] -= 1
    for at, one in enumerate(used):
        model.add_hint(one, count.get((int(choices.group[at]), choices.movers[at]), 0))
    for kind, one in out.items():
        model.add_hint(one, left[kind])


def _by_host(choices: Choices, found: Sequence[int]) -> tuple[Kinds, ...]:
    """Columns dealt out to the hosts of their groups, in order."""
    dealt: dict[int, Kinds] = {}
    queues = [list(hosts) for hosts in choices.hosts]
    for at, times in enumerate(found):
        for _ in range(times):
            dealt[queues[choices.group[at]].pop(0)] = choices.movers[at]
    return tuple(dealt[host] for host in range(len(dealt)))
