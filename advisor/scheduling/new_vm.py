"""The instance to be placed as arrays beside the residents of each host, and what the next place is worth to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from advisor.domain import Instance, PlacementRequest, WorkloadProfile
from advisor.snapshot import ClusterSnapshot, share_promised
from models.arrays import Floats, Ints
from models.data.scene import ProfileTable, SceneBatch, slot_values


def profile_row(snapshot: ClusterSnapshot, request: PlacementRequest) -> tuple[ProfileTable, int | None, bool]:
    """The profile table, the new VM's row in it (None = look it up by name), and whether it has no profile."""
    if request.profile is not None and request.profile.known:
        # a row of its own, so that residents with the same workload name keep their profile
        profile = replace(request.profile, name=request.profile.name or request.instance.id)
        table = snapshot.scenes.table.with_profile(profile)
        return table, len(table.values) - 1, False
    table = snapshot.scenes.table
    return table, None, table.row(request.instance.workload) == 0


def with_own_profile(request: PlacementRequest) -> Instance:
    """The new VM with its own profile, where it has one, as its workload."""
    profile = own_profile(request)
    return request.instance if profile is None else replace(request.instance, workload=profile.name)


def own_profile(request: PlacementRequest) -> WorkloadProfile | None:
    """The new VM's own profile under the name that it has once the new VM is placed, None = it has none."""
    if request.profile is None or not request.profile.known:
        return None
    # No id holds a blank, so this name hides no workload that anybody put by name.
    return replace(request.profile, name=f"pending {request.instance.id}", platform="")


def rows_by_host(
    snapshot: ClusterSnapshot, hosts: Ints, instance: Instance, table: ProfileTable, row: int | None
) -> Ints:
    """The new VM's row of the table on each host: `row`, or its workload's profile on the host's platform."""
    if row is not None:
        return np.full(len(hosts), row)
    platforms = snapshot.scenes.platform[hosts]
    rows = np.full(len(hosts), table.row(instance.workload))
    for platform, workload in table.rows:
        if platform and workload == instance.workload:
            rows[platforms == platform] = table.row(workload, platform)
    return rows


def without_new_vm(
    snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints, table: ProfileTable
) -> SceneBatch:
    """The hosts at these positions without the instance in question, which may run on one of them."""
    base = replace(snapshot.scenes.take(hosts), table=table)
    own_places = snapshot.where(request.instance.id)
    if not own_places:
        return base
    present = base.present.copy()
    for host, slot in own_places:
        present[hosts == host, slot] = False
    return replace(base, present=present)


def new_vm_slot(
    base: SceneBatch, snapshot: ClusterSnapshot, hosts: Ints, instance: Instance, row: int | None
) -> dict[str, Any]:
    """The new VM as slot values for every scene, unpinned; (S,) arrays, affinity (S, P)."""
    anywhere = base.shared[0] if len(base) else np.zeros(base.shared.shape[1], dtype=bool)
    values = slot_values(instance, 0, anywhere, base.table.subject(instance))
    count = len(base)
    filled = {name: np.broadcast_to(value, (count, *np.shape(value))).copy() for name, value in values.items()}
    filled |= {"profile": rows_by_host(snapshot, hosts, instance, base.table, row), "affinity": base.shared.copy()}
    return filled


def limits_of(snapshot: ClusterSnapshot, hosts: Ints, new_vm: Instance, slots: int) -> Floats:
    """The lowest accepted T/B on each host, the new VM in the last of `slots`; (H, N), nan = none."""
    return _with_new_vm(snapshot, snapshot.min_ratio, hosts, new_vm.id, new_vm.min_throughput_ratio, slots)


def latency_limits_of(snapshot: ClusterSnapshot, hosts: Ints, new_vm: Instance, slots: int) -> Floats:
    """The highest accepted latency ratio on each host, as in `limits_of`; (H, N), nan = none."""
    return _with_new_vm(snapshot, snapshot.max_latency, hosts, new_vm.id, new_vm.max_latency_ratio, slots)


def short_limits_of(snapshot: ClusterSnapshot, hosts: Ints, new_vm: Instance, slots: int) -> Floats:
    """The longest accepted part of the time short of CPU on each host, as in `limits_of`; (H, N), nan = none."""
    return _with_new_vm(snapshot, snapshot.max_short, hosts, new_vm.id, new_vm.max_time_short, slots)


def _with_new_vm(
    snapshot: ClusterSnapshot, limits: Floats, hosts: Ints, name: str, limit: float | None, slots: int
) -> Floats:
    with_new_vm = np.full((len(hosts), slots), np.nan)
    with_new_vm[:, : limits.shape[1]] = limits[hosts]
    for host, slot in snapshot.where(name):
        with_new_vm[hosts == host, slot] = np.nan
    with_new_vm[:, -1] = np.nan if limit is None else limit
    return with_new_vm


def used_share(snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints) -> Floats:
    """`share_promised` with the new VM on each host, which may run there already; (H,)."""
    used = snapshot.used_vcpus[hosts] + request.instance.vcpus
    for host, slot in snapshot.where(request.instance.id):
        used[hosts == host] -= snapshot.residents[host][slot].vcpus
    shares = np.asarray(used / snapshot.scenes.pcpus[hosts])
    for row, at in enumerate(hosts.tolist()):
        if snapshot.hosts[at].isolated_cpus or snapshot.hosts[at].dedicated_cpus:
            others = [one for one in snapshot.residents[at] if one.id != request.instance.id]
            shares[row] = share_promised(snapshot.hosts[at], [*others, request.instance])
    return shares


# What the next place on each host is worth to those who are yet to come; arrays only.

SOFT = 0.02  # of a score: differences this small are not known, so that a place has no sharp price
ROUNDS, SETTLED = 60, 1e-4  # the most rounds of the iteration, and how little prices move when it ends


def prices(scores: Floats, places: Floats, arrivals: Floats) -> Floats:
    """The price (G,) of a place on each kind of host, in units of a score.

    `scores` (G, K) says how well an arrival of each class would do there, `places` (G,) how many hosts of the kind
    have a place, at least one, and `arrivals` (K,) how many of each class are expected, above 0, together at most as
    many as there are places.

    If every instance to come were placed at once, so that the sum of scores is the highest, a place would have a shadow
    price: what the sum would lose without it. It is 0 where places of that kind are left over. This is the assignment
    problem with an entropy term (Cuturi, NIPS 2013), which Sinkhorn's iteration solves, for places that may stay empty;
    to go by such prices is bid-price control (Talluri and van Ryzin, Management Science 44, 1998).
    """
    price = np.zeros(len(places))
    with np.errstate(divide="ignore"):
        wanted, there = np.log(arrivals), np.log(places)[:, None]
    for _ in range(ROUNDS):
        gain = _log_sum((scores - price[:, None]) / SOFT + there, axis=0) - wanted  # what a class gets at these prices
        former, price = price, np.maximum(SOFT * _log_sum(scores / SOFT - gain, axis=1), 0.0)
        if np.abs(price - former).max() < SETTLED:
            break
    return price


def _log_sum(values: Floats, axis: int) -> Floats:
    """The logarithm of the sum of the exponentials."""
    most = values.max(axis=axis, keepdims=True)
    return np.asarray(np.squeeze(most, axis) + np.log(np.exp(values - most).sum(axis=axis)))
