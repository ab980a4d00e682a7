"""A host's uplink with HTB classes: the guaranteed rate and the share of every instance, as tc is configured."""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats
from models.data.scene import SceneBatch
from models.physics.max_min import fill
from profiler.observed import NET_MODES

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
