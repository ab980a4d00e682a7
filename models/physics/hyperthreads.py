"""Two hyperthreads are not two cores: how much slower an instance runs while others run on its siblings.

What a second thread adds to the work of a core belongs to the platform, whose table may give it in the column
SECOND_THREAD (0 = nothing, 1 = as much as a core). Where it is unknown, ADDS stands for it. CPU time does not show the
difference, so the share of CPU time stays as it is.
"""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats
from models.data.scene import SceneBatch
from models.data.topology import THREADS, cores_of, group_overlap, pcpus_in

SECOND_THREAD = "second_thread"
# Servers gain 0.16-0.28 by a second thread (Marr et al., Intel Technology Journal 6(1), 2002).
ADDS = 0.25
# Half width, on the log scale, of what the clock of a machine with all cores busy is below that with one. A machine of
# 52 cores ran at 0.92 and 0.89 of its speed with 16 and 32 of them busy, neighbours with AVX-512 included (scheduler
# series "core scheduling v3" on the linux-kernel list, 2019-06-12).
CLOCK = 0.12


def sibling_speed(scenes: SceneBatch, cpu: Floats) -> Floats:
    """Speed of each instance relative to alone, as far as siblings decide; (S, N), 1 on hosts of one thread per core.

    `cpu` (S, N) is what each uses alone, in CPUs. On C cores that it may use, K busy vCPUs share 2 (K - C) of K places,
    for schedulers fill idle cores first. Its own vCPUs share cores alone, too.
    """
    speed = np.ones(cpu.shape)
    several = threads(scenes) > 1
    if not several.any():
        return speed
    lost = core_lost(scenes)[:, None]
    wanted = np.where(scenes.present, cpu, 0.0)
    cores = np.maximum(scenes.pcpus / threads(scenes), 1.0)[:, None]
    busy = np.broadcast_to(wanted.sum(axis=1, keepdims=True), wanted.shape).copy()
    count = np.broadcast_to(cores, wanted.shape).copy()
    pinned = np.flatnonzero(several & _any_pinned(scenes))
    if len(pinned):
        some = scenes.take(pinned)
        core = cores_of(some)
        count[pinned] = np.maximum((pcpus_in(some, core) > 0).sum(axis=2), 1)
        busy[pinned] = (group_overlap(some, core) @ wanted[pinned][:, :, None])[:, :, 0]
    together, alone = (1 - lost * shares_a_core(one, count) for one in (busy, wanted))
    return np.where(scenes.present & several[:, None], together / alone, speed)


def clock_spread(scenes: SceneBatch, cpu: Floats) -> Floats:
    """How uncertain the clock makes the log of each instance's speed on a host with hyperthreads; (S, 1), 0 elsewhere.

    Which hosts change their clock is not reported: those with hyperthreads are physical machines, where small ones
    without are mostly virtual. `cpu` (S, N) as above.
    """
    busy = np.where(scenes.present, cpu, 0.0).sum(axis=1)
    cores = np.maximum(scenes.pcpus / threads(scenes), 1.0)
    return np.where(threads(scenes) > 1, CLOCK * np.sqrt(np.minimum(busy / cores, 1.0)), 0.0)[:, None]


def threads(scenes: SceneBatch) -> Floats:
    """Threads of each core of the hosts, 1 where they are unknown; (S,)."""
    return np.asarray(np.maximum(np.nan_to_num(scenes.host_numbers[:, THREADS], nan=1.0), 1.0))


def core_lost(scenes: SceneBatch) -> Floats:
    """What part of its speed a vCPU loses while another one runs on its core, 0 = nothing is shared; (S,)."""
    adds = scenes.platform_number(SECOND_THREAD)
    adds = np.clip(np.where(np.isnan(adds), ADDS, adds), 0.0, 1.0)
    return np.where(threads(scenes) > 1, (1 - adds) / 2, 0.0)


def shares_a_core(busy: Floats, cores: Floats) -> Floats:
    """The chance that a busy vCPU shares its core, where so many are busy on so many cores."""
    return np.clip(2 * (busy - cores) / np.maximum(busy, 1e-9), 0.0, 1.0)


def _any_pinned(scenes: SceneBatch) -> Bools:
    """Scenes in which an instance may not use every pCPU, (S,)."""
    everywhere = scenes.affinity.sum(axis=2) >= scenes.pcpus[:, None]
    return np.asarray((scenes.present & ~everywhere).any(axis=1))
