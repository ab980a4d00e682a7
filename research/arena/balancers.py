"""Balancing rules of other systems by their documented definitions, written anew; each for one cluster of hosts.

Of Proxmox VE and Incus the published sources were read, too, and no code of them is here.

Proxmox VE 9.2, automatic rebalancing of the Cluster Resource Scheduler with its defaults (datacenter.cfg(5), option
`crs`; chapter "High Availability", section "CRS Load Balancer"): a host's load is the mean of its CPU in use and its
memory in use, both as parts; the imbalance is the coefficient of variation of the loads over the largest that so many
hosts can have, sqrt(n - 1). Above 30 % the one migration that leaves the least imbalance is made (`bruteforce`), if it
takes at least 10 % of the imbalance away; then again. Rules are kept, and those that belong together move together. It
is not documented that room is checked. Resources with `auto-rebalance 0` stay.

Incus, `cluster.rebalance.*` with its defaults (doc "Automatically balance instances across the cluster"; settings
`threshold` 20 %, `batch` 1, `cooldown` 6H): a server's score is the mean of memory in use and load per CPU, in whole
per cent. Where the most loaded is above the least loaded by the threshold of its own score, instances that can migrate
live go from it to the least loaded, in their order, while that stays below the middle of both scores with what the
configuration of the instance names; one instance in each pass, and none within the cooldown after its move.

OneDRS (OpenNebula 7, chapter "Distributed Resource Scheduler"): an integer program within CPU and memory as promised
and the affinity rules. `BALANCE` minimizes the highest use of CPU by a host (`CPU_USAGE: 1`), with at most
`MIGRATION_THRESHOLD` moves (10 in the documented file); `PACK` the number of hosts in use. `ONEDRS_BLOCKED` stay. No
order of the moves is documented: they come in order of their names.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from advisor.domain import Instance, Inventory
from models.arrays import Floats, Ints
from research.arena.clusters import SimulatedCluster
from research.arena.rebalances import Rebalanced, Stage

CRS_THRESHOLD, CRS_MARGIN = 0.30, 0.10
INCUS_THRESHOLD, INCUS_BATCH = 20, 1
DRS_MOVES = 10
DRS_SECONDS = 20.0  # of each cluster; a solver that is stopped answers the best that it has
MIP_GAP = 1e-4
MOST_ROUNDS = 10_000

Balancer = Callable[[Inventory], list[Stage]]


@dataclass(frozen=True, slots=True)
class Held:
    """A cluster as arrays: of its n instances vCPUs, MB and demand, (n, 3), and hosts as numbers, (n,); of its H hosts
    CPUs and MB, (H, 2), and what may be promised, (H, 2)."""

    inventory: Inventory
    sizes: Floats
    at: Ints
    whole: Floats
    room: Floats

    @classmethod
    def of(cls, inventory: Inventory) -> Held:
        """Every instance with its host and mean demand."""
        number = {host.id: at for at, host in enumerate(inventory.hosts)}
        sizes = [(one.vcpus, one.memory_mb, one.demand["cpu"].mean) for one in inventory.instances]
        whole = np.array([(host.pcpus, host.memory_mb) for host in inventory.hosts], float)
        times = np.array([(host.cpu_overcommit, host.memory_overcommit) for host in inventory.hosts])
        at = np.array([number[str(one.host)] for one in inventory.instances])
        return cls(inventory, np.array(sizes, float).reshape(-1, 3), at, whole, whole * times)

    def used(self, at: Ints) -> Floats:
        """CPUs and MB in use with the instances on these hosts, (H, 2)."""
        return np.stack([np.bincount(at, self.sizes[:, column], len(self.whole)) for column in (2, 1)], axis=1)

    def name(self, instance: int, host: int) -> tuple[str, str]:
        """A move in names."""
        return self.inventory.instances[instance].id, self.inventory.hosts[host].id

    def groups(self, names: Callable[[Instance], tuple[str, ...]]) -> list[list[int]]:
        """The instances of each group of two and more, in order of the names of groups."""
        found: dict[str, list[int]] = {}
        for at, one in enumerate(self.inventory.instances):
            for group in names(one):
                found.setdefault(group, []).append(at)
        return [members for _, members in sorted(found.items()) if len(members) > 1]


def together(one: Instance) -> tuple[str, ...]:
    """The group that shares a host with it, if there is one."""
    return (one.affinity_group,) if one.affinity_group else ()


def apart(one: Instance) -> tuple[str, ...]:
    """The groups of which none shares a host with it."""
    return one.anti_affinity_groups


def decided(balancer: Balancer, cluster: SimulatedCluster) -> Rebalanced:
    """The moves of a rule on this cluster, and the time that it takes here, which says nothing of the system's own."""
    first, first_cpu = time.perf_counter(), time.process_time()
    stages = balancer(cluster.inventory)
    seconds, cpu_seconds = time.perf_counter() - first, time.process_time() - first_cpu
    after = {**cluster.places, **{name: host for stage in stages for name, host in stage}}
    return Rebalanced(cluster.after(after), sum(map(len, stages)), seconds, cpu_seconds, tuple(stages))


def proxmox(inventory: Inventory) -> list[Stage]:
    """Proxmox VE 9.2's rebalancing, round after round until it moves nothing."""
    held = Held.of(inventory)
    units, forbidden = _units(held)
    at, stages = held.at.copy(), list[Stage]()
    for _ in range(MOST_ROUNDS):
        used = held.used(at)
        imbalance = imbalance_of((used / held.whole).mean(axis=1))
        if imbalance <= CRS_THRESHOLD:
            break
        best = min(_migrations(held, units, forbidden, at, used), default=(math.inf, 0, 0))
        if best[0] > imbalance * (1 - CRS_MARGIN):
            break
        members, host = units[best[1]], best[2]
        at[members] = host
        stages.append(tuple(held.name(one, host) for one in members))
    return stages


def imbalance_of(loads: Floats) -> float:
    """The coefficient of variation of loads (H,), as a part of the largest that H hosts can have."""
    if len(loads) < 2 or not loads.any():
        return 0.0
    return float(loads.std() / loads.mean() / math.sqrt(len(loads) - 1))


def _units(held: Held) -> tuple[list[list[int]], list[list[int]]]:
    """Instances that move together, and for each unit its rivals; an instance that stays is in none."""
    paired = held.groups(together)
    alone = set(range(len(held.at))) - {one for members in paired for one in members}
    stays = {at for at, one in enumerate(held.inventory.instances) if one.never_moves}
    units = [members for members in (*paired, *([one] for one in sorted(alone))) if not stays & set(members)]
    rivals: dict[int, list[int]] = {}
    for members in held.groups(apart):
        for one in members:
            rivals.setdefault(one, []).extend(other for other in members if other != one)
    return units, [[other for one in members for other in rivals.get(one, [])] for members in units]


def _migrations(
    held: Held, units: list[list[int]], forbidden: list[list[int]], at: Ints, used: Floats
) -> Iterator[tuple[float, int, int]]:
    """For each unit the host that leaves the least imbalance: imbalance, unit, host."""
    loads, hosts = (used / held.whole).mean(axis=1), len(held.whole)
    total, squares = loads.sum(), float((loads**2).sum())
    for number, members in enumerate(units):
        source, moved = int(at[members[0]]), held.sizes[members].sum(axis=0)[[2, 1]]
        left, come = loads[source] - (moved / held.whole[source]).mean(), loads + (moved / held.whole).mean(axis=1)
        sums = total - loads[source] + left - loads + come
        of_squares = squares - loads[source] ** 2 + left**2 - loads**2 + come**2
        variance = np.maximum(of_squares / hosts - (sums / hosts) ** 2, 0.0)
        after = np.sqrt(variance) / (sums / hosts) / math.sqrt(max(hosts - 1, 1))
        after[[source, *at[forbidden[number]].tolist()]] = math.inf
        best = int(after.argmin())
        yield float(after[best]), number, best


def incus(inventory: Inventory) -> list[Stage]:
    """Incus' rebalancing, pass after pass within one cooldown until it moves nothing."""
    held = Held.of(inventory)
    at, moved, stages = held.at.copy(), set[int](), list[Stage]()
    for _ in range(MOST_ROUNDS):
        used = held.used(at)
        scores = [score_of(*used[host], *held.whole[host]) for host in range(len(used))]
        order = sorted(range(len(scores)), key=lambda host: -scores[host])
        most, least = order[0], order[-1]
        if not scores[most] or 100 * (scores[most] - scores[least]) // scores[most] < INCUS_THRESHOLD:
            break
        middle, batch = (scores[most] + scores[least]) // 2, 0
        for one in np.flatnonzero(at == most).tolist():
            named = held.sizes[one]
            there = used[least] + (named[0], named[1])
            stays = one in moved or inventory.instances[one].never_moves
            if stays or batch == INCUS_BATCH or score_of(*there, *held.whole[least]) >= middle:
                continue
            at[one], used[least], batch = least, there, batch + 1
            moved.add(one)
            stages.append((held.name(one, least),))
        if not batch:
            break
    return stages


def score_of(cpus: float, memory_mb: float, of_cpus: float, of_memory_mb: float) -> int:
    """A server's score, in whole per cent: what is in use of its memory and of its CPUs, the mean of both."""
    return (int(100 * memory_mb / of_memory_mb) + int(100 * cpus / of_cpus)) // 2


def one_drs_balance(inventory: Inventory) -> list[Stage]:
    """OneDRS' policy BALANCE on CPU_USAGE."""
    return _one_drs(Held.of(inventory), pack=False, most_moves=DRS_MOVES)


def one_drs_pack(inventory: Inventory) -> list[Stage]:
    """OneDRS' policy PACK, with as many moves as it takes."""
    return _one_drs(Held.of(inventory), pack=True, most_moves=None)


def _one_drs(held: Held, *, pack: bool, most_moves: int | None) -> list[Stage]:
    """Binary x[i, h] = instance i is on host h, and u = the highest use, or y[h] = host h is in use."""
    count, hosts = len(held.at), len(held.whole)
    x = np.arange(count * hosts).reshape(count, hosts)
    extra = hosts if pack else 1
    rows = _Rows(x.size + extra)
    for one in range(count):
        rows.add(x[one], 1.0, 1.0, 1.0)
    for host in range(hosts):
        own = x.size + (host if pack else 0)
        for column, most in enumerate(held.room[host]):
            if pack:
                rows.add([*x[:, host], own], [*held.sizes[:, column], -most], -math.inf, 0.0)
            else:
                rows.add(x[:, host], held.sizes[:, column], -math.inf, most)
        if not pack:
            rows.add([*x[:, host], own], [*held.sizes[:, 2], -held.whole[host, 0]], -math.inf, 0.0)
        for members in held.groups(apart):
            rows.add(x[members, host], 1.0, -math.inf, 1.0)
        for first, *others in held.groups(together):
            for other in others:
                rows.add([x[first, host], x[other, host]], [1.0, -1.0], 0.0, 0.0)
    if most_moves is not None:
        rows.add(x[np.arange(count), held.at], 1.0, count - most_moves, math.inf)
    least = np.zeros(x.size + extra)
    for one, instance in enumerate(held.inventory.instances):
        least[x[one, held.at[one]]] = instance.never_moves
    objective, most = np.r_[np.zeros(x.size), np.ones(extra)], np.ones(x.size + extra)
    found = milp(
        objective,
        integrality=np.r_[np.ones(x.size), np.full(extra, int(pack))],
        bounds=Bounds(least, most if pack else np.r_[most[:-1], math.inf]),
        constraints=rows.constraint(),
        options={"time_limit": DRS_SECONDS, "mip_rel_gap": MIP_GAP},
    )
    if found.x is None:
        return []
    after = found.x[: x.size].reshape(count, hosts).argmax(axis=1)
    return [(held.name(one, int(after[one])),) for one in np.flatnonzero(after != held.at).tolist()]


class _Rows:
    """Rows of a sparse matrix with their limits."""

    def __init__(self, columns: int) -> None:
        self._columns, self._entries, self._limits = (
            columns,
            list[tuple[Ints, Ints, Floats]](),
            list[tuple[float, float]](),
        )

    def add(self, at: object, values: object, low: float, high: float) -> None:
        """A row with values at columns; one value is for all."""
        columns = np.asarray(at, dtype=np.int64)
        row = np.full(len(columns), len(self._limits))
        self._entries.append((row, columns, np.broadcast_to(np.asarray(values, float), columns.shape)))
        self._limits.append((low, high))

    def constraint(self) -> LinearConstraint:
        """All rows."""
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        matrix = coo_array((value, (row, column)), (len(self._limits), self._columns)).tocsr()
        low, high = np.array(self._limits).T
        return LinearConstraint(matrix, low, high)


BALANCERS: dict[str, Balancer] = {
    "Proxmox VE 9.2's rule": proxmox,
    "Incus' rule": incus,
    "OneDRS' rule, balance": one_drs_balance,
    "OneDRS' rule, pack": one_drs_pack,
}
