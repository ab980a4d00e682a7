"""Two hyperthreads are not two cores: how much slower an instance runs while others run on its siblings.

What a second thread adds to the work of a core is a field of the host, SECOND_THREAD (0 = nothing, 1 = as much as a
core), else a column of its platform. Where it is unknown, ADDS stands for it. CPU time does not show the
difference, so the share of CPU time stays as it is.
"""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats
from models.data.scene import SceneBatch
from models.data.topology import overlap_of, pcpus_in

SECOND_THREAD = "second_thread"
# Servers gain 0.16-0.28 by a second thread (Marr et al., Intel Technology Journal 6(1), 2002).
ADDS = 0.25


def sibling_speed(scenes: SceneBatch, cpu: Floats) -> Floats:
    """Speed of each instance relative to alone, as far as siblings decide; (S, N), 1 on hosts of one thread per core.

    `cpu` (S, N) is what each uses alone, in CPUs. On C cores that it may use, K busy vCPUs share 2 (K - C) of K places,
    for schedulers fill idle cores first. Its own vCPUs share cores alone, too, where the host has too few for them;
    that pins leave it too few counts against it. What the host uses itself runs on shared
    pCPUs, as many on each.
    """
    speed = np.ones(cpu.shape)
    several = has_siblings(scenes)
    if not several.any():
        return speed
    lost = core_lost(scenes)[:, None]
    wanted = np.where(scenes.present, cpu, 0.0)
    busy = np.broadcast_to(wanted.sum(axis=1, keepdims=True) + scenes.own_cpus[:, None], wanted.shape).copy()
    count = np.broadcast_to(cores(scenes)[:, None], wanted.shape).copy()
    pinned = np.flatnonzero(several & _any_pinned(scenes))
    if len(pinned):
        some = scenes.take(pinned)
        on = pcpus_in(some.core, some.affinity)
        there = on > 0
        count[pinned] = np.maximum(there.sum(axis=2), 1)
        busy[pinned] = (overlap_of(some, on) @ wanted[pinned][:, :, None])[:, :, 0]
        busy[pinned] += (there @ _own_work(some)[:, :, None])[:, :, 0]
    together = 1 - lost * shares_a_core(busy, count)
    alone = 1 - lost * shares_a_core(wanted, np.broadcast_to(cores(scenes)[:, None], wanted.shape))
    return np.where(scenes.present & several[:, None], together / alone, speed)


def has_siblings(scenes: SceneBatch) -> Bools:
    """Whether any core of the hosts has several pCPUs; (S,)."""
    return cores(scenes) < scenes.pcpus


def cores(scenes: SceneBatch) -> Floats:
    """How many cores the hosts have; (S,)."""

    def count() -> Floats:
        place = np.arange(scenes.core.shape[1])
        return np.asarray(((scenes.core == place) & (place < scenes.pcpus[:, None])).sum(axis=1), dtype=np.float64)

    return scenes.once("cores", count)


def core_lost(scenes: SceneBatch) -> Floats:
    """What part of its speed a vCPU loses while another one runs on its core, 0 = nothing is shared; (S,)."""
    adds = scenes.platform_number(SECOND_THREAD)
    adds = np.clip(np.where(np.isnan(adds), ADDS, adds), 0.0, 1.0)
    return np.where(has_siblings(scenes), (1 - adds) / 2, 0.0)


def shares_a_core(busy: Floats, cores: Floats) -> Floats:
    """The chance that a busy vCPU shares its core, where so many are busy on so many cores."""
    return np.clip(2 * (busy - cores) / np.maximum(busy, 1e-9), 0.0, 1.0)


def _own_work(scenes: SceneBatch) -> Floats:
    """The CPUs that the hosts use themselves on each core (S, P); (S, K)."""
    shared = pcpus_in(scenes.core, scenes.shared[:, None, :])[:, 0]
    return np.asarray(shared * (scenes.own_cpus / np.maximum(scenes.shared.sum(axis=1), 1))[:, None])


def _any_pinned(scenes: SceneBatch) -> Bools:
    """Scenes in which an instance may not use every pCPU, (S,)."""
    everywhere = scenes.allowed >= scenes.pcpus[:, None]
    return np.asarray((scenes.present & ~everywhere).any(axis=1))
