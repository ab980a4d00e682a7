"""Demand of all instances of a host together in their busy moments, from sums that one more instance adds to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from models.arrays import Floats
from models.data.scene import DEVICES, SceneBatch
from models.physics.contention import moments, variation
from models.physics.demands import Demands, capacity, link
from models.physics.device_contention import device_variation

P95 = 1.645  # standard deviations above the mean, of a normal distribution
NEVER = 4.0  # standard deviations above which no more vCPUs want a CPU


def demand_sums(scenes: SceneBatch, want: Demands) -> Floats:
    """Of each host's demand for every one of RESOURCES, in its unit: the mean, the standard deviation that all have in
    common, which adds up, the variance of everybody's own, doubt included, and the variance of how many vCPUs want a
    CPU at a time, 0 of devices; (S, 4, 4)."""
    cpu = np.minimum(want.cpu, scenes.cap) + want.driver
    bursts = cpu * (1 - np.divide(cpu, scenes.vcpus, out=np.zeros_like(cpu), where=scenes.vcpus > 0).clip(0.0, 1.0))
    net = np.minimum(want.net, scenes.net_ceil)
    disk = np.minimum(want.disk * capacity(scenes, "disk_mb_s")[:, None], scenes.disk_limit)
    memory = want.memory * capacity(scenes, "mem_bw_mb_s")[:, None]
    nothing = np.zeros(len(scenes))
    found = [_column(cpu, variation(scenes, cpu), _sum(bursts))]
    for device, demand in zip(DEVICES, (net, disk, memory), strict=True):
        moving = np.zeros((3, *demand.shape)) if not demand.any() else device_variation(scenes, device, demand)
        found.append(_column(demand, moving, nothing))
    return np.stack(found, axis=1)


def _column(demand: Floats, moving: Sequence[Floats] | Floats, bursts: Floats) -> Floats:
    spread, common, doubt = moving
    parts = (demand, np.sqrt(common) * spread, (1 - common) * spread**2 + doubt**2)
    return np.stack([*(_sum(part) for part in parts), bursts], axis=1)


def _sum(values: Floats) -> Floats:
    """Sums of rows, one value after the other, so that empty slots at the end change no bit of them."""
    return np.asarray(values.cumsum(axis=1)[:, -1] if values.shape[1] else np.zeros(len(values)))


def rooms(scenes: SceneBatch) -> Floats:
    """What each host has of every one of RESOURCES, in its unit, inf = unknown; (S, 4)."""
    bandwidths = [capacity(scenes, device) for device in DEVICES[1:]]
    return np.stack([scenes.pcpus, link(scenes), *(np.where(one > 0, one, np.inf) for one in bandwidths)], axis=1)


def p95(sums: Floats) -> Floats:
    """The 95th percentile of what `demand_sums` (..., 4) are of, as if it were normal; (...)."""
    mean, shared, own = (sums[..., at] for at in range(3))
    return np.asarray(mean + P95 * np.sqrt(shared**2 + np.maximum(own, 0.0)))


def shares(sums: Floats, room: Floats) -> Floats:
    """About what part of their demand all of a host together get of its scarcest resource; `sums` (S, R, 4) and `room`
    (S, R) as above; (S,).

    The sum of demands is lognormal over moments, and the number of vCPUs that want a CPU normal within one. Weights,
    caps and pins are not looked at, nor who it is that waits: this is for telling hosts apart that differ clearly.
    """
    share = np.ones(len(sums))
    for resource in range(sums.shape[1]):
        busy = np.flatnonzero((sums[:, resource, 0] > 0) & np.isfinite(room[:, resource]))
        if len(busy):
            share[busy] = np.minimum(share[busy], _share(sums[busy, resource], room[busy, resource]))
    return share


def _share(sums: Floats, room: Floats) -> Floats:
    """The same of one resource; `sums` (S, 4) and `room` (S,)."""
    z, chance = moments()
    mean, shared, own, bursts = (sums[:, at] for at in range(4))
    growth = np.sqrt(np.log1p((shared**2 + np.maximum(own, 0.0)) / mean**2))
    level = mean / (np.exp(growth[:, None] * z) @ chance)
    share = np.ones(len(sums))
    highest = level * np.exp(growth * z[-1])
    full = np.flatnonzero(highest + NEVER * np.sqrt(bursts * highest / mean) > room)
    factor = np.exp(growth[full, None] * z)
    wanted = level[full, None] * factor  # (F, M), as the next ones
    deviation = np.sqrt(np.maximum(bursts[full, None] * wanted / mean[full, None], 1e-12))
    over = (wanted - room[full, None]) / deviation
    lacking = deviation * np.exp(-(over**2) / 2) / np.sqrt(2 * np.pi) + (wanted - room[full, None]) * ndtr(over)
    share[full] = 1 - (lacking @ chance) / mean[full]
    return np.asarray(np.clip(share, 1e-3, 1.0))
