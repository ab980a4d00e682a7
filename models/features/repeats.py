"""Joins repeats of one measurement into one row: their median, weighted by how many there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.arrays import Floats, Ints
from models.features.examples import Examples


@dataclass(frozen=True, slots=True)
class GroupedExamples:
    """G rows of which no two describe the same situation.

    `residual` (G,) is the median of log(measured / base) over the repeats. `weight` (G,) is n/(n+1) for n repeats,
    scaled to a mean of 1. `count` (G,) is n and `spread` (G,) the variance of the residual over them, nan = not
    repeated. `group` (R,) maps each original row to its grouped row.
    """

    examples: Examples
    residual: Floats
    weight: Floats
    group: Ints
    count: Floats
    spread: Floats


def group_repeats(examples: Examples) -> GroupedExamples:
    """Join rows with the same features, victim, pair, platform and setting.

    Weights saturate because a repeat removes only the noise of single runs, not what is particular to the pair or day.
    """
    residual = target_of(examples)
    found: dict[tuple[str | bytes, ...], int] = {}
    group = np.zeros(len(examples), dtype=np.int64)
    first: list[int] = []
    features = np.ascontiguousarray(examples.x)
    labels = zip(examples.victim, examples.pair, examples.platform, examples.setting, strict=True)
    for row, label in enumerate(labels):
        key = (*label, features[row].tobytes())
        group[row] = found.setdefault(key, len(found))
        if group[row] == len(first):
            first.append(row)
    count = np.bincount(group, minlength=len(first))
    order = np.argsort(group, kind="stable")
    parts = np.split(residual[order], np.cumsum(count)[:-1]) if first else []
    weight = count / (count + 1)
    return GroupedExamples(
        examples=examples.take(np.array(first, dtype=np.int64)),
        residual=np.array([float(np.median(part)) for part in parts]),
        weight=weight / weight.mean() if len(weight) else weight,
        group=group,
        count=count.astype(np.float64),
        spread=np.array([float(np.var(part, ddof=1)) if len(part) > 1 else np.nan for part in parts]),
    )


def target_of(examples: Examples) -> Floats:
    """The residual log(measured / base), which the residual model learns; (R,)."""
    return np.asarray(np.log(examples.ratio) - np.log(examples.base))
