"""The search for the best layout of a host: exact where it is small, else local, then as few changes as suffice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from math import comb, prod

import numpy as np

from advisor.scheduling.scoring import EQUAL, PIN_GAIN
from advisor.tuning.layouts import PER_SLOT, Layout, Valued
from advisor.tuning.moves import Moves
from models.arrays import Bools

# All layouts of pCPUs on a small host, but for what differs only by the names of interchangeable pCPUs.

MOST_LAYOUTS = 20_000  # layouts that are valued one and all


def count_layouts(moves: Moves, layout: Layout) -> int:
    """How many layouts `every` gives, about; more than MOST where they are too many to say."""
    movers = int(moves.levers.pins.sum()) + moves.levers.driver
    if not movers or movers > 16:
        return MOST_LAYOUTS + 1
    return prod(
        comb(len(units) + comb(2**movers + size - 1, size) - 1, len(units))
        for size, units in ((len(units[0]), units) for units in _classes(moves, layout))
    )


def every_layout(moves: Moves, layout: Layout) -> Iterator[Layout]:
    """Each layout in which all consumers have a pCPU, one of those that differ only by equal cores."""
    slots = np.flatnonzero(moves.levers.pins)
    movers = len(slots) + moves.levers.driver
    classes = _classes(moves, layout)
    columns = [tuple(bool(bits >> at & 1) for at in range(movers)) for bits in range(2**movers)]
    choices = [
        list(combinations_with_replacement(list(combinations_with_replacement(columns, len(units[0]))), len(units)))
        for units in classes
    ]
    for chosen in product(*choices):
        users = np.zeros((movers, layout.affinity.shape[1]), dtype=bool)
        for units, kinds in zip(classes, chosen, strict=True):
            for unit, kind in zip(units, kinds, strict=True):
                users[:, list(unit)] = np.array(kind, dtype=bool).T
        if users.any(axis=1).all():
            yield _as_layout(moves, layout, users)


def like_now(moves: Moves, layout: Layout, found: Layout) -> Layout:
    """A layout with interchangeable cores named so that as many pins as possible stay as they are in `layout`."""
    from scipy.optimize import linear_sum_assignment  # half a second, which questions do without

    affinity, driver = found.affinity.copy(), found.driver.copy()
    both = np.concatenate([layout.affinity, layout.driver[None]]), np.concatenate([found.affinity, found.driver[None]])
    for units in _classes(moves, layout):
        at = [list(unit) for unit in units]
        one, other = (np.array([each[:, unit].ravel() for unit in at], dtype=np.float64) for each in both)
        cost = one.sum(axis=1)[:, None] + other.sum(axis=1) - 2 * one @ other.T  # in how many of its bits each differs
        for here, there in zip(*linear_sum_assignment(cost), strict=True):
            affinity[:, at[here]], driver[at[here]] = found.affinity[:, at[there]], found.driver[at[there]]
    return replace(found, affinity=affinity, driver=driver)


def _classes(moves: Moves, layout: Layout) -> list[list[tuple[int, ...]]]:
    """Cores by class: those of one class, each as its shared pCPUs, may change places without any effect."""
    scene, core = moves.oracle.scene, moves.oracle.core
    fixed = ~moves.levers.pins
    by_class: dict[tuple[object, ...], list[tuple[int, ...]]] = {}
    for first in np.unique(core):
        pcpus = np.flatnonzero(core == first)
        shared = tuple(int(at) for at in pcpus if moves.shared[at])
        users: Bools = layout.affinity[fixed][:, pcpus]
        driver = b"" if moves.levers.driver else layout.driver[pcpus].tobytes()
        own = int(scene.node[0, first]), len(pcpus), moves.shared[pcpus].tobytes(), users.tobytes(), driver
        if shared:
            by_class.setdefault(own, []).append(shared)
    return list(by_class.values())


def _as_layout(moves: Moves, layout: Layout, users: Bools) -> Layout:
    affinity = layout.affinity.copy()
    slots = np.flatnonzero(moves.levers.pins)
    affinity[slots] = users[: len(slots)]
    return replace(layout, affinity=affinity, driver=users[-1] if moves.levers.driver else layout.driver)


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
    kept, its_value = fewest(moves, now, like_now(moves, now, best), value, before)
    return Found(kept, its_value, before, value, whole, oracle.timed_out)


def _all(moves: Moves, now: Layout, best: Layout, value: float) -> tuple[Layout, float, bool]:
    """The best of all layouts of pCPUs where these are few enough, improved by the other settings."""
    oracle = moves.oracle
    scenes = count_layouts(moves, now)
    if scenes > MOST_LAYOUTS or oracle.ended:
        return best, value, False
    layouts = list(every_layout(moves, now))
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
