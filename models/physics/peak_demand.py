"""Demand of all instances of a host together in their busy moments, from sums that one more instance adds to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.arrays import Floats
from models.data.scene import DAY_PARTS, DEVICES, SceneBatch
from models.physics.contention import beside_the_day, day_factors, device_variation, moments, variation
from models.physics.demands import Demands, capacity, link
from models.physics.normal import below

FIGURES = 4  # of the sums, before those of DAY_PARTS
P95 = 1.645  # standard deviations above the mean, of a normal distribution
HALVINGS = 30  # of what lies between two demands, of which one is too low for a percentile
NEVER = 4.0  # standard deviations above which no more vCPUs want a CPU


def demand_sums(scenes: SceneBatch, want: Demands) -> Floats:
    """Of each host's demand for every one of RESOURCES, in its unit: the mean, the standard deviation that all have in
    common, which adds up, the variance of every instance's own, doubt included, the variance of how many vCPUs want a
    CPU at a time, 0 of devices, and the mean in each of DAY_PARTS; (S, 4, 16). The host's own work is part of it.

    What varies beside the day does so in proportion to the mean of the part.
    """
    cpu = np.minimum(want.cpu, scenes.cap) + want.driver
    bursts = cpu * (1 - np.divide(cpu, scenes.vcpus, out=np.zeros_like(cpu), where=scenes.vcpus > 0).clip(0.0, 1.0))
    net = np.minimum(want.net, scenes.net_ceil)
    disk = np.minimum(want.disk * capacity(scenes, "disk_mb_s")[:, None], scenes.disk_limit)
    memory = want.memory * capacity(scenes, "mem_bw_mb_s")[:, None]
    nothing = np.zeros(len(scenes))
    spread, common, doubt = variation(scenes, cpu)
    day = day_factors(scenes)
    found = [_column(cpu, (*beside_the_day(cpu, spread, common, day), doubt), _sum(bursts), day)]
    _add_own_work(scenes, found[0])
    for device, demand in zip(DEVICES, (net, disk, memory), strict=True):
        moving = np.zeros((3, *demand.shape)) if not demand.any() else device_variation(scenes, device, demand)
        found.append(_column(demand, moving, nothing))
    return np.stack(found, axis=1)


def _column(demand: Floats, moving: Sequence[Floats] | Floats, bursts: Floats, day: Floats | None = None) -> Floats:
    spread, common, doubt = moving
    parts = (demand, np.sqrt(common) * spread, (1 - common) * spread**2 + doubt**2)
    mean, *rest = (_sum(part) for part in parts)
    by_part = [mean] * len(DAY_PARTS) if day is None else [_sum(demand * day[:, :, at]) for at in range(len(DAY_PARTS))]
    return np.stack([mean, *rest, bursts, *by_part], axis=1)


def _add_own_work(scenes: SceneBatch, cpu: Floats) -> None:
    """Add what hosts use themselves to their sums of CPUs (S, 16): as much all day, on CPUs that come and go."""
    cpu[:, 0] += scenes.own_cpus
    cpu[:, FIGURES - 1] += scenes.own_cpus * (1 - scenes.own_cpus / np.maximum(np.ceil(scenes.own_cpus), 1.0))
    cpu[:, FIGURES:] += scenes.own_cpus[:, None]


def _sum(values: Floats) -> Floats:
    """Sums of rows, one value after the other, so that empty slots at the end change no bit of them."""
    return np.asarray(values.cumsum(axis=1)[:, -1] if values.shape[1] else np.zeros(len(values)))


def rooms(scenes: SceneBatch) -> Floats:
    """What each host has of every one of RESOURCES, in its unit, inf = unknown; (S, 4)."""
    bandwidths = [capacity(scenes, device) for device in DEVICES[1:]]
    return np.stack([scenes.used_cpus, link(scenes), *(np.where(one > 0, one, np.inf) for one in bandwidths)], axis=1)


def p95(sums: Floats) -> Floats:
    """The 95th percentile of what `demand_sums` (S, 16) are of, as if it were normal in each part of the day; (S,)."""
    mean, deviation = sums[:, 0], _deviation(sums)
    level = mean + P95 * deviation
    vary = np.flatnonzero((mean > 0) & (np.ptp(sums[:, FIGURES:], axis=1) > 1e-9 * mean))
    if len(vary):
        parts = sums[vary, FIGURES:]
        wide = np.maximum(deviation[vary, None] * parts / mean[vary, None], 1e-9)
        low, high = mean[vary], (parts + P95 * wide).max(axis=1)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            enough = below((middle[:, None] - parts) / wide).mean(axis=1) >= 0.95
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        level[vary] = high
    return level


def _deviation(sums: Floats) -> Floats:
    return np.asarray(np.sqrt(sums[:, 1] ** 2 + np.maximum(sums[:, 2], 0.0)))


def shares(sums: Floats, room: Floats) -> Floats:
    """About what part of their demand all of a host together get of its scarcest resource; `sums` (S, R, 16) and `room`
    (S, R) as above; (S,).

    In each part of the day the sum of demands is lognormal over moments, and the number of vCPUs that want a CPU
    normal within one. Weights, caps and pins are not looked at, nor which it is that waits: this is for telling hosts
    apart that differ clearly.
    """
    share = np.ones(len(sums))
    for resource in range(sums.shape[1]):
        busy = np.flatnonzero((sums[:, resource, 0] > 0) & np.isfinite(room[:, resource]))
        if len(busy):
            share[busy] = np.minimum(share[busy], _share(sums[busy, resource], room[busy, resource]))
    return share


def _share(sums: Floats, room: Floats) -> Floats:
    """The same of one resource; `sums` (S, 16) and `room` (S,)."""
    z, chance = moments()
    mean, bursts = sums[:, 0], sums[:, 3]
    growth = np.sqrt(np.log1p((_deviation(sums) / mean) ** 2))
    factor = np.exp(growth[:, None] * z)
    factor /= (factor @ chance)[:, None]
    busiest = sums[:, FIGURES:].max(axis=1)
    highest = busiest * factor[:, -1]
    full = np.flatnonzero(highest + NEVER * np.sqrt(bursts * highest / mean) > room)
    share = np.ones(len(sums))
    if len(full):
        parts = sums[full, FIGURES:]
        if not (np.ptp(parts, axis=1) > 1e-9 * mean[full]).any():
            parts = parts[:, :1]
        demanded = parts[:, :, None] * factor[full, None]  # (F, D, M), as the next ones
        more, there = bursts[full, None, None] / mean[full, None, None], room[full, None, None]
        deviation = np.sqrt(np.maximum(more * demanded, 1e-12))
        over = (demanded - there) / deviation
        lacking = deviation * np.exp(-(over**2) / 2) / np.sqrt(2 * np.pi) + (demanded - there) * below(over)
        share[full] = 1 - (lacking @ chance).mean(axis=1) / mean[full]
    return np.asarray(np.clip(share, 1e-3, 1.0))
