"""Pairwise ranking accuracy: how often a method tells which of two neighbours hurts a victim less."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.arrays import Floats, Ints
from models.evaluation.row_groups import around, codes
from models.features.examples import Examples

NOT_REPEATED = 0.01  # the standard error that stands in where nothing was repeated: gaps under about 3 % do not count
MOST_COMPARED = 4_000_000  # beyond, every victim's neighbours are compared with a random part of the others only
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class PairwiseRanking:
    """`cell` (R,) is the victim with its neighbours, platform and setting of each row; `first`, `second` (Q,) are the
    cells to compare and `gap` (Q,) the measured mean of the first minus that of the second."""

    cell: Ints
    first: Ints
    second: Ints
    gap: Floats

    @classmethod
    def of(cls, examples: Examples, row: Ints | None = None) -> PairwiseRanking:
        """Compare where means differ by more than twice their joint standard error.

        `row` (R,) identifies rows that were predicted twice; their measurement counts once.
        """
        scene = codes(zip(examples.victim, examples.platform, examples.setting, strict=True))
        cell = codes(zip(scene, around(examples), strict=True))
        once = np.ones(len(cell))
        if row is not None:
            once[:] = 0
            once[np.unique(row, return_index=True)[1]] = 1
        mean, error = _means(cell, examples.ratio, once)
        scene_of_cell = np.zeros(len(mean), dtype=np.int64)
        scene_of_cell[cell] = scene
        first, second = _within(scene_of_cell)
        gap = mean[first] - mean[second]
        significant = np.abs(gap) > 2 * np.hypot(error[first], error[second])
        return cls(cell, first[significant], second[significant], gap[significant])

    def accuracy(self, guess: Floats) -> float | None:
        """The share of comparisons that `guess` (R,) gets right, equal guesses half; None where there are none."""
        if not len(self.gap):
            return None
        count = np.bincount(self.cell)
        mean = np.bincount(self.cell, guess) / np.maximum(count, 1)
        predicted_gap = mean[self.first] - mean[self.second]
        right = np.where(np.abs(predicted_gap) < TIE, 0.5, (predicted_gap > 0) == (self.gap > 0))
        return round(float(right.mean()), 5)


def _means(cell: Ints, ratio: Floats, once: Floats) -> tuple[Floats, Floats]:
    """Mean and its standard error per cell."""
    count = np.maximum(np.bincount(cell, once), 1)
    mean = np.bincount(cell, once * ratio) / count
    spread = np.bincount(cell, once * (ratio - mean[cell]) ** 2) / np.maximum(count - 1, 1)
    return mean, np.where(count > 1, np.sqrt(spread / count), NOT_REPEATED)


def _within(scene: Ints) -> tuple[Ints, Ints]:
    """All pairs of cells of one scene; with too many, only those close to each other in a shuffled order."""
    shuffled = np.random.default_rng(0).permutation(len(scene))
    order = shuffled[np.argsort(scene[shuffled], kind="stable")]
    scene = scene[order]
    first, second, total = [], [], 0
    for apart in range(1, int(np.bincount(scene).max(initial=1))):
        same = np.flatnonzero(scene[apart:] == scene[:-apart])
        first.append(order[same])
        second.append(order[same + apart])
        total += len(same)
        if total > MOST_COMPARED:
            break
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *first]), np.concatenate([nothing, *second])
