"""Who waits for each of its writes to be on the disk waits for the scheduler's clock as well, beside busy neighbours.

Reads and writes that are not synced come back at once on Linux: their wake-ups preempt a busy program of another
control group. A flush is finished by a kernel thread on the CPU of the writer, and the writer then ran at the next tick
only, whatever its weight: 250 to 320 synced writes per second beside one busy program at HZ=250, for appends with
fdatasync as for direct writes with O_DSYNC (Linux 6.18, control groups, 2026-11-28, docs/limits.md).
"""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import CPU_DEMAND, SceneBatch
from models.physics.contention import ALWAYS_BUSY
from models.physics.demands import Demands, burst_ms, first_known, profile_column
from models.physics.kinds import trait

FLUSHES = "disk_flushes"


def flush_speed(scenes: SceneBatch, want: Demands) -> Floats:
    """Speed of each instance relative to alone, as far as its flushes wait for CPUs; (S, N), 1 where it has none.

    While neighbours keep every CPU busy that it may use, each flush adds to the time of an operation the rest of their
    burst, at most until the next tick. Bursts at least b long keep those CPUs busy for U(b) of the time, and slow the
    writer by f(b) = w / (T + w) meanwhile, w = min(b, tick), T the time between flushes alone. It loses the integral of
    U over f, so that no further neighbour gives it anything back.
    """
    speed = np.ones(want.cpu.shape)
    flushes = np.nan_to_num(profile_column(scenes, FLUSHES)) * np.minimum(scenes.load, 1.0)
    tick = trait(scenes.kind, "synced_wait_ms")
    rows, slots = np.nonzero(scenes.present & (flushes > 0) & (tick > 0)[:, None])
    if not len(rows):
        return speed
    demand, burst, allowed = _neighbours(scenes, want, rows, slots)
    order = np.argsort(-burst, axis=1)
    wait = np.minimum(np.take_along_axis(burst, order, axis=1), tick[rows, None])
    slower = wait / (1e3 / flushes[rows, slots][:, None] + wait)
    occupied = _occupied(demand, allowed, scenes.affinity[rows, slots], order)
    speed[rows, slots] = 1 - (np.diff(occupied, axis=1, prepend=0.0) * slower).sum(axis=1)
    return speed


def _neighbours(scenes: SceneBatch, want: Demands, rows: Ints, slots: Ints) -> tuple[Floats, Floats, Bools]:
    """Demand for CPUs and length of bursts in ms, (W, N + 1), and allowed CPUs, (W, N + 1, P), of all beside each
    writer, its host's own work as the last one. Where bursts are not known, its own count as long, and so do those of
    instances that always want their vCPUs: nothing ends them."""
    demand = np.where(scenes.present, np.minimum(want.cpu, scenes.cap), 0.0)[rows]
    demand[np.arange(len(rows)), slots] = 0.0
    endless = np.isnan(profile_column(scenes, "execution")) & (want.cpu >= ALWAYS_BUSY * np.maximum(scenes.vcpus, 1.0))
    assumed = np.where(endless, np.inf, burst_ms(scenes))
    burst = first_known(scenes.cpu_demand[:, :, CPU_DEMAND.index("burst_ms")], assumed)[rows]
    return (
        np.concatenate([demand, scenes.own_cpus[rows, None]], axis=1),
        np.concatenate([burst, np.full((len(rows), 1), np.inf)], axis=1),
        np.concatenate([scenes.affinity[rows], scenes.shared[rows, None]], axis=1),
    )


def _occupied(demand: Floats, allowed: Bools, own: Bools, order: Ints) -> Floats:
    """The part of the time in which the first k neighbours in `order` keep all CPUs busy that a writer may use, for
    each k; (W, N + 1). `own` (W, P) are its CPUs, other arguments as in `_neighbours`.

    Each is busy on as many CPUs as its demand, by chance on one more, and evenly on those that it may use (sum of
    independent variables). Where they want more than all CPUs but one together, work that waits fills them, and no CPU
    is busier than who may run there can make it.
    """
    writers = np.arange(len(order))
    places = own.sum(axis=1)
    at_least = np.zeros((len(order), int(places.max()) + 1))  # P(so many of them are busy or more)
    at_least[:, 0] = 1.0
    count = np.arange(at_least.shape[1])[None, :]
    there, most = np.zeros(len(order)), np.zeros(own.shape)
    occupied = np.empty(order.shape)
    for step in range(order.shape[1]):
        one = order[:, step]
        wanted, may = demand[writers, one], allowed[writers, one]
        here = wanted * (may & own).sum(axis=1) / np.maximum(may.sum(axis=1), 1)
        sure = np.floor(here)[:, None].astype(np.int64)
        chance = here[:, None] - sure
        fewer, more = (np.take_along_axis(at_least, np.maximum(count - sure - k, 0), axis=1) for k in (0, 1))
        at_least = (1 - chance) * fewer + chance * more
        there += here
        most += may * wanted[:, None]
        busiest = np.maximum(at_least[writers, places], np.clip(there - (places - 1), 0.0, 1.0))
        occupied[:, step] = np.minimum(busiest, np.where(own, most, 1.0).min(axis=1))
    return occupied
