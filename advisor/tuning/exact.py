"""All layouts of pCPUs on a small host, but for what differs only by the names of interchangeable pCPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product
from math import comb, prod

import numpy as np

from advisor.tuning.layouts import Layout
from advisor.tuning.moves import Moves
from models.arrays import Bools

MOST = 20_000  # layouts that are valued one and all


def count(moves: Moves, layout: Layout) -> int:
    """How many layouts `every` gives, about; more than MOST where they are too many to say."""
    movers = int(moves.levers.pins.sum()) + moves.levers.driver
    if not movers or movers > 16:
        return MOST + 1
    return prod(
        comb(len(units) + comb(2**movers + size - 1, size) - 1, len(units))
        for size, units in ((len(units[0]), units) for units in _classes(moves, layout))
    )


def every(moves: Moves, layout: Layout) -> Iterator[Layout]:
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
