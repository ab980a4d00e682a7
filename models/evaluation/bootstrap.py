"""Bootstrap intervals of means, by resampling whole pairs: rows of one pair are not independent."""

from __future__ import annotations

import numpy as np

from models.arrays import Floats, Ints
from models.evaluation.error_metrics import rounded

RESAMPLES = 2000
LEVEL = 0.95
CHUNK = 2_000_000  # weights held at once


def resampled_means(cluster: Ints, values: Floats, *, resamples: int = RESAMPLES) -> Floats | None:
    """Means of the columns of `values` (R, K) over clusters drawn with replacement; (resamples, K).

    `cluster` (R,) numbers from 0. Every column sees the same draws, so that their differences are paired. None with
    fewer than two clusters, which tell nothing of their spread. Cluster bootstrap: Davison & Hinkley 1997, section 3.8.
    """
    number = np.unique(cluster, return_inverse=True)[1]
    count = int(number.max(initial=-1)) + 1
    if count < 2:
        return None
    sums = np.stack([np.bincount(number, column) for column in values.T] + [np.bincount(number) * 1.0], axis=1)
    random = np.random.default_rng(0)
    totals = []
    for start in range(0, resamples, step := max(1, CHUNK // count)):
        here = min(step, resamples - start)
        drawn = random.integers(0, count, (here, count)) + np.arange(here)[:, None] * count
        weights = np.bincount(drawn.ravel(), minlength=here * count).reshape(here, count)
        totals.append(weights @ sums)
    total = np.concatenate(totals)
    return np.asarray(total[:, :-1] / total[:, -1:])


def interval(means: Floats | None) -> list[float] | None:
    """The middle 95 % of resampled means (N,), None where there are none."""
    if means is None:
        return None
    return [rounded(edge) for edge in np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]
