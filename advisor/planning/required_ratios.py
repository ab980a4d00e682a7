"""Limits: the least T/B that each instance must keep, by its own limit or by what its own settings allow it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.domain import Host, Instance
from models.arrays import Floats
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.solo_ratio import solo_ratio


def least(scenes: SceneBatch, min_ratio: Floats, keep_ratio: float) -> Floats:
    """The lowest T/B that everybody accepts, (S, N): `min_ratio` (S, N) where that is a number, else `keep_ratio` of
    what its own cap, rate and disk limit allow it alone (1 without any): nobody else is to blame for the rest.

    What they allow is the prior's word, which is the same for every model.
    """
    return np.where(np.isnan(min_ratio), keep_ratio * solo_ratio(scenes, "throughput"), min_ratio)


def least_of(there: Sequence[tuple[Host, Instance]], table: ProfileTable, keep_ratio: float) -> Floats:
    """The same of instances, each on the host beside it, (I,). Pins that the host has no pCPUs for do not count."""
    own = [one.min_throughput_ratio for _, one in there]
    found = np.array([keep_ratio if limit is None else limit for limit in own], dtype=np.float64)
    asked = [at for at, (_, one) in enumerate(there) if own[at] is None and _limited(one)]
    if asked:
        scenes = build_batch([(there[at][0], (_pinned_within(*there[at]),)) for at in asked], table)
        found[asked] = least(scenes, np.full(scenes.present.shape, np.nan), keep_ratio)[:, 0]
    return found


def _limited(one: Instance) -> bool:
    settings = one.settings
    return not (settings.cap_percent is None and settings.network is None and settings.disk_limit_mb_s is None)


def _pinned_within(host: Host, one: Instance) -> Instance:
    pinning = one.settings.pinning
    if pinning is None or max(pinning.union, default=0) < host.pcpus:
        return one
    return replace(one, settings=replace(one.settings, pinning=None))
