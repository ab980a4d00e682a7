"""Demand of all instances of a host together in their busy moments, from sums that one more instance adds to."""

from __future__ import annotations

import numpy as np

from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.contention import variation
from models.physics.demands import Demands
from models.physics.device_contention import device_variation

P95 = 1.645  # standard deviations above the mean, of a normal distribution


def demand_sums(scenes: SceneBatch, want: Demands) -> Floats:
    """Of each host's demand for CPUs (CPUs) and NIC (Mbit/s): the mean, the standard deviation that all have in common,
    which adds up, and the variance of everybody's own, doubt included; (S, 2, 3)."""
    cpu = np.minimum(want.cpu, scenes.cap) + want.driver
    net = np.minimum(want.net, scenes.net_ceil)
    found = []
    for demand, (spread, common, doubt) in (
        (cpu, variation(scenes, cpu)),
        (net, device_variation(scenes, "net_mbit", net)),
    ):
        own = (1 - common) * spread**2 + doubt**2
        parts = (demand, np.sqrt(common) * spread, own)
        found.append(np.stack([_sum(part) for part in parts], axis=1))
    return np.stack(found, axis=1)


def _sum(values: Floats) -> Floats:
    """Sums of rows, one value after the other, so that empty slots at the end change no bit of them."""
    return np.asarray(values.cumsum(axis=1)[:, -1] if values.shape[1] else np.zeros(len(values)))


def p95(sums: Floats) -> Floats:
    """The 95th percentile of what `demand_sums` (..., 3) are of, as if it were normal; (...)."""
    mean, shared, own = (sums[..., at] for at in range(3))
    return np.asarray(mean + P95 * np.sqrt(shared**2 + np.maximum(own, 0.0)))
