"""The instance that is to be placed as arrays, beside who is on the hosts already; no predictions here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Instance, PlacementRequest
from advisor.snapshot import ClusterSnapshot
from models.scene import ProfileTable, SceneBatch, slot_values

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def profile_row(snapshot: ClusterSnapshot, request: PlacementRequest) -> tuple[ProfileTable, int | None, bool]:
    """The profile table, the newcomer's row in it (None = look it up per host by name), whether nothing is known."""
    if request.profile is not None and request.profile.known:
        # a row of its own, so that residents whose workload has the same name stay what the cloud says of them
        profile = replace(request.profile, name=request.profile.name or request.instance.id)
        table = snapshot.scenes.table.with_profile(profile)
        return table, len(table.values) - 1, False
    table = snapshot.scenes.table
    return table, None, table.row(request.instance.workload) == 0


def without_it(snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints, table: ProfileTable) -> SceneBatch:
    """The feasible hosts as they stand, without the instance in question if it sits on one of them."""
    base = replace(snapshot.scenes.take(hosts), table=table)
    present = base.present.copy()
    for at, host in enumerate(hosts):
        for slot, resident in enumerate(snapshot.residents[host]):
            if resident.id == request.instance.id:
                present[at, slot] = False
    return replace(base, present=present)


def newcomer_slot(
    base: SceneBatch, snapshot: ClusterSnapshot, hosts: Ints, instance: Instance, row: int | None
) -> dict[str, Any]:
    """The newcomer as slot values for every scene, unpinned; (S,) arrays, affinity (S, P)."""
    width = base.driver_cpus.shape[1]
    plain = replace(instance, settings=replace(instance.settings, pinning=None))
    values = slot_values(plain, 0, width, width)
    count = len(base)
    filled = {name: np.broadcast_to(value, (count, *np.shape(value))).copy() for name, value in values.items()}
    filled["profile"] = np.array(
        [base.table.row(instance.workload, snapshot.hosts[host].platform) if row is None else row for host in hosts],
        dtype=np.int64,
    )
    return filled


def limits_of(snapshot: ClusterSnapshot, hosts: Ints, newcomer: Instance, slots: int) -> Floats:
    """Lowest T/B that each accepts on each host, the newcomer in the last of `slots`; (H, N), nan = none."""
    limits = np.full((len(hosts), slots), np.nan)
    for at, host in enumerate(hosts):
        for slot, resident in enumerate(snapshot.residents[host]):
            if resident.min_throughput_ratio is not None and resident.id != newcomer.id:
                limits[at, slot] = resident.min_throughput_ratio
    if newcomer.min_throughput_ratio is not None:
        limits[:, -1] = newcomer.min_throughput_ratio
    return limits


def used_share(snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints) -> Floats:
    """vCPUs promised over pCPUs once the newcomer, which may sit there already, is on a host; (H,)."""
    used = snapshot.used_vcpus[hosts] + request.instance.vcpus
    for at, host in enumerate(hosts):
        used[at] -= sum(one.vcpus for one in snapshot.residents[host] if one.id == request.instance.id)
    return np.asarray(used / snapshot.scenes.pcpus[hosts])
