"""Compares the tuning search with exhaustive search on random small hosts, and times it on large ones.

Run: `python -m research.benchmarks.tuning [--hosts 200]`; prints tables in Markdown. Exhaustive search values every
layout of pCPUs by the same analytic model, so the comparison is of searches, not of models.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Objective, Pinning, WorkloadProfile
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import levers_of, oracle_of, tune_host
from advisor.tuning.layouts import Layout, Oracle
from advisor.tuning.moves import Levers
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from profiler.host_kinds import HOST_KINDS, HostKind

WITHIN = 0.02  # of the exhaustive value that counts as found
LARGE = ((8, 12), (64, 40), (256, 200))  # pCPUs and instances
SENDER = WorkloadProfile(name="sender", metrics={"cpu": 60.0, "driver_domain.cpu": 40.0, "pages_exchanged": 9000.0})


@dataclass(frozen=True, slots=True)
class Case:
    """A random host with its instances."""

    host: Host
    residents: tuple[Instance, ...]

    def snapshot(self) -> ClusterSnapshot:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        cloud = Inventory((self.host,), self.residents, (SENDER,))
        return ClusterSnapshot.build(cloud, seen={self.host.id: now}, pending=(), taken_at=now)


def small(kind: HostKind, random: np.random.Generator) -> Case:
    """A host of two to four pCPUs with one to three instances, some of them pinned."""
    threads = int(random.choice([1, 1, 2]))
    pcpus = 4 if threads == 2 else int(random.integers(2, 5))
    own = tuple(sorted(random.choice(pcpus, size=int(random.integers(1, pcpus)), replace=False).tolist()))
    driver = own if kind != "lxc" and random.random() < 0.3 else ()
    host = Host("host", kind, pcpus, 65536, threads_per_core=threads, driver_cpus=driver)
    count = int(random.integers(1, 4 if pcpus < 4 or kind == "lxc" else 3))
    return Case(host, tuple(instance(number, host, random) for number in range(count)))


def instance(number: int, host: Host, random: np.random.Generator, pinned: float = 0.5) -> Instance:
    """An instance with demand over time, or a sender that keeps a driver domain busy; pinned with this chance."""
    vcpus = int(random.integers(1, 4))
    settings = IsolationSettings()
    if random.random() < pinned:
        some = random.choice(host.pcpus, size=int(random.integers(1, min(host.pcpus, 4) + 1)), replace=False)
        settings = replace(settings, pinning=Pinning.all_on(tuple(sorted(some.tolist())), vcpus))
    if random.random() < 0.2:
        settings = replace(settings, weight=int(random.choice([64, 128, 512, 1024])))
    if host.kind != "lxc" and random.random() < 0.4:
        return Instance(f"vm-{number}", vcpus=vcpus, host=host.id, workload="sender", settings=settings)
    mean = float(random.uniform(0.1, 0.95)) * min(vcpus, 2)
    demand = Demand(mean=mean, spread=float(random.uniform(0.1, 0.6)) * mean)
    return Instance(f"vm-{number}", vcpus=vcpus, host=host.id, demand={"cpu": demand}, settings=settings)


def exhaustive(oracle: Oracle, levers: Levers) -> float:
    """The best value of all layouts of pCPUs, each set of them for each consumer, by their definition."""
    now = Layout.of(oracle.scene)
    pcpus = now.affinity.shape[1]
    sets = [np.array(bits, dtype=bool) for bits in itertools.product([False, True], repeat=pcpus) if any(bits)]
    slots = np.flatnonzero(levers.pins).tolist()

    def layouts() -> Iterator[Layout]:
        for chosen in itertools.product(sets, repeat=len(slots) + levers.driver):
            affinity = now.affinity.copy()
            affinity[slots] = chosen[: len(slots)]
            yield replace(now, affinity=affinity, driver=chosen[-1] if levers.driver else now.driver)

    best = -np.inf
    every = layouts()
    while part := list(itertools.islice(every, 5000)):
        best = max(best, float(oracle.value(part).value.max()))
    return best


def compared(kind: HostKind, hosts: int, objective: Objective, seed: int) -> Sequence[tuple[float, float, float]]:
    """(present value, value found, best value of all) of each random host."""
    random = np.random.default_rng([seed, HOST_KINDS.index(kind)])
    rows = []
    for _ in range(hosts):
        snapshot = small(kind, random).snapshot()
        oracle = oracle_of(snapshot, 0, objective, work=np.inf)
        best = exhaustive(oracle, levers_of(snapshot, 0, oracle))
        found = tune_host(snapshot, 0, PriorPredictor(), objective=objective, seed=seed).found
        rows.append((found.before, found.value, best))
    return rows


def large(pcpus: int, instances: int, seed: int) -> Case:
    """A physical host of two threads per core and NUMA nodes of at most 64 pCPUs, half of its instances pinned."""
    random = np.random.default_rng([seed, pcpus])
    nodes = max(pcpus // 64, 2)
    half = pcpus // 2
    numa = tuple(
        tuple(sorted(at + thread * half for at in range(node * half // nodes, (node + 1) * half // nodes)
                     for thread in (0, 1)))
        for node in range(nodes)
    )  # fmt: skip
    host = Host("host", "kvm", pcpus, 1e6, threads_per_core=2, numa=numa)
    residents = []
    for number in range(instances):
        vcpus = int(random.choice([2, 4, 8]))
        mean = float(random.uniform(0.05, 0.4)) * vcpus
        node = numa[0] if random.random() < 0.5 else ()
        settings = IsolationSettings(pinning=Pinning.all_on(node, vcpus)) if node else IsolationSettings()
        known = Demand(mean=mean, spread=0.4 * mean)
        residents.append(Instance(f"vm-{number}", vcpus=vcpus, host="host", demand={"cpu": known}, settings=settings))
    return Case(host, tuple(residents))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=200, help="random small hosts of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--large-only", action="store_true")
    given = parser.parse_args()
    if not given.large_only:
        print("| kind | objective | hosts | present value | found | best of all | within 2 % | largest distance |")
        print("|---|---|---:|---:|---:|---:|---:|---:|")
        objectives: tuple[Objective, ...] = ("worst", "total")
        for kind, objective in itertools.product(HOST_KINDS, objectives):
            rows = np.array(compared(kind, given.hosts, objective, given.seed))
            away = (rows[:, 2] - rows[:, 1]) / np.abs(rows[:, 2])
            means = " | ".join(f"{mean:.3f}" for mean in rows.mean(axis=0))
            print(
                f"| {kind} | {objective} | {len(rows)} | {means} | {(away <= WITHIN).mean():.1%} | {away.max():.2%} |"
            )
        print()
    print("| pCPUs | instances | value before | after | changes | CPU s | ended by the clock |")
    print("|---:|---:|---:|---:|---:|---:|---|")
    for pcpus, instances in LARGE:
        snapshot = large(pcpus, instances, given.seed).snapshot()
        begin = time.process_time()
        tuned = tune_host(snapshot, 0, PriorPredictor(), seed=given.seed)
        took = time.process_time() - begin
        found = tuned.found
        print(
            f"| {pcpus} | {instances} | {found.before:.3f} | {found.value:.3f} | {len(tuned.changes)} | {took:.1f} | "
            f"{'yes' if found.timed_out else 'no'} |"
        )


if __name__ == "__main__":
    main()
