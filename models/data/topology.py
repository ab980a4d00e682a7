"""How the pCPUs of instances overlap, one by one and in groups such as cores."""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import SceneBatch


def cpu_overlap(scenes: SceneBatch) -> Floats:
    """The share of slot j's pCPUs that slot i may use too, 0-1; (S, N, N), indexed [scene, i, j]."""
    may = scenes.affinity.astype(np.float32)  # whole numbers: sums are exact
    common = may @ may.transpose(0, 2, 1)
    return np.asarray(common / np.maximum(scenes.allowed, 1)[:, None, :])


def overlap_of(scenes: SceneBatch, on: Floats) -> Floats:
    """The share of slot j's pCPUs in groups, such as cores, where slot i has pCPUs too, 0-1; (S, N, N), [scene, i, j].

    `on` (S, N, K) is how many pCPUs each slot has in each group, as from `pcpus_in`.
    """
    share = on / np.maximum(scenes.allowed, 1)[:, :, None]
    return np.asarray(np.einsum("snk,smk->snm", (on > 0) * 1.0, share))


def pcpus_in(group: Ints, affinity: Bools) -> Floats:
    """How many of the pCPUs that each slot may use, (S, N, P), are in each group (S, P); (S, N, K)."""
    numbers = np.arange(group.max(initial=0) + 1)[:, None]
    inside = (group[:, None, :] == numbers).astype(np.float32)
    # Whole numbers far below 2**24: sums are exact in any order.
    return np.asarray(affinity.astype(np.float32) @ inside.transpose(0, 2, 1), dtype=np.float64)
