"""The exact solver: HiGHS chooses one pattern per host, minimizing one level after another."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor import work
from advisor.planning.assignment.objectives import Level, pattern_costs
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import PatternSet
from models.arrays import Floats, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

UNITS_PER_RATIO = 1_000_000  # costs are whole numbers of these, so that equal plans compare as equal
# Nodes of branch and bound, which are the same on every machine, so that a slower one finds the same plan.
NODES_PER_SECOND = 200
WALL_FACTOR = 4  # seconds of the wall clock at most for each second of work
SHORTEST_S = 0.01  # HiGHS takes no limit of 0
ROUNDING = 1.5 / UNITS_PER_RATIO  # HiGHS keeps constraints within 1e-6
INFEASIBLE = 2  # of scipy.optimize.milp


@dataclass(frozen=True, slots=True)
class SolverResult:
    """The chosen movers of each host, (H,), and what was proven.

    `bounds` has a lower bound for each level, nan where an earlier level was not proven; `proven` = all levels are.
    """

    movers: tuple[Kinds, ...]
    bounds: tuple[float, ...]
    proven: bool


def solve(
    pattern_set: PatternSet, levels: Sequence[Level], start: Sequence[Kinds], *, most_moves: int | None, seconds: float
) -> SolverResult:
    """The best choice of patterns, level by level, and never a worse one than `start` (H,).

    `seconds` stand for nodes of branch and bound, so that the result is the same on every machine unless the wall clock
    runs out first.
    """
    program = _Program.of(pattern_set, start, most_moves)
    bounds: list[float] = []
    proven = True
    for level in levels:
        wall_s = min(work.wall_left_s() / 2, WALL_FACTOR * seconds / len(levels))
        limits = _Limits(time.monotonic() + wall_s, max(round(NODES_PER_SECOND * seconds), 1))
        cost = program.cost(level, pattern_set)
        bound, optimal = (program.least_greatest if level == "greatest" else program.least_sum)(cost, limits)
        bounds.append(bound / UNITS_PER_RATIO if proven else np.nan)
        proven = proven and optimal
    return SolverResult(_by_host(pattern_set, program.chosen), tuple(bounds), proven)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The end of one level by the monotonic clock, and how many nodes one call of HiGHS may take."""

    until: float
    nodes: int

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def options(self) -> Mapping[str, float]:
        left_s = max(self.until - time.monotonic(), SHORTEST_S)
        return {"time_limit": left_s, "node_limit": self.nodes, "mip_rel_gap": 0.0}


@dataclass(slots=True)
class _Program:
    """An integer program: how often each of J patterns is used, then how many of each optional kind are left out.

    `matrix` (R, V) times the variables lies between `lower` and `upper` (R,); no variable is above `most` (V,).
    `chosen` (V,) is the best that is known. Each level that was minimized leaves a constraint for the later ones.
    """

    matrix: csr_array[Any]
    lower: Floats
    upper: Floats
    most: Ints
    patterns: int
    chosen: Ints

    @classmethod
    def of(cls, pattern_set: PatternSet, start: Sequence[Kinds], most_moves: int | None) -> _Program:
        """Each host has one pattern, each instance is on a host or left out, and not more than `most_moves` move."""
        from scipy.sparse import csr_array

        count, groups = len(pattern_set.movers), len(pattern_set.hosts)
        optional = list(pattern_set.optional)
        row_of = {kind: groups + at for at, kind in enumerate(pattern_set.supply)}
        entries = [(group, index, 1) for index, group in enumerate(pattern_set.group.tolist())]
        for index, movers in enumerate(pattern_set.movers):
            entries += [(row_of[kind], index, times) for kind, times in Counter(movers).items()]
        entries += [(row_of[kind], count + at, 1) for at, kind in enumerate(optional)]
        exactly = [*map(len, pattern_set.hosts), *pattern_set.supply.values()]
        lower, upper = np.array([*exactly, -np.inf]), np.array([*exactly, np.inf if most_moves is None else most_moves])
        entries += [(len(exactly), index, int(times)) for index, times in enumerate(pattern_set.arrivals) if times]
        rows, columns, values = np.array(entries).T
        matrix = csr_array((values.astype(float), (rows, columns)), shape=(len(lower), count + len(optional)))
        sizes = np.array([len(hosts) for hosts in pattern_set.hosts])
        most = np.array([*sizes[pattern_set.group], *(pattern_set.optional[kind] for kind in optional)], dtype=np.int64)
        return cls(matrix, lower, upper, most, count, _as_counts(pattern_set, start, optional))

    def cost(self, level: Level, pattern_set: PatternSet) -> Ints:
        """What one of each variable costs at a level, in units, (V,)."""
        cost = np.zeros(len(self.most), dtype=np.int64)
        cost[: self.patterns] = np.round(pattern_costs(level, pattern_set) * UNITS_PER_RATIO)
        if level == "unplaced":
            cost[self.patterns :] = UNITS_PER_RATIO
        return cost

    def least_sum(self, cost: Ints, limits: _Limits) -> tuple[float, bool]:
        """Minimize a sum of costs; a lower bound in units, and whether it is reached."""
        if not cost.any():
            return 0.0, True
        found = self._solved(cost, limits)
        self._take(found.x, cost)
        now = int(cost @ self.chosen)
        from scipy.sparse import csr_array, vstack

        self.matrix = vstack([self.matrix, csr_array(cost[None, :] / UNITS_PER_RATIO)], format="csr")
        self.lower, self.upper = np.append(self.lower, -np.inf), np.append(self.upper, now / UNITS_PER_RATIO)
        dual = found.get("mip_dual_bound")
        return (-np.inf if dual is None else min(dual * UNITS_PER_RATIO, now)), found.status == 0

    def least_greatest(self, cost: Ints, limits: _Limits) -> tuple[float, bool]:
        """Minimize the greatest cost of a used pattern; a lower bound in units, and whether it is reached.

        By halving over the costs: patterns up to one are enough or not. The relaxation, which takes less time, excludes
        most of them.
        """
        values = np.unique(cost[: self.patterns])
        best = int(np.searchsorted(values, cost[self.chosen > 0].max()))
        excluded = 0  # how many of the values are known to be too low
        for integer in (False, True):
            low, high = excluded, best
            while low < high and not limits.over:
                middle = (low + high) // 2
                most = np.where(cost <= values[middle], self.most, 0)
                found = self._solved(np.zeros_like(cost), limits, most, integer=integer)
                if found.status == INFEASIBLE:
                    low = excluded = middle + 1
                elif found.x is None:  # not known in this time
                    low = middle + 1
                else:
                    high = middle
                    if integer and self._take(found.x, cost, greatest=True):
                        high = best = int(np.searchsorted(values, cost[self.chosen > 0].max()))
        self.most = np.where(cost <= values[best], self.most, 0)
        return float(values[min(excluded, best)]), excluded >= best

    def _solved(self, cost: Ints, limits: _Limits, most: Ints | None = None, *, integer: bool = True) -> Any:
        """What HiGHS says: scipy's result, `x` None where it found nothing."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

        most = self.most if most is None else most
        found = milp(
            cost / UNITS_PER_RATIO,
            integrality=np.full(len(most), int(integer)),
            bounds=Bounds(0, most),
            constraints=LinearConstraint(self.matrix, self.lower, self.upper),
            options=dict(limits.options()),
        )
        work.add(len(most) * (1 + int(found.get("mip_node_count") or 0)))
        return found

    def _take(self, x: Floats | None, cost: Ints, *, greatest: bool = False) -> bool:
        """Keep a found choice where it is allowed and better than the one before."""
        if x is None:
            return False
        counts = np.round(x).astype(np.int64)
        rows = self.matrix @ counts
        if (rows < self.lower - ROUNDING).any() or (rows > self.upper + ROUNDING).any() or (counts > self.most).any():
            return False
        values = [int(cost[each > 0].max()) if greatest else int(cost @ each) for each in (counts, self.chosen)]
        if values[0] < values[1]:
            self.chosen = counts
        return values[0] < values[1]


def _as_counts(pattern_set: PatternSet, start: Sequence[Kinds], optional: Sequence[int]) -> Ints:
    """The variables of a choice of patterns, (V,)."""
    groups = pattern_set.group.tolist()
    position = {(group, movers): at for at, (group, movers) in enumerate(zip(groups, pattern_set.movers, strict=True))}
    counts = np.zeros(len(position) + len(optional), dtype=np.int64)
    left = Counter(pattern_set.supply)
    for group, hosts in enumerate(pattern_set.hosts):
        for host in hosts:
            counts[position[group, start[host]]] += 1
            left.subtract(start[host])
    counts[len(position) :] = [left[kind] for kind in optional]
    return counts


def _by_host(pattern_set: PatternSet, counts: Ints) -> tuple[Kinds, ...]:
    """Assign the chosen patterns to the hosts of their groups in order."""
    dealt: dict[int, Kinds] = {}
    queues = [list(hosts) for hosts in pattern_set.hosts]
    for index, times in enumerate(counts[: len(pattern_set.movers)].tolist()):
        for _ in range(times):
            dealt[queues[pattern_set.group[index]].pop(0)] = pattern_set.movers[index]
    return tuple(dealt[host] for host in range(len(dealt)))
