"""The instance that is to be placed as arrays, beside who is on the hosts already; no predictions here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from advisor.domain import Instance, PlacementRequest
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats, Ints
from models.data.scene import ProfileTable, SceneBatch, slot_values


def profile_row(snapshot: ClusterSnapshot, request: PlacementRequest) -> tuple[ProfileTable, int | None, bool]:
    """The profile table, the newcomer's row in it (None = look it up per host by name), whether nothing is known."""
    if request.profile is not None and request.profile.known:
        # a row of its own, so that residents whose workload has the same name stay what the cloud says of them
        profile = replace(request.profile, name=request.profile.name or request.instance.id)
        table = snapshot.scenes.table.with_profile(profile)
        return table, len(table.values) - 1, False
    table = snapshot.scenes.table
    return table, None, table.row(request.instance.workload) == 0


def rows_by_host(
    snapshot: ClusterSnapshot, hosts: Ints, instance: Instance, table: ProfileTable, row: int | None
) -> Ints:
    """The newcomer's row of the table on each host: `row`, or its workload as it is known on the host's platform."""
    if row is not None:
        return np.full(len(hosts), row)
    platforms = snapshot.scenes.platform[hosts]
    found = np.full(len(hosts), table.row(instance.workload))
    for platform, workload in table.rows:
        if platform and workload == instance.workload:
            found[platforms == platform] = table.row(workload, platform)
    return found


def without_it(snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints, table: ProfileTable) -> SceneBatch:
    """The feasible hosts as they stand, without the instance in question if it sits on one of them."""
    base = replace(snapshot.scenes.take(hosts), table=table)
    mine = snapshot.where(request.instance.id)
    if not mine:
        return base
    present = base.present.copy()
    for host, slot in mine:
        present[hosts == host, slot] = False
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
    filled["profile"] = rows_by_host(snapshot, hosts, instance, base.table, row)
    return filled


def limits_of(snapshot: ClusterSnapshot, hosts: Ints, newcomer: Instance, slots: int) -> Floats:
    """Lowest T/B that each accepts on each host, the newcomer in the last of `slots`; (H, N), nan = none."""
    return _with_newcomer(snapshot, snapshot.min_ratio, hosts, newcomer.id, newcomer.min_throughput_ratio, slots)


def latency_limits_of(snapshot: ClusterSnapshot, hosts: Ints, newcomer: Instance, slots: int) -> Floats:
    """Highest latency ratio that each accepts on each host, as in `limits_of`; (H, N), nan = none."""
    return _with_newcomer(snapshot, snapshot.max_latency, hosts, newcomer.id, newcomer.max_latency_ratio, slots)


def _with_newcomer(
    snapshot: ClusterSnapshot, limits: Floats, hosts: Ints, name: str, limit: float | None, slots: int
) -> Floats:
    found = np.full((len(hosts), slots), np.nan)
    found[:, : limits.shape[1]] = limits[hosts]
    for host, slot in snapshot.where(name):
        found[hosts == host, slot] = np.nan
    found[:, -1] = np.nan if limit is None else limit
    return found


def used_share(snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints) -> Floats:
    """vCPUs promised over pCPUs once the newcomer, which may sit there already, is on a host; (H,)."""
    used = snapshot.used_vcpus[hosts] + request.instance.vcpus
    for host, slot in snapshot.where(request.instance.id):
        used[hosts == host] -= snapshot.residents[host][slot].vcpus
    return np.asarray(used / snapshot.scenes.pcpus[hosts])
