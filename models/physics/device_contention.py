"""How NIC, disk and memory bandwidth are shared over time: at the same kind of moments as CPUs, each for itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from models.arrays import Floats
from models.data.scene import DEVICE_DEMAND, DEVICES, SceneBatch
from models.physics.contention import growth, moments, shifted, undecided
from models.physics.cpu_contention import LATE
from models.prediction import DevicePressure
from profiler.demand import Resource

ALL = 1 - 1e-9  # of what was asked

Share = Callable[[Floats], Floats]
"""What each instance gets of what all ask of a device; (S, N) both, in one unit."""


def device_contention_of(
    scenes: SceneBatch, device: Resource, want: Floats, held: Floats, share: Share, deviations: Floats | float = 0.0
) -> DevicePressure:
    """Share one of DEVICES among instances that would ask for `want` (S, N) alone and on average, in any unit.

    `held` (S, N) is what the instance's own cap leaves of its speed. An instance of which no demand over time is known
    asks for the same at every moment. `deviations` as in `cpu_contention_of`. A share counts from full speed, and is 1
    where all came that was asked: what lets an instance ask for less counts itself.
    """
    if not want.any():
        return DevicePressure(np.ones_like(want), np.ones_like(want), np.zeros_like(want))
    spread, common, doubt = device_variation(scenes, device, want)
    want = shifted(want, doubt, deviations)
    moves = growth(want, spread, common, undecided(doubt, deviations))

    def reached(full: Floats) -> Floats:
        asked = full * held
        got = share(asked)
        part = np.divide(got, full, out=np.ones_like(full), where=full > 0)
        return np.where(got >= asked * ALL, 1.0, np.minimum(part, 1.0))

    if not moves.any():
        ratio = reached(want)
        return DevicePressure(ratio, ratio, (ratio < 1).astype(np.float64))
    z, chance = moments()
    factors = np.exp(moves[None] * z[:, None, None])
    factors /= (factors * chance[:, None, None]).sum(axis=0)
    busiest = reached(want * factors[-1])
    if (busiest >= 1).all():
        return DevicePressure(busiest, busiest, np.zeros_like(want))
    ratios = np.stack([*(reached(want * factor) for factor in factors[:-1]), busiest])
    part = factors * chance[:, None, None]  # of all that is wanted, in each moment
    late = np.cumsum(chance) > LATE
    worst = (part * ratios)[late].sum(axis=0) / part[late].sum(axis=0)
    short = ((ratios < ALL) * chance[:, None, None]).sum(axis=0)
    return DevicePressure((part * ratios).sum(axis=0), worst, short)


def device_variation(scenes: SceneBatch, device: Resource, want: Floats) -> tuple[Floats, Floats, Floats]:
    """Spread, common share and doubt of a demand for one of DEVICES, (S, N), in the unit of `want`; 0 = unknown."""
    mean, *rest = (scenes.device_demand[:, :, DEVICES.index(device), at] for at in range(len(DEVICE_DEMAND)))
    spread, common, doubt = (np.nan_to_num(column) for column in rest)
    unit = np.divide(want, mean, out=np.zeros_like(want), where=mean > 0)
    return spread * unit, common, doubt * unit
