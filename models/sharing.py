"""Weighted max-min sharing of CPUs and links, for many scenes at once; arrays in, arrays out, nothing learned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SWEEPS = 60  # an upper bound; one class needs one sweep, disjoint sets one, chained sets a few
_TOLERANCE = 1e-6  # of a CPU


def fill(capacity: Floats, demand: Floats, weight: Floats, already: Floats | None = None) -> Floats:
    """Share one resource so that no one can get more without someone with less per weight getting less.

    `capacity` (S,), `demand` and `weight` (S, K) with weight > 0; `already` (S, K) is what each holds elsewhere and
    counts towards its fair level. Returns what each gets here, (S, K): sum = min(capacity, what is still wanted).
    Every consumer is filled up to a common level of (already + here) / weight (progressive filling, Bertsekas and
    Gallager, Data Networks, 6.5.2).
    """
    held = np.zeros_like(demand) if already is None else already
    room = np.maximum(demand - held, 0.0)
    total = room.sum(axis=1)
    starts, ends = held / weight, (held + room) / weight
    levels = np.concatenate([starts, ends], axis=1)
    slopes = np.concatenate([weight, -weight], axis=1) * np.concatenate([room > 0, room > 0], axis=1)
    order = np.argsort(levels, axis=1, kind="stable")
    levels = np.take_along_axis(levels, order, axis=1)
    slope = np.cumsum(np.take_along_axis(slopes, order, axis=1), axis=1)
    # filled[k] = how much is handed out when the level has risen to levels[k]
    filled = np.cumsum(np.diff(levels, axis=1, prepend=levels[:, :1]) * _shifted(slope), axis=1)
    target = np.minimum(capacity, total)
    reached = np.argmax(filled >= (target - 1e-15)[:, None], axis=1)
    rows = np.arange(len(demand))
    over = filled[rows, reached] - target
    before = np.where(reached > 0, slope[rows, reached - 1], 0.0)
    level = levels[rows, reached] - np.divide(over, before, out=np.zeros_like(over), where=before > 0)
    here = np.clip(level[:, None] * weight - held, 0.0, room)
    return np.asarray(np.where((total <= capacity)[:, None], room, here))


def _shifted(slope: Floats) -> Floats:
    """The slope in force just before each breakpoint."""
    return np.concatenate([np.zeros((len(slope), 1)), slope[:, :-1]], axis=1)


def share_sets(demand: Floats, weight: Floats, allowed: Bools, capacity: Floats) -> Floats:
    """Weighted max-min shares when each consumer may only use some of the resources.

    `demand`, `weight` (S, K); `allowed` (S, K, C); `capacity` (S, C). Returns totals per consumer, (S, K).
    The weighted max-min allocation minimises sum(x^2 / weight) over what is feasible (Fujishige 1980, lexicographically
    optimal base), so filling one resource after another, each time with what is held elsewhere as the base, converges.
    """
    count, consumers, classes = allowed.shape
    parts = np.zeros((count, consumers, classes))
    active = np.arange(count)
    for _ in range(_SWEEPS if classes > 1 else 1):
        now = parts[active]
        moved = np.zeros(len(active))
        for one in range(classes):
            elsewhere = now.sum(axis=2) - now[:, :, one]
            wanted = np.where(allowed[active, :, one], demand[active], 0.0)
            here = fill(capacity[active, one], wanted, weight[active], np.minimum(elsewhere, wanted))
            moved = np.maximum(moved, np.abs(here - now[:, :, one]).max(axis=1, initial=0.0))
            now[:, :, one] = here
        parts[active] = now
        active = active[moved >= _TOLERANCE]
        if not len(active):
            break
    return np.asarray(parts.sum(axis=2))


def cpu_classes(affinity: Bools, pcpus: Floats) -> tuple[Bools, Floats]:
    """Join pCPUs that the same consumers may use: `affinity` (S, K, P) -> `allowed` (S, K, C), `capacity` (S, C) CPUs.

    CPUs beyond a host's `pcpus` and CPUs that nobody may use drop out. C is the most classes any scene has.
    """
    count, consumers, width = affinity.shape
    if consumers == 0 or count == 0:
        return np.zeros((count, consumers, 1), dtype=bool), np.zeros((count, 1))
    exists = np.arange(width)[None, :] < pcpus[:, None]
    columns = np.where(exists[:, None, :], affinity, False).transpose(0, 2, 1)  # (S, P, K)
    packed = np.packbits(columns, axis=2)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[2]))).reshape(count, width)
    _, code = np.unique(keys, return_inverse=True)
    code = code.reshape(count, width)
    order = np.argsort(code, axis=1, kind="stable")
    ordered = np.take_along_axis(code, order, axis=1)
    fresh = np.ones_like(ordered, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    used = np.take_along_axis(columns.any(axis=2), order, axis=1)
    fresh &= used
    number = np.cumsum(fresh, axis=1) - 1
    most = max(int(number.max(initial=0)) + 1, 1)
    allowed = np.zeros((count, consumers, most), dtype=bool)
    capacity = np.zeros((count, most))
    scene, position = np.nonzero(used)
    np.add.at(capacity, (scene, number[scene, position]), 1.0)
    scene, position = np.nonzero(fresh)
    allowed[scene, :, number[scene, position]] = columns[scene, order[scene, position], :]
    return allowed, capacity
