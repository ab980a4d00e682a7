"""The best placement of all instances at once, by an integer program over counts of host configurations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from research.benchmarks.clouds.worlds import MeasuredWorld

GAP, SECONDS = 1e-4, 20.0  # how close to the optimum the search ends, and after how long it ends anyway


def most_throughput(world: MeasuredWorld, hosts: int, wanted: Mapping[str, int]) -> float | None:
    """The highest sum of measured T/B of instances (counts by workload) on at most `hosts` hosts."""
    kinds = _HostColumns(world, wanted)
    found = kinds.least(-kinds.value, [(np.ones(len(kinds.value)), float(hosts))])
    return None if found is None else -found


def fewest_below(world: MeasuredWorld, hosts: int, wanted: Mapping[str, int], slo: float) -> float | None:
    """How few of the instances are below the SLO at best, on at most `hosts` hosts."""
    kinds = _HostColumns(world, wanted)
    return kinds.least(kinds.below(slo), [(np.ones(len(kinds.value)), float(hosts))])


def fewest_hosts(world: MeasuredWorld, wanted: Mapping[str, int], slo: float, allowed: float) -> float | None:
    """On how few hosts the instances fit with at most a share `allowed` of them below the SLO."""
    kinds = _HostColumns(world, wanted)
    most = float(np.floor(allowed * sum(wanted.values())))
    return kinds.least(np.ones(len(kinds.value)), [(kinds.below(slo), most)])


class _HostColumns:
    """K kinds of hosts: `value` (K,) is the sum of T/B on one; every instance is on one of them."""

    def __init__(self, world: MeasuredWorld, wanted: Mapping[str, int]) -> None:
        alone = [(name,) for name in world.workloads]
        self._ratios = [np.array(world.ratios(one)) for one in (*alone, *sorted(world.measured))]
        self.value = np.array([ratios.sum() for ratios in self._ratios])
        holds = np.array([[one.count(name) for one in (*alone, *sorted(world.measured))] for name in world.workloads])
        count = np.array([wanted.get(name, 0) for name in world.workloads])
        self._placed = LinearConstraint(holds, count, count)

    def below(self, slo: float) -> np.ndarray:
        """(K,) instances below the SLO on one host of each kind."""
        return np.array([float((ratios < slo).sum()) for ratios in self._ratios])

    def least(self, cost: np.ndarray, most: list[tuple[np.ndarray, float]]) -> float | None:
        """The lowest cost under the bounds; None where nothing fits or nothing was found in time."""
        limits = [LinearConstraint(row[None, :], -np.inf, bound) for row, bound in most]
        found = milp(
            cost,
            constraints=[self._placed, *limits],
            integrality=np.ones(len(cost)),
            bounds=Bounds(0, np.inf),
            options={"mip_rel_gap": GAP, "time_limit": SECONDS},
        )
        return None if found.x is None else float(cost @ np.round(found.x))
