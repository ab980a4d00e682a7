"""Pressure: what the residents of each host ask of every resource when nobody holds them back, over what it has."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.physics.demands import capacity, demands, driver_price, link
from models.physics.kinds import holds, trait
from models.physics.prior import RESOURCES


def pressure(snapshot: ClusterSnapshot) -> Mapping[str, Mapping[str, float | None]]:
    """By host and by resource (RESOURCES: cpu, driver_domain, nic, disk, memory, which is its bandwidth) the demand
    over the capacity: 0 = idle, 1 = all of it, above 1 = somebody must wait; None = nobody knows the capacity.

    Demands are those of the solo profiles at each load, under caps, ceilings and disk limits; a workload without a
    profile counts as busy on all its vCPUs, as it does in the prior. A container has no driver domain (None).
    """
    rows = asked(snapshot).tolist()
    return {
        host.id: {name: None if math.isnan(value) else value for name, value in zip(RESOURCES, row, strict=True)}
        for host, row in zip(snapshot.hosts, rows, strict=True)
    }


def asked(snapshot: ClusterSnapshot) -> Floats:
    """The same as an array (H, 5), hosts as in the snapshot, resources in the order of RESOURCES, nan = not known."""
    scenes = snapshot.scenes
    want = demands(scenes)
    parallel = trait(scenes.kind, "driver_servers")
    driver = want.driver * driver_price(scenes, want) if scenes.slots else want.driver
    # The driver domain can use its CPUs, but no more of them than one bridge was measured to keep busy
    # (profiler.host_kinds).
    driver_room = np.minimum(scenes.driver_cpus.sum(axis=1), np.maximum(parallel, want.driver.max(axis=1, initial=0.0)))
    driver_room = np.where(holds(scenes.kind, "has_driver_domain"), driver_room, np.nan)
    disk_mb_s, memory_mb_s = capacity(scenes, "disk_mb_s"), capacity(scenes, "mem_bw_mb_s")
    disk_most = np.divide(
        scenes.disk_limit, disk_mb_s[:, None], out=np.full(want.disk.shape, np.inf), where=disk_mb_s[:, None] > 0
    )
    network = link(scenes)
    cpu = np.minimum(want.cpu, scenes.cap).sum(axis=1)
    used = {
        "cpu": (cpu + driver.sum(axis=1), scenes.pcpus),  # the driver domain runs on the host's CPUs, too
        "driver_domain": (driver.sum(axis=1), driver_room),
        "nic": (np.minimum(want.net, scenes.net_ceil).sum(axis=1), np.where(np.isfinite(network), network, np.nan)),
        "disk": (np.minimum(want.disk, disk_most).sum(axis=1), np.where(disk_mb_s > 0, 1.0, np.nan)),
        "memory": (want.memory.sum(axis=1), np.where(memory_mb_s > 0, 1.0, np.nan)),
    }
    return np.stack([amount / room for amount, room in (used[name] for name in RESOURCES)], axis=1)
