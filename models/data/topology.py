"""How the pCPUs of hosts belong together, and which of them instances with dedicated vCPUs have to themselves."""

from __future__ import annotations

from dataclasses import replace

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


# pCPUs that instances with dedicated vCPUs have to themselves, where nothing says which.


def given_own_cpus(scenes: SceneBatch) -> SceneBatch:
    """The scenes with a pCPU for each dedicated vCPU, on which no other instance may run then.

    They are free ones of the host's `dedicated` pCPUs, or of all where it has none, in order of node and core, for the
    slots in turn; which ones the hypervisor took is not known, so this is assumed. Where too few are free, those share
    the capacity. An instance that may run anywhere keeps to the other pCPUs. One that is pinned stays as it is.
    """
    at = np.flatnonzero((scenes.present & (scenes.own > 0) & ~scenes.pinned).any(axis=1))
    if not at.size:
        return scenes
    affinity, shared = scenes.affinity.copy(), scenes.shared.copy()
    for scene in at.tolist():
        affinity[scene], shared[scene] = _apart(scenes, scene, scenes.core[scene])
    return replace(scenes, affinity=affinity, shared=shared)


def _apart(scenes: SceneBatch, scene: int, core: Ints) -> tuple[Bools, Bools]:
    """The affinity of each slot of one scene, (N, P), and its shared pCPUs, (P,)."""
    present, affinity = scenes.present[scene], scenes.affinity[scene].copy()
    exists = np.arange(affinity.shape[1]) < scenes.pcpus[scene]
    dedicated = scenes.dedicated[scene]
    anywhere = present & ~scenes.pinned[scene]
    pool = dedicated if dedicated.any() else scenes.shared[scene]
    exclusive = present & ~anywhere & (dedicated.any() | (affinity.sum(axis=1) <= scenes.vcpus[scene]))
    free = pool & ~affinity[exclusive].any(axis=0)
    order = np.lexsort((np.arange(len(core)), core, scenes.node[scene]))
    left = [cpu for cpu in order.tolist() if free[cpu]]
    taken = np.zeros(len(exists), dtype=bool)
    mixed = []
    for slot in np.flatnonzero(anywhere & (scenes.own[scene] > 0)).tolist():
        wanted = int(scenes.own[scene, slot])
        chosen, left = (left[:wanted], left[wanted:]) if wanted <= len(left) else (np.flatnonzero(pool).tolist(), left)
        affinity[slot] = False
        affinity[slot, chosen] = True
        taken[chosen] = True
        mixed += [slot] if wanted < scenes.vcpus[scene, slot] else []
    shared = scenes.shared[scene] & ~taken
    shared = shared if shared.any() else scenes.shared[scene]
    affinity[anywhere & (scenes.own[scene] == 0)] = shared
    affinity[mixed] |= shared
    return affinity, shared
