"""The search for the best layout of a host: exact where it is small, else local search, then as few changes as do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.scheduling.scoring import EQUAL, PIN_GAIN
from advisor.tuning import exact
from advisor.tuning.layouts import PER_SLOT, Layout, Valued
from advisor.tuning.moves import Moves

STARTS = 3  # layouts from which the local search descends
GIVEN_UP = 0.01  # of the gain that fewer and milder changes may cost
KICKS = 6  # times that the search goes on from a changed best layout, on small hosts
SMALL = 16  # pCPUs and instances of a small host


@dataclass(frozen=True, slots=True)
class Found:
    """The best layout that was found with few changes, its value, that of the present one, and the best value with any
    number of changes; `exact` = every layout of pCPUs was valued, `timed_out` = the clock ended the search."""

    layout: Layout
    value: float
    before: float
    best: float
    exact: bool
    timed_out: bool


def search(moves: Moves, *, seed: int = 1, thorough: bool = True) -> Found:
    """Find the best layout; the same host and seed give the same one unless the clock ends the search.

    Where it is not `thorough`, what the moves reach from the starts is enough.
    """
    oracle = moves.oracle
    now = Layout.of(oracle.scene)
    before = float(oracle.value([now]).value[0])
    if not moves.levers.any:
        return Found(now, before, before, before, exact=False, timed_out=False)
    starts = _distinct(moves.starts(now))
    valued = oracle.value(starts, in_time=True)
    order = [0, *(int(at) for at in np.argsort(-np.round(valued.value, 9), kind="stable") if at != 0)]
    best, value = now, before
    for at in order[: STARTS + 1]:
        reached, its_value = _descend(moves, starts[at])
        if its_value > value + EQUAL:
            best, value = reached, its_value
        if oracle.ended:
            break
    first = int(np.argmax(np.round(valued.value, 9)))
    if oracle.timed_out and valued.value[first] > value + EQUAL:  # no time was left to go on from it
        best, value = starts[first], float(valued.value[first])
    whole = False
    if thorough:
        best, value, whole = _all(moves, now, best, value)
        best, value = _kicked(moves, best, value, seed)
    kept, its_value = fewest(moves, now, exact.like_now(moves, now, best), value, before)
    return Found(kept, its_value, before, value, whole, oracle.timed_out)


def _all(moves: Moves, now: Layout, best: Layout, value: float) -> tuple[Layout, float, bool]:
    """The best of all layouts of pCPUs where these are few enough, improved by the other settings."""
    oracle = moves.oracle
    scenes = exact.count(moves, now)
    if scenes > exact.MOST or oracle.ended:
        return best, value, False
    layouts = list(exact.every(moves, now))
    values = oracle.value(layouts, in_time=True).value
    at = int(np.argmax(np.round(values, 9)))
    if values[at] > value + EQUAL:
        reached, its_value = _descend(moves, layouts[at])
        best, value = reached, its_value
    return best, value, not oracle.timed_out


def _descend(moves: Moves, layout: Layout) -> tuple[Layout, float]:
    """Take the best move until none is better, through all instances in turn."""
    oracle = moves.oracle
    valued = oracle.value([layout])
    turns = -(-max(oracle.scene.slots, 1) // 8)
    turn = idle = 0
    while idle < turns and not oracle.ended:
        near = _distinct(moves.around(layout, valued, turn))
        turn += 1
        if not near:
            idle += 1
            continue
        values = oracle.value(near, in_time=True)
        at = int(np.argmax(np.round(values.value, 9)))
        if values.value[at] > valued.value[0] + EQUAL:
            layout, valued, idle = near[at], _row(values, at), 0
        else:
            idle += 1
    return layout, float(valued.value[0])


def _kicked(moves: Moves, best: Layout, value: float, seed: int) -> tuple[Layout, float]:
    """Go on from the best layout with a few pins changed at random, on hosts that are small enough for it to pay."""
    shape = best.affinity.shape
    if max(shape) > SMALL or not moves.levers.pins.any():
        return best, value
    random = np.random.default_rng(seed)
    slots, shared = np.flatnonzero(moves.levers.pins), moves.shared
    for _ in range(KICKS):
        if moves.oracle.ended:
            break
        affinity = best.affinity.copy()
        for slot in random.choice(slots, size=min(2, len(slots)), replace=False):
            chosen = shared & (random.random(shape[1]) < random.choice([0.25, 0.5]))
            affinity[slot] = chosen if chosen.any() else shared
        reached, its_value = _descend(moves, replace(best, affinity=affinity))
        if its_value > value + EQUAL:
            best, value = reached, its_value
    return best, value


def fewest(moves: Moves, now: Layout, best: Layout, value: float, before: float) -> tuple[Layout, float]:
    """The fewest and mildest changes that keep the value but for a small part of its gain.

    Changes are taken back one by one, those first that matter least; what remains of pins is removed rather than moved
    where that does as well. A gain below PIN_GAIN is not worth a change.
    """
    if value - before < PIN_GAIN:
        return now, before
    oracle, floor = moves.oracle, value - max(EQUAL, GIVEN_UP * (value - before))
    pending = changes(now, best)
    at_once = len(pending)
    while pending and at_once and not oracle.late:
        groups = [pending[at : at + at_once] for at in range(0, len(pending), at_once)]
        backs = [_back(now, best, group) for group in groups]
        values = oracle.value(backs).value
        at = int(np.argmax(np.round(values, 9)))
        if values[at] >= floor:
            best, value = backs[at], float(values[at])
            pending = changes(now, best)
            at_once = min(at_once, len(pending))
        else:
            at_once //= 2
    for change in changes(now, best):
        if oracle.late:
            break
        if change[0] == "affinity" and (now.affinity[change[1]] != moves.shared).any():
            freed = best.with_cpus(change[1], moves.shared)
            its_value = float(oracle.value([freed]).value[0])
            if its_value >= floor:
                best, value = freed, its_value
    return (best, value) if value - before >= PIN_GAIN else (now, before)


Change = tuple[str, int]
"""A field of Layout and the slot whose value differs, -1 = that of the driver domain."""


def changes(now: Layout, then: Layout) -> list[Change]:
    """What differs between two layouts."""
    differs: list[Change] = [
        ("affinity", int(slot)) for slot in np.flatnonzero((now.affinity != then.affinity).any(axis=1))
    ]
    if (now.driver != then.driver).any():
        differs.append(("driver", -1))
    if now.driver_weight != then.driver_weight:
        differs.append(("driver_weight", -1))
    network = np.zeros(len(now.weight), dtype=bool)
    for name in PER_SLOT:
        other = getattr(now, name) != getattr(then, name)
        if name.startswith("net_"):
            network |= other
        else:
            differs += [(name, int(slot)) for slot in np.flatnonzero(other)]
    return differs + [("network", int(slot)) for slot in np.flatnonzero(network)]


def _back(now: Layout, then: Layout, taken: Sequence[Change]) -> Layout:
    """`then` with these changes taken back."""
    values = {name: getattr(then, name).copy() for name in ("affinity", *PER_SLOT)}
    driver, driver_weight = then.driver, then.driver_weight
    for name, slot in taken:
        if name == "driver":
            driver = now.driver
        elif name == "driver_weight":
            driver_weight = now.driver_weight
        else:
            for one in ("net_mode", "net_rate", "net_ceil") if name == "network" else (name,):
                values[one][slot] = getattr(now, one)[slot]
    return Layout(driver=driver, driver_weight=driver_weight, **values)


def _distinct(layouts: Iterator[Layout]) -> list[Layout]:
    """Without repetitions, in order."""
    return list({one.key: one for one in layouts}.values())


def _row(valued: Valued, at: int) -> Valued:
    return Valued(valued.value[at : at + 1], valued.kept[at : at + 1])
