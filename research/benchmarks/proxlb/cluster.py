"""A cluster whose demand varies, and how contended its instances are wherever they run: by the event simulator.

Demand is drawn once for each instance and window, so every placement of a cluster is judged by the same demand. The
judge is `research.contention.simulator`, which shares no code with the queueing prior that advises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Host, Instance, Inventory
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from research.contention.host_spec import HostSpec, InstanceSpec
from research.contention.simulator import Length, Simulated, draw_windows, simulate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS, INSTANCES, CPUS, MEMORY_MB = 12, 150, 64, 524_288
SHAPES = ((2, 4_096), (4, 8_192), (8, 16_384), (8, 65_536), (16, 65_536), (32, 131_072))  # vCPUs and MB
SHAPE_PARTS = (0.35, 0.3, 0.2, 0.07, 0.05, 0.03)
OVERCOMMIT = 2.0
HOT, HOT_WEIGHT = 3, 3.0  # so many hosts are chosen so many times as often as others
UTILISATION, SIGMA, MOST_BUSY = -1.6, 1.0, 0.95  # demand per vCPU: lognormal, cut
SPREAD, COMMON = 0.76, 0.25  # of the mean (median of PlanetLab's VMs, `trace_fit`), and of its square; where unknown
WINDOWS, WINDOW_S, BURST_MS = 24, 10.0, 20.0  # as the placement policies are judged (`policy_tables`)
LEAST_CPUS, MOST_CPUS = 1e-4, 0.97  # of a window's demand; the second as a part of the vCPUs
LIMITS = (0.9, 0.8)

Places = Mapping[str, str]
"""The host of each instance."""


def made_up(seed: int, busy: float = 1.0) -> Inventory:
    """12 hosts of 64 CPUs with 150 VMs of which monitoring knows the mean CPU time; three hosts, by
    chance any, have more than others.

    `busy` multiplies every demand, up to MOST_BUSY of an instance's vCPUs.
    """
    rng = np.random.default_rng(seed)
    hosts = [Host(f"pve{at + 1:02}", "kvm", CPUS, MEMORY_MB, cpu_overcommit=OVERCOMMIT) for at in range(HOSTS)]
    free = np.tile(np.array([OVERCOMMIT * CPUS, MEMORY_MB], float), (HOSTS, 1))
    wanted = rng.permutation(np.where(np.arange(HOSTS) < HOT, HOT_WEIGHT, 1.0))
    instances = []
    for number in range(INSTANCES):
        size = np.array(SHAPES[rng.choice(len(SHAPES), p=SHAPE_PARTS)], float)
        chance = wanted * (free >= size).all(axis=1)
        if not chance.any():
            raise ValueError(f"seed {seed}: no host has room for instance {number}")
        host = int(rng.choice(HOSTS, p=chance / chance.sum()))
        free[host] -= size
        mean = float(min(busy * rng.lognormal(UTILISATION, SIGMA), MOST_BUSY) * size[0])
        instances.append(
            Instance(f"vm-{number:03}", int(size[0]), float(size[1]), host=hosts[host].id, demand={"cpu": Demand(mean)})
        )
    return Inventory(tuple(hosts), tuple(instances))


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """`inventory` as everybody is told it, and the `demand` of its instances, (W, n) CPUs, of which nobody is told more
    than means; what was simulated of a host is kept."""

    inventory: Inventory
    seed: int
    specs: tuple[InstanceSpec, ...]
    demand: NDArray[np.float64]
    _known: dict[tuple[int, tuple[int, ...]], Simulated] = field(default_factory=dict)

    @classmethod
    def of(cls, inventory: Inventory, seed: int) -> SimulatedCluster:
        """Draw the demand. Raises ValueError where an instance has no host or no mean demand for CPU time."""
        specs = []
        for one in inventory.instances:
            told = one.demand.get("cpu")
            if one.host is None or told is None:
                raise ValueError(f"instance {one.id} needs a host and a mean demand for CPU time (cpu_percent)")
            mean, common = max(told.mean, LEAST_CPUS), COMMON if told.common is None else told.common
            spread, burst_ms = told.spread or SPREAD * mean, told.burst_ms or BURST_MS
            specs.append(InstanceSpec(one.id, one.vcpus, mean, "open", burst_ms, spread, common))
        drawn = draw_windows(specs, WINDOWS + 1, np.random.default_rng(seed))
        most = MOST_CPUS * np.array([float(one.vcpus) for one in specs])
        return cls(inventory, seed, tuple(specs), np.clip(drawn, LEAST_CPUS, most))

    @property
    def places(self) -> Places:
        """Where everybody is now."""
        return {one.id: str(one.host) for one in self.inventory.instances}

    def simulated(self, places: Places) -> Mapping[str, Simulated]:
        """What instances get of the CPU time that they want, by host; hosts without instances are left out."""
        there: dict[str, list[int]] = {}
        for at, one in enumerate(self.inventory.instances):
            there.setdefault(places[one.id], []).append(at)
        cpus = {host.id: host.pcpus for host in self.inventory.hosts}
        return {host: self._host(cpus[host], tuple(who)) for host, who in there.items()}

    def _host(self, cpus: int, who: tuple[int, ...]) -> Simulated:
        if (cpus, who) not in self._known:
            spec = HostSpec("host", cpus, tuple(self.specs[at] for at in who), WINDOW_S)
            length = Length(warm_up=1, least=4)
            self._known[cpus, who] = simulate(spec, self.seed, length=length, demand=self.demand[:, list(who)])
        return self._known[cpus, who]

    def after(self, places: Places) -> SimulatedCluster:
        """The same with everybody at these places."""
        moved = tuple(replace(one, host=places[one.id]) for one in self.inventory.instances)
        return replace(self, inventory=replace(self.inventory, instances=moved))

    def balance(self, places: Places) -> tuple[float, float]:
        """Between the fullest and the emptiest host, in points of its CPUs and of its memory: mean demand, and MB."""
        used = {host.id: np.zeros(2) for host in self.inventory.hosts}
        for one in self.inventory.instances:
            used[places[one.id]] += (one.demand["cpu"].mean, one.memory_mb)
        full = np.array([100 * used[host.id] / (host.pcpus, host.memory_mb) for host in self.inventory.hosts])
        cpu, memory = full.max(axis=0) - full.min(axis=0)
        return float(cpu), float(memory)

    def judged(self, places: Places) -> dict[str, float]:
        """Balance and victims of a placement: how many instances are below each of LIMITS by the prior's T/B and by
        the simulated share of the CPU time that they want, and the part of instance-time (%) with less than 95 % of
        it, simulated."""
        cpu, memory = self.balance(places)
        outcomes = [one for host in self.simulated(places).values() for one in host.outcome.instances.values()]
        shares = np.array([one.share for one in outcomes])
        ratios = CloudEvaluation.of(snapshot(self.after(places).inventory), PriorPredictor()).ratios()
        expected = np.array([one.expected for one in ratios.values()])
        return {
            "CPU spread": cpu,
            "memory spread": memory,
            **{f"predicted below {limit}": float((expected < limit).sum()) for limit in LIMITS},
            **{f"simulated below {limit}": float((shares < limit).sum()) for limit in LIMITS},
            "simulated short, %": 100 * math.fsum(one.short_95 for one in outcomes) / len(outcomes),
        }


def snapshot(inventory: Inventory) -> ClusterSnapshot:
    """The cluster as the advisor sees it, its hosts just seen."""
    seen = dict.fromkeys((host.id for host in inventory.hosts), NOW)
    return ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=NOW)
