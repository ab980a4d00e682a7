"""Resource pressure: the unrestricted demand of each host's residents over the host's capacity."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.demands import capacity, demands, driver_price, holds, link, trait
from models.physics.prior import RESOURCES


def pressure(snapshot: ClusterSnapshot) -> Mapping[str, Mapping[str, float | None]]:
    """Demand over capacity by host and resource (RESOURCES): 0 = idle, 1 = full, above 1 = contention, None = unknown.

    Demands come from solo profiles at each load, under caps, ceilings and disk limits; `memory` is bandwidth. A
    workload without a profile counts as using what virtual machines of public traces do, as in the prior. A container
    host has no driver domain (None).
    """
    rows = pressure_array(snapshot).tolist()
    return {
        host.id: {name: None if math.isnan(value) else value for name, value in zip(RESOURCES, row, strict=True)}
        for host, row in zip(snapshot.hosts, rows, strict=True)
    }


def pressure_array(snapshot: ClusterSnapshot) -> Floats:
    """The same as an array (H, 5) in the order of RESOURCES, nan = unknown."""
    return np.asarray(pressure_of_each(snapshot.scenes).sum(axis=1))


def pressure_of_each(scenes: SceneBatch) -> Floats:
    """What each instance asks for over the capacity of its host, (S, N, 5) in the order of RESOURCES, nan = unknown."""
    demanded = demands(scenes)
    parallel = trait(scenes.kind, "driver_servers")
    driver = demanded.driver * driver_price(scenes, demanded) if scenes.slots else demanded.driver
    # The driver domain can use its CPUs, but no more of them than one bridge was measured to keep busy
    # (profiler.host_kinds).
    driver_room = np.minimum(
        scenes.driver_cpus.sum(axis=1), np.maximum(parallel, demanded.driver.max(axis=1, initial=0.0))
    )
    driver_room = np.where(holds(scenes.kind, "has_driver_domain"), driver_room, np.nan)
    disk_mb_s, memory_mb_s = capacity(scenes, "disk_mb_s"), capacity(scenes, "mem_bw_mb_s")
    disk_most = np.divide(
        scenes.disk_limit, disk_mb_s[:, None], out=np.full(demanded.disk.shape, np.inf), where=disk_mb_s[:, None] > 0
    )
    network = link(scenes)
    cpu = np.minimum(demanded.cpu, scenes.cap)
    used = {
        "cpu": (cpu + driver, scenes.used_cpus),  # the driver domain runs on the host's CPUs, too
        "driver_domain": (driver, driver_room),
        "nic": (np.minimum(demanded.net, scenes.net_ceil), np.where(np.isfinite(network), network, np.nan)),
        "disk": (np.minimum(demanded.disk, disk_most), np.where(disk_mb_s > 0, 1.0, np.nan)),
        "memory": (demanded.memory, np.where(memory_mb_s > 0, 1.0, np.nan)),
    }
    return np.stack([amount / room[:, None] for amount, room in (used[name] for name in RESOURCES)], axis=2)
