"""Weighted max-min fair sharing of devices and links by water-filling, for many scenes at once."""

from __future__ import annotations

import numpy as np

from models.arrays import Floats


def fill(capacity: Floats, demand: Floats, weight: Floats) -> Floats:
    """Share one resource max-min fairly: no instance can get more unless someone with less per weight gets less.

    `capacity` (S,), `demand` and `weight` (S, K) with weight > 0. Returns what each gets, (S, K), in sum
    min(capacity, demand). Every consumer is filled up to a common level per weight (water-filling; progressive filling,
    Bertsekas and Gallager, Data Networks, 6.5.2).
    """
    got = np.maximum(demand, 0.0)
    scarce = np.flatnonzero(got.sum(axis=1) > capacity)  # no instance is filled up where all get what they want
    if len(scarce):
        got[scarce] = _filled(capacity[scarce], got[scarce], weight[scarce])
    return got


def _filled(capacity: Floats, demand: Floats, weight: Floats) -> Floats:
    """`fill` where the demand is above the capacity."""
    ends = demand / weight
    levels = np.concatenate([np.zeros_like(ends), ends], axis=1)
    slopes = np.concatenate([weight, -weight], axis=1) * np.concatenate([demand > 0, demand > 0], axis=1)
    order = np.argsort(levels, axis=1, kind="stable")
    levels = np.take_along_axis(levels, order, axis=1)
    slope = np.cumsum(np.take_along_axis(slopes, order, axis=1), axis=1)
    # filled[k] = how much is handed out when the level has risen to levels[k]
    filled = np.cumsum(np.diff(levels, axis=1, prepend=levels[:, :1]) * _shifted(slope), axis=1)
    filled[:, -1] = np.maximum(filled[:, -1], capacity)  # the last level holds all of it, whatever was lost in rounding
    reached = np.argmax(filled >= (capacity - 1e-15)[:, None], axis=1)
    rows = np.arange(len(demand))
    over = filled[rows, reached] - capacity
    before = np.where(reached > 0, slope[rows, reached - 1], 0.0)
    level = levels[rows, reached] - np.divide(over, before, out=np.zeros_like(over), where=before > 0)
    return np.asarray(np.clip(level[:, None] * weight, 0.0, demand))


def _shifted(slope: Floats) -> Floats:
    """The slope just before each breakpoint."""
    return np.concatenate([np.zeros((len(slope), 1)), slope[:, :-1]], axis=1)
