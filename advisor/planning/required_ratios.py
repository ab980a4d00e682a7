"""Required ratios: the lowest T/B that each instance must keep, by its own limit or its own settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.domain import Host, Instance, unpinned
from models.arrays import Floats
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.feature_matrix import solo_ratio


def required_ratios(scenes: SceneBatch, min_ratio: Floats, keep_ratio: float) -> Floats:
    """The lowest accepted T/B, (S, N): `min_ratio` (S, N) where it is a number, else a share of the ratio alone.

    The share is `keep_ratio` of what the instance's own cap, rate and disk limit allow it alone (1 without any),
    because neighbours do not cause the rest. The prior computes it, so it is the same for every model.
    """
    return np.where(np.isnan(min_ratio), keep_ratio * solo_ratio(scenes, "throughput"), min_ratio)


def required_ratios_of(pairs: Sequence[tuple[Host, Instance]], table: ProfileTable, keep_ratio: float) -> Floats:
    """The same for instances, each on the given host, (I,); pins beyond the host's pCPUs are ignored."""
    limits = [instance.min_throughput_ratio for _, instance in pairs]
    ratios = np.array([keep_ratio if limit is None else limit for limit in limits], dtype=np.float64)
    without_limit = [at for at, (_, instance) in enumerate(pairs) if limits[at] is None and _limited(instance)]
    if without_limit:
        scenes = build_batch([(pairs[at][0], (_pinned_within(*pairs[at]),)) for at in without_limit], table)
        ratios[without_limit] = required_ratios(scenes, np.full(scenes.present.shape, np.nan), keep_ratio)[:, 0]
    return ratios


def _limited(instance: Instance) -> bool:
    settings = instance.settings
    return not (settings.cap_percent is None and settings.network is None and settings.disk_limit_mb_s is None)


def _pinned_within(host: Host, instance: Instance) -> Instance:
    pinning = instance.settings.pinning
    if pinning is None or not host.lacks(pinning.named):
        return instance
    return unpinned(instance)
