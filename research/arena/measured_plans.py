"""Plans of measured hosts: a predictor that knows every outcome, the best of all plans tried, and first fit."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from advisor.domain import Inventory
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.packing_problem import Assignment, Goal
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot
from models.data.scene import SceneBatch
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from profiler.observed import Instance
from research.arena.contest import NOW
from research.arena.measured_clouds import fill
from research.arena.measured_hosts import MeasuredWorld, Situation
from research.arena.measured_policies import rules

NEVER_MEASURED = 1e-3  # T/B of every instance in a set that was not measured: below whatever is to be kept
KEEP = 1e-2  # the least that a plan may leave anybody: every set that was measured


@dataclass(frozen=True, slots=True)
class KnownOutcomes:
    """A Predictor that knows the measured outcome of every set of a world, with intervals of width 0."""

    world: MeasuredWorld
    version: str = "measured"
    origin: str = "measured"
    metrics: tuple[str, ...] = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """The measured T/B of all instances; latency is 1, because it is not used here."""
        del targets
        ratios = np.ones(scenes.present.shape)
        for scene in range(len(scenes)):
            slots = np.flatnonzero(scenes.present[scene])
            names = [scenes.table.names[row] for row in scenes.profile[scene, slots]]
            order = np.argsort(names, kind="stable")
            ratios[scene, slots[order]] = ratios_of(self.world, tuple(sorted(names)))
        band = BandArrays(ratios, ratios, ratios)
        as_alone = BandArrays(np.ones_like(ratios), np.ones_like(ratios), np.ones_like(ratios))
        return InterferencePrediction(band, as_alone, as_alone, np.zeros(ratios.shape, dtype=bool))


def ratios_of(world: MeasuredWorld, together: Situation) -> tuple[float, ...]:
    """Measured T/B by workload, NEVER_MEASURED where unknown."""
    return world.ratios(together) if world.known(together) else (NEVER_MEASURED,) * len(together)


def cloud(world: MeasuredWorld, hosts: int, there: Sequence[Situation] = ()) -> ClusterSnapshot:
    """Hosts of a world with a seat per MB of memory; `there` are the workloads on the first of them."""
    names = [f"h{number:04}" for number in range(hosts)]
    instances = [
        world.seated(f"{name}-{seat}", workload, name)
        for name, situation in zip(names, there, strict=False)
        for seat, workload in enumerate(situation)
    ]
    inventory = Inventory(tuple(map(world.host_named, names)), tuple(instances), world.profiles)
    return ClusterSnapshot.build(inventory, seen=dict.fromkeys(names, NOW), pending=(), taken_at=NOW)


def new_vms(world: MeasuredWorld, workloads: Sequence[str]) -> tuple[Instance, ...]:
    """Instances to be placed, in this order."""
    return tuple(world.seated(f"n{number:05}", workload) for number, workload in enumerate(workloads))


def planned(world: MeasuredWorld, snapshot: ClusterSnapshot, goal: Goal) -> Assignment:
    """The plan of the solver with known outcomes."""
    return assign(snapshot, ActivePredictor(KnownOutcomes(world)), goal, now=NOW, fresh_s=math.inf)


def situations(after: ClusterSnapshot) -> list[Situation]:
    """Who is on each host."""
    return [tuple(sorted(one.workload or "" for one in there)) for there in after.residents]


def total(world: MeasuredWorld, hosts: Sequence[Situation]) -> tuple[int, float]:
    """How many instances are on these hosts, and the sum of their measured T/B."""
    return sum(len(host) for host in hosts), sum(sum(world.ratios(one)) for one in hosts)


def best_of_all(world: MeasuredWorld, workloads: Sequence[str], hosts: int) -> tuple[int, float]:
    """Every way to put these on the hosts, or nowhere, where every instance keeps KEEP: most instances, then the
    highest sum of measured T/B."""

    @cache
    def worth(there: Situation) -> tuple[int, float] | None:
        if len(there) > world.seats or not world.known(there) or min(world.ratios(there), default=1.0) < KEEP:
            return None
        return len(there), sum(world.ratios(there))

    best = (0, 0.0)
    for where in product(range(hosts + 1), repeat=len(workloads)):
        each = [
            worth(tuple(sorted(name for name, at in zip(workloads, where, strict=True) if at == host)))
            for host in range(hosts)
        ]
        if all(one is not None for one in each):
            found = [one for one in each if one is not None]
            best = max(best, (sum(count for count, _ in found), sum(value for _, value in found)))
    return best


def first_fit(world: MeasuredWorld, workloads: Sequence[str], keep: float) -> list[Situation]:
    """Each on the first host that has a seat, and on which every instance keeps `keep` by what was measured; a host
    more where none has."""
    return list(fill(world, 0, workloads, rules(world)["first fit"], 0, keep=keep).hosts)


def below(world: MeasuredWorld, hosts: Sequence[Situation], limit: float) -> int:
    """How many instances have a measured T/B under the limit."""
    return sum(ratio < limit for host in hosts for ratio in world.ratios(host))
