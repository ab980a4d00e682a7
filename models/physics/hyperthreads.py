"""Two hyperthreads are not two cores: how much slower an instance runs while others run on its siblings.

What a second thread adds to the work of a core belongs to the platform, whose table may say it in the column
SECOND_THREAD (0 = nothing, 1 = as much as a core). Measured on servers it is 0.16-0.28 (Marr et al., Intel Technology
Journal 6(1), 2002). Where nobody says it, threads count as cores: CPU time, which agents measure, does not tell them
apart, and a guess would make every host with hyperthreads look slower than what is measured there.
"""

from __future__ import annotations

import numpy as np

from models.arrays import Floats
from models.data.scene import SceneBatch
from models.data.topology import THREADS, cores_of, group_overlap, pcpus_in

SECOND_THREAD = "second_thread"


def sibling_speed(scenes: SceneBatch, cpu: Floats) -> Floats:
    """How fast each runs over alone, as far as siblings decide; (S, N), 1 where nothing is known of them.

    `cpu` (S, N) is what each uses alone, in CPUs. On C cores that it may use, K busy vCPUs share 2 (K - C) of K places,
    for schedulers fill idle cores first. Its own vCPUs share cores alone, too.
    """
    speed = np.ones(cpu.shape)
    adds = np.where(scenes.host_numbers[:, THREADS] > 1, scenes.platform_number(SECOND_THREAD), np.nan)
    known = np.flatnonzero(np.isfinite(adds))
    if not len(known):
        return speed
    some, wanted = scenes.take(known), np.where(scenes.present, cpu, 0.0)[known]
    core = cores_of(some)
    count = np.maximum((pcpus_in(some, core) > 0).sum(axis=2), 1)
    beside = group_overlap(some, core) @ wanted[:, :, None]
    lost = 1 - (1 + np.clip(adds[known], 0.0, 1.0)) / 2  # of the speed of who shares a core
    together, alone = (1 - lost[:, None] * _shares_a_core(busy, count) for busy in (beside[:, :, 0], wanted))
    speed[known] = np.where(some.present, together / alone, 1.0)
    return speed


def _shares_a_core(busy: Floats, cores: Floats) -> Floats:
    """The chance that a busy vCPU shares its core, where so many are busy on so many cores."""
    return np.clip(2 * (busy - cores) / np.maximum(busy, 1e-9), 0.0, 1.0)
