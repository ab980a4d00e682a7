"""pCPUs that instances with dedicated vCPUs have to themselves, where nothing says which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.arrays import Bools, Ints
from models.data.scene import SceneBatch


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
