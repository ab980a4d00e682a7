"""How NIC, disk and memory bandwidth are shared: weighted max-min fair by water-filling, and HTB classes."""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats
from models.data.scene import SceneBatch
from profiler.observed import NET_MODES

# Weighted max-min fair sharing of devices and links by water-filling, for many scenes at once.


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


# A host's uplink with HTB classes: the guaranteed rate and the share of every instance, as tc is configured.

# Of the line, for all instances together that have no class of their own: what is advised must not push them aside.
UNSHAPED_SHARE = 0.5


def shaped(scenes: SceneBatch) -> Bools:
    """Slots with a traffic class of their own; (S, N)."""
    return np.asarray(scenes.present & (scenes.net_mode != NET_MODES.index("none")))


def first(scenes: SceneBatch) -> Bools:
    """Slots whose class is served first (prio 0), because they are sensitive to latency; (S, N)."""
    return shaped(scenes) & scenes.prompt


def kept_for_unshaped(has_class: Bools, link: Floats) -> Floats:
    """The guaranteed rate of all slots without a class together, Mbit/s; 0 without any class, as there is no HTB;
    (S,)."""
    return np.asarray(np.where(has_class.any(axis=1), UNSHAPED_SHARE * link, 0.0))


def sure(want: Floats, rate: Floats, has_class: Bools, is_first: Bools, link: Floats) -> Floats:
    """The guaranteed rate of each slot on the uplink (S,), Mbit/s; (S, N).

    Who has a class is sure of its `rate`, the others of an even part of what is kept for them, and no instance of more
    than it wants. HTB gives every class its rate even beyond that of its parent (tc-htb(8), sch_htb.c), so that the
    line itself decides where more is promised than it carries: who is served first has it all, and of what is left the
    promises to the others are cut in proportion, as their quanta are.
    """
    promised = np.where(has_class, np.minimum(want, rate), 0.0)
    if has_class.any():
        unshaped = np.where(has_class, 0.0, want)
        promised += fill(kept_for_unshaped(has_class, link), unshaped, np.ones_like(unshaped))
    ahead, behind = np.where(is_first, promised, 0.0), np.where(is_first, 0.0, promised)
    ahead *= within(ahead.sum(axis=1), link)[:, None]
    return np.asarray(ahead + behind * within(behind.sum(axis=1), link - ahead.sum(axis=1))[:, None])


def shares(want: Floats, rate: Floats, has_class: Bools, is_first: Bools, link: Floats) -> Floats:
    """Mbit/s that each gets of the line (S,): what it is sure of, and of what is left who is served first before the
    others, max-min among either (tc-htb(8)); (S, N)."""
    got = sure(want, rate, has_class, is_first, link)
    for turn in (is_first, ~is_first) if is_first.any() else (np.ones_like(has_class),):
        rest = np.where(turn, want - got, 0.0)
        got = got + fill(np.minimum(link - got.sum(axis=1), rest.sum(axis=1)), rest, np.ones_like(rest))
    return got


def within(promised: Floats, room: Floats) -> Floats:
    """The share of the promised rates that fits, 1 = all of it."""
    return np.asarray(np.divide(room, promised, out=np.ones_like(promised), where=promised > room))
