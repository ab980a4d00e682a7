"""How the pCPUs of hosts belong together: which share a core, a NUMA node, or neither with which instance."""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import HOST_NUMBERS, SceneBatch

THREADS = HOST_NUMBERS.index("threads_per_core")


def cores_of(scenes: SceneBatch) -> Ints:
    """The first pCPU of each pCPU's core, (S, P): siblings are numbered side by side where only that fits the NUMA
    nodes or the numbers of the host's CPUs say so, else each thread's pCPUs follow those of the thread before, as Linux
    numbers them on most machines."""
    cpu = np.arange(scenes.node.shape[1])[None, :]
    pcpus = scenes.pcpus.astype(np.int64)[:, None]
    threads = np.maximum(np.nan_to_num(scenes.host_numbers[:, THREADS], nan=1.0), 1.0).astype(np.int64)[:, None]
    threads = np.where(pcpus % threads == 0, threads, 1)
    exists = cpu < pcpus
    far, near = np.where(exists, cpu % (pcpus // threads), cpu), np.where(exists, cpu - cpu % threads, cpu)
    is_far, is_near = (
        (np.take_along_axis(scenes.node, numbering, axis=1) == scenes.node).all(axis=1) for numbering in (far, near)
    )
    return np.where((scenes.adjacent | (is_near & ~is_far))[:, None], near, far)


def cpu_overlap(scenes: SceneBatch) -> Floats:
    """The share of slot j's pCPUs that slot i may use too, 0-1; (S, N, N), indexed [scene, i, j]."""
    may = scenes.affinity.astype(np.float32)  # whole numbers: sums are exact
    common = may @ may.transpose(0, 2, 1)
    return np.asarray(common / np.maximum(scenes.allowed, 1)[:, None, :])


def group_overlap(scenes: SceneBatch, group: Ints) -> Floats:
    """The share of slot j's pCPUs in groups (S, P), such as cores or NUMA nodes, where slot i has pCPUs too, 0-1;
    (S, N, N), indexed [scene, i, j]."""
    return overlap_of(scenes, pcpus_in(group, scenes.affinity))


def overlap_of(scenes: SceneBatch, on: Floats) -> Floats:
    """The same of groups in which each slot has so many pCPUs, `on` (S, N, K) as from `pcpus_in`."""
    share = on / np.maximum(scenes.allowed, 1)[:, :, None]
    return np.asarray(np.einsum("snk,smk->snm", (on > 0) * 1.0, share))


def pcpus_in(group: Ints, affinity: Bools) -> Floats:
    """How many of the pCPUs that each slot may use, (S, N, P), are in each group (S, P); (S, N, K)."""
    numbers = np.arange(group.max(initial=0) + 1)[:, None]
    inside = (group[:, None, :] == numbers).astype(np.float32)
    # Whole numbers far below 2**24: sums are exact in any order.
    return np.asarray(affinity.astype(np.float32) @ inside.transpose(0, 2, 1), dtype=np.float64)
