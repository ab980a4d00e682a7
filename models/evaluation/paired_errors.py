"""Compares models by their held-out predictions: errors on common rows, and bootstrap bounds of their means.

A module of its own: the service's gate needs it, and not the methods that an evaluation compares with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from models.arrays import Floats
from models.evaluation.error_metrics import resampled_means
from models.learning.held_out import HeldOutPredictions

FEWEST_PAIRS = 5  # among fewer, noise cannot be distinguished from a difference
SAME_MEASURED = 1e-5  # relative; a key with another measured value is another measurement


@dataclass(frozen=True, slots=True)
class ResampledMeans:
    """Means of a few columns over rows, and over resamples of pairs; (K,) and (RESAMPLES, K)."""

    rows: int
    pairs: int
    mean: Floats
    resampled: Floats

    def bounds(self, column: int, level: float) -> tuple[float, float] | None:
        """Lower and upper bound of one mean, each one-sided at `level`; None where pairs are too few to tell noise.

        The bootstrap's spread is too small for few pairs: it is widened by sqrt(n / (n - 1)), and by Student's quantile
        over the normal one (n - 1 degrees of freedom).
        """
        if self.pairs < FEWEST_PAIRS:
            return None
        n = self.pairs
        wide = np.sqrt(n / (n - 1)) * stdtrit(n - 1, 1 - level) / ndtri(1 - level)
        off = np.quantile(self.resampled[:, column], [level, 1 - level]) - self.mean[column]
        low, high = self.mean[column] + wide * off
        return float(low), float(high)


def beside(table: HeldOutPredictions, mine: Floats, other: HeldOutPredictions) -> ResampledMeans | None:
    """Errors on common keys with the same measured value; a key that occurs twice counts once, with its mean error."""
    ours = _by_key(table, mine)
    theirs = _by_key(other, errors_of(other, other.expected))
    common = [
        (pair, error, theirs[key][1])
        for key, (measured, error, pair) in ours.items()
        if key in theirs and abs(measured - theirs[key][0]) <= SAME_MEASURED * measured
    ]
    if not common:
        return None
    one, two = (np.array([row[at] for row in common]) for at in (1, 2))
    return means_of(np.column_stack([one, two, one - two]), [row[0] for row in common])


def _by_key(table: HeldOutPredictions, error: Floats) -> Mapping[str, tuple[float, float, str]]:
    """Measured value, mean error and pair by key."""
    keys, first, at = np.unique(np.array(table.key), return_index=True, return_inverse=True)
    mean = np.bincount(at, weights=error) / np.bincount(at)
    rows = zip(keys.tolist(), first.tolist(), mean.tolist(), strict=True)
    return {key: (float(table.measured[row]), value, table.pair[row]) for key, row, value in rows}


def errors_of(table: HeldOutPredictions, guess: Floats) -> Floats:
    """The absolute error of each row, (R,): of the ratio for throughput and share, else of its logarithm."""
    if table.target in {"throughput", "share"}:
        return np.abs(table.measured - guess)
    return np.abs(np.log(table.measured / guess))


def means_of(columns: Floats, pair: Sequence[str]) -> ResampledMeans:
    """Means of `columns` (R, K) with a bootstrap over `pair` (R,), whose rows are drawn together."""
    names, cluster = np.unique(np.array(pair), return_inverse=True)
    resampled = resampled_means(cluster, columns)
    return ResampledMeans(
        len(columns), len(names), columns.mean(axis=0), columns[:0] if resampled is None else resampled
    )
