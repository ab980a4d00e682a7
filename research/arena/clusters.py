"""Clusters of large hosts whose demand varies, in which VMs come or move, judged by the event simulator.

Demand is drawn once for each instance and window, so every placement of a cluster is judged by the same demand. The
judge is `research.contention.simulator`, which shares no code with the analytic model that advises.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Host, Instance, Inventory
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from research.arena.contest import NOW, Arriving
from research.contention.host_spec import HostSpec, InstanceSpec
from research.contention.simulator import Length, Simulated, draw_windows, simulate

HOSTS, INSTANCES, CPUS, MEMORY_MB, OVERCOMMIT = 12, 150, 64, 524_288, 2.0
SHAPES = ((2, 4_096), (4, 8_192), (8, 16_384), (8, 65_536), (16, 65_536), (32, 131_072))  # vCPUs and MB
SHAPE_PARTS = (0.35, 0.3, 0.2, 0.07, 0.05, 0.03)
HOT, HOT_WEIGHT = 3, 3.0  # so many hosts are chosen so many times as often as others
UTILISATION, SIGMA, MOST_BUSY = -1.6, 1.0, 0.95  # mean demand of each vCPU: lognormal, cut
SPREAD, COMMON = 0.76, 0.25  # where unknown: of the mean (median of PlanetLab's VMs, `trace_fit`), and of its square
WINDOWS, WINDOW_S, BURST_MS = 24, 5.0, 20.0  # as placement policies are judged (`policy_tables`), half as long
LEAST_CPUS, MOST_CPUS = 1e-4, 0.97  # of a window's demand; the second as a part of the vCPUs
LIMITS = (0.9, 0.8)
KINDS = ("app", "batch", "ci", "db", "k8s", "mon", "web", "win")
OF_KIND = 0.8  # standard deviation of the logarithm of a vCPU's mean demand, of SIGMA in all

Places = Mapping[str, str]
"""The host of each instance."""


def made_up(seed: int, busy: float = 1.0) -> Inventory:
    """12 hosts of 64 CPUs with 150 VMs, of which the mean CPU time is known; three hosts have more VMs than others.

    `busy` multiplies every demand, up to MOST_BUSY of an instance's vCPUs.
    """
    rng = np.random.default_rng(seed)
    hosts = [Host(f"pve{at + 1:02}", "kvm", CPUS, MEMORY_MB, cpu_overcommit=OVERCOMMIT) for at in range(HOSTS)]
    free = np.tile(np.array([OVERCOMMIT * CPUS, MEMORY_MB], float), (HOSTS, 1))
    weights = rng.permutation(np.where(np.arange(HOSTS) < HOT, HOT_WEIGHT, 1.0))
    instances = []
    for number in range(INSTANCES):
        vcpus, memory_mb = SHAPES[rng.choice(len(SHAPES), p=SHAPE_PARTS)]
        chance = weights * (free >= (vcpus, memory_mb)).all(axis=1)
        host = int(rng.choice(HOSTS, p=chance / chance.sum()))
        free[host] -= (vcpus, memory_mb)
        mean = float(min(busy * rng.lognormal(UTILISATION, SIGMA), MOST_BUSY) * vcpus)
        instances.append(
            Instance(f"vm-{number:03}", vcpus, memory_mb, host=hosts[host].id, demand={"cpu": Demand(mean)})
        )
    return Inventory(tuple(hosts), tuple(instances))


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """`inventory` as every balancer sees it, and the `demand` of its instances, (W, n) CPUs, of which no balancer sees
    more than means. What was simulated of a host is kept."""

    inventory: Inventory
    seed: int
    specs: tuple[InstanceSpec, ...]
    demand: NDArray[np.float64]
    _known: dict[tuple[int, tuple[int, ...]], Simulated] = field(default_factory=dict)

    @classmethod
    def of(cls, inventory: Inventory, seed: int, spread: float = SPREAD) -> SimulatedCluster:
        """Draw the demand, which varies by `spread` of its mean where it does not say by how much. Raises ValueError
        where an instance has no host or no mean demand for CPU time."""
        specs = []
        for one in inventory.instances:
            predicted = one.demand.get("cpu")
            if one.host is None or predicted is None:
                raise ValueError(f"instance {one.id} needs a host and a mean demand for CPU time (cpu_percent)")
            mean, common = max(predicted.mean, LEAST_CPUS), COMMON if predicted.common is None else predicted.common
            of_mean, burst_ms = predicted.spread or spread * mean, predicted.burst_ms or BURST_MS
            specs.append(InstanceSpec(one.id, one.vcpus, mean, "open", burst_ms, of_mean, common))
        drawn = draw_windows(specs, WINDOWS + 1, np.random.default_rng(seed))
        most = MOST_CPUS * np.array([float(one.vcpus) for one in specs])
        return cls(inventory, seed, tuple(specs), np.clip(drawn, LEAST_CPUS, most))

    @property
    def places(self) -> Places:
        """Where every instance is now."""
        return {one.id: str(one.host) for one in self.inventory.instances}

    def after(self, places: Places) -> SimulatedCluster:
        """The same with every instance at these places."""
        moved = tuple(replace(one, host=places[one.id]) for one in self.inventory.instances)
        return replace(self, inventory=replace(self.inventory, instances=moved))

    def part(self, hosts: Collection[str]) -> SimulatedCluster:
        """These hosts with their instances, which want the same."""
        at = [number for number, one in enumerate(self.inventory.instances) if one.host in hosts]
        inventory = Inventory(
            tuple(host for host in self.inventory.hosts if host.id in hosts),
            tuple(self.inventory.instances[number] for number in at),
        )
        return SimulatedCluster(inventory, self.seed, tuple(self.specs[number] for number in at), self.demand[:, at])

    def simulated(self) -> Mapping[str, Simulated]:
        """What instances get of the CPU time that they want, by host; hosts without instances are left out."""
        there: dict[str, list[int]] = {}
        for at, host in enumerate(self.places.values()):
            there.setdefault(host, []).append(at)
        cpus = {host.id: host.pcpus for host in self.inventory.hosts}
        return {host: self._host(cpus[host], tuple(who)) for host, who in there.items()}

    def _host(self, cpus: int, who: tuple[int, ...]) -> Simulated:
        if (cpus, who) not in self._known:
            spec, length = HostSpec("", cpus, tuple(self.specs[at] for at in who), WINDOW_S), Length(warm_up=1, least=4)
            self._known[cpus, who] = simulate(spec, self.seed, length=length, demand=self.demand[:, list(who)])
        return self._known[cpus, who]

    def judged(self) -> dict[str, float]:
        """Balance and victims: points of CPUs (mean demand) and of memory between the fullest and the emptiest host;
        how many instances are below each of LIMITS by the prior's T/B, and by the simulated share of the CPU time that
        they want; and the part of instance-time (%) with less than 95 % of it, simulated."""
        used = {host.id: np.zeros(2) for host in self.inventory.hosts}
        for one in self.inventory.instances:
            used[str(one.host)] += (one.demand["cpu"].mean, one.memory_mb)
        full = np.array([100 * used[host.id] / (host.pcpus, host.memory_mb) for host in self.inventory.hosts])
        outcomes = [one for host in self.simulated().values() for one in host.outcome.instances.values()]
        shares = np.array([one.share for one in outcomes])
        predicted = CloudEvaluation.of(self.snapshot(), PriorPredictor()).ratios().values()
        return {
            **dict(zip(("CPU spread", "memory spread"), np.ptp(full, axis=0).tolist(), strict=True)),
            **{f"predicted below {limit}": float(sum(one.expected < limit for one in predicted)) for limit in LIMITS},
            **{f"simulated below {limit}": float((shares < limit).sum()) for limit in LIMITS},
            "simulated short, %": 100 * float(np.mean([one.short_95 for one in outcomes])),
        }

    def snapshot(self) -> ClusterSnapshot:
        """The cluster as the advisor sees it, its hosts just seen."""
        seen = dict.fromkeys((host.id for host in self.inventory.hosts), NOW)
        return ClusterSnapshot.build(self.inventory, seen=seen, pending=(), taken_at=NOW)


@dataclass(frozen=True, slots=True)
class NewVmCluster:
    """A made-up cluster with every instance's demand, the last of which come anew, in the order of coming.

    Of those that are there size and mean demand for CPU time are known, of a new VM its size until it is there, and
    its name; `never_known`: nor is its demand learned then.
    """

    cluster: SimulatedCluster
    new_vms: tuple[Instance, ...]
    never_known: bool
    columns: ClassVar = Arriving.columns

    @classmethod
    def draw(
        cls, seed: int, busy: float, new_vms: int, *, kinds: bool, never_known: bool, spread: float = SPREAD
    ) -> NewVmCluster:
        """Cloud number `seed`; with `kinds` a name says what a VM is, and VMs of a kind want alike."""
        inventory = made_up(seed, busy)
        if kinds:
            inventory = _of_kinds(inventory, seed, busy)
        cluster = SimulatedCluster.of(inventory, seed, spread)
        return cls(cluster, inventory.instances[len(inventory.instances) - new_vms :], never_known)

    @property
    def residents(self) -> tuple[Instance, ...]:
        """The instances at the beginning."""
        instances = self.cluster.inventory.instances
        return instances[: len(instances) - len(self.new_vms)]

    def judged(self, placed: Sequence[int]) -> Mapping[str, float]:
        """The figures of the cluster with the new VMs on these hosts."""
        names = [host.id for host in self.cluster.inventory.hosts]
        came: Places = {one.id: names[at] for one, at in zip(self.new_vms, placed, strict=True)}
        return self.cluster.after({**self.cluster.places, **came}).judged()

    def arriving(self) -> Arriving:
        """The hosts as rules know them; an unknown demand counts as the mean of its kind, per vCPU."""
        position = {host.id: at for at, host in enumerate(self.cluster.inventory.hosts)}
        random, held = np.random.default_rng(self.cluster.seed), np.zeros((4, len(position)))
        hosts = Arriving(self._coming, OVERCOMMIT * CPUS, MEMORY_MB, CPUS, random, held)
        for one in self.residents:
            hosts.add(position[str(one.host)], one.vcpus, one.memory_mb, one.demand["cpu"].mean)
        return hosts

    def _coming(self, number: int) -> tuple[float, float, float]:
        one = self.new_vms[number]
        return one.vcpus, one.memory_mb, self._usual(one) if self.never_known else one.demand["cpu"].mean

    def _usual(self, new_vm: Instance) -> float:
        alike = [one for one in self.residents if _kind(one) == _kind(new_vm)] or self.residents
        return new_vm.vcpus * sum(one.demand["cpu"].mean for one in alike) / sum(one.vcpus for one in alike)

    def snapshot(self) -> ClusterSnapshot:
        """The cloud with its residents, as the advisor knows it."""
        hosts = self.cluster.inventory.hosts
        seen = dict.fromkeys((host.id for host in hosts), NOW)
        return ClusterSnapshot.build(Inventory(hosts, self.residents), seen=seen, pending=(), taken_at=NOW)

    def asked(self, number: int) -> Instance:
        """A new VM as the question has it."""
        return replace(self.new_vms[number], host=None, demand={})

    def known(self, placed: Sequence[int]) -> Mapping[str, Instance]:
        """The last one that came, with its demand where that is learned."""
        number = len(placed) - 1
        came = self.asked(number) if self.never_known else self.new_vms[number]
        return {came.id: replace(came, host=self.cluster.inventory.hosts[placed[-1]].id)}


def _kind(one: Instance) -> str:
    return one.id.partition("-")[0]


def _of_kinds(inventory: Inventory, seed: int, busy: float) -> Inventory:
    """The same VMs with names and demands by kind; the logarithm of a demand varies as much as before."""
    rng = np.random.default_rng([seed, len(KINDS)])
    level = dict(zip(KINDS, rng.normal(UTILISATION, OF_KIND, len(KINDS)), strict=True))
    instances = []
    for one in inventory.instances:
        kind = str(rng.choice(KINDS))
        each = busy * math.exp(rng.normal(level[kind], math.sqrt(SIGMA**2 - OF_KIND**2)))
        mean = min(each, MOST_BUSY) * one.vcpus
        instances.append(replace(one, id=one.id.replace("vm", kind), demand={"cpu": Demand(mean)}))
    return replace(inventory, instances=tuple(instances))
