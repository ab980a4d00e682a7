"""Groups rows of Examples: labels as numbers, repeats of one measurement, and the limiting resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np

from models.arrays import Ints
from models.features.examples import Examples
from models.physics.prior import RESOURCES

PRIOR = "analytic "  # columns with the log of how far each resource alone would let an instance go
FREE = 0.01  # less than 1 % of a limit is none


def codes(labels: Iterable[Hashable]) -> Ints:
    """A number from 0 for every label, equal for equal labels, in the order of their first appearance; (R,)."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


def repeats(examples: Examples) -> Ints:
    """Rows of the same instance of the same run in the same setting have the same number; (R,).

    A run that holds a workload twice has two instances of it, distinguished by their order.
    """
    seen: Counter[tuple[str, str]] = Counter()
    keys = []
    for run, victim, setting in zip(examples.run, examples.victim, examples.setting, strict=True):
        keys.append((run.rpartition("/")[0], victim, setting, seen[run, victim]))
        seen[run, victim] += 1
    return codes(keys)


def around(examples: Examples) -> list[tuple[str, ...]]:
    """The neighbours' workloads of every row, sorted."""
    return [tuple(sorted(one.workload for one in beside)) for beside in examples.neighbours]


def limiting(examples: Examples) -> tuple[str, ...]:
    """The resource that limits a row most according to the prior, `none` where nothing does; (R,)."""
    names = [PRIOR + name for name in RESOURCES if PRIOR + name in examples.names]
    if not names:
        return ("unknown",) * len(examples)
    limits = np.nan_to_num(examples.x[:, [examples.names.index(name) for name in names]])
    worst = limits.argmin(axis=1)
    free = limits.min(axis=1) > -FREE
    return tuple("none" if one else names[at].removeprefix(PRIOR) for one, at in zip(free, worst, strict=True))
