"""The more cores of a machine are busy, the lower is their clock.

CPU time does not show the difference, so the share of CPU time stays as it is.
"""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats
from models.data.scene import HOST_NUMBERS, SceneBatch
from models.physics.hyperthreads import cores, has_siblings

TURBO_MHZ = "turbo_mhz"
MHZ = HOST_NUMBERS.index("cpu_mhz")
# What part of the way from turbo to nominal clock a machine goes down when all its cores are busy, and half of what the
# clock may take besides, on the log scale. Both are fits to one machine: 52 cores of 2.1 to 3.7 GHz ran at 0.93 and
# 0.89 of their speed with 16 and 32 of them busy, neighbours with AVX-512 included (scheduler series "core scheduling
# v3" on the linux-kernel list, 2019-06-12).
WAY_DOWN = 1 / 3
CLOCK = 0.12
# Both where clocks are unknown, of physical machines: USUALLY is WAY_DOWN of servers of 2 GHz that turbo to 3.7. A
# second machine (128 cores of unknown clocks) lost a quarter with 32 busy threads of tbench and two fifths with 128,
# by cache, memory and kernel as well (a scheduler series on the same list, 2022), which the range holds.
USUALLY = 0.15
UNKNOWN = 0.3


def clock_speed(scenes: SceneBatch, cpu: Floats) -> Floats:
    """Speed of each instance relative to alone, as far as the clock decides; (S, N), 1 where clocks are unknown but for
    hosts with hyperthreads.

    `cpu` (S, N) is what each uses alone, in CPUs. What the host uses itself counts as company.
    """
    lost = clock_lost(scenes)
    if not lost.any():
        return np.ones(cpu.shape)
    wanted = np.where(scenes.present, cpu, 0.0)
    every, lost = cores(scenes)[:, None], lost[:, None]
    together = clock(lost, wanted.sum(axis=1, keepdims=True) + scenes.own_cpus[:, None], every)
    return np.where(scenes.present, together / clock(lost, wanted, every), 1.0)


def clock_spread(scenes: SceneBatch, cpu: Floats) -> Floats:
    """How uncertain the clock makes the log of each instance's speed; (S, 1).

    0 on hosts of one thread per core whose clocks are unknown: small ones are mostly virtual machines, whose clock
    others decide. Those with hyperthreads are physical machines. `cpu` (S, N) as above.
    """
    busy = np.where(scenes.present, cpu, 0.0).sum(axis=1) + scenes.own_cpus
    width = np.where(_unknown(scenes), UNKNOWN, np.where(clock_lost(scenes) > 0, CLOCK, 0.0))
    return np.asarray(width * np.sqrt(np.minimum(busy / cores(scenes), 1.0)))[:, None]


def clock_lost(scenes: SceneBatch) -> Floats:
    """What part of its speed a core loses by the clock while all cores are busy, 0 = none, or unknown on a host without
    hyperthreads; (S,)."""
    nominal, turbo = scenes.host_numbers[:, MHZ], scenes.platform_number(TURBO_MHZ)
    part = np.divide(nominal, turbo, out=np.ones(len(scenes)), where=turbo > nominal)
    return np.where(_unknown(scenes), USUALLY, WAY_DOWN * (1 - part))


def _unknown(scenes: SceneBatch) -> Bools:
    """Hosts with hyperthreads of which one of both clocks is unknown, (S,)."""
    clocks = scenes.host_numbers[:, MHZ] + scenes.platform_number(TURBO_MHZ)
    return np.asarray(np.isnan(clocks) & has_siblings(scenes))


def clock(lost: Floats, busy: Floats, every: Floats) -> Floats:
    """The clock over the turbo clock, where so many vCPUs are busy on `every` core of a host."""
    return np.asarray(1 - lost * np.sqrt(np.minimum(busy / every, 1.0)))
