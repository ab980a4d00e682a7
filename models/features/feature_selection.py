"""Which of many metrics become features: not more than are enough."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from models.data.profile import WorkloadProfile

MOST_METRICS = 64  # as features they stand three times in a row; assumed to be enough to tell workloads apart


def select_metrics(
    profiles: Sequence[WorkloadProfile], metrics: Collection[str], most: int = MOST_METRICS
) -> tuple[str, ...]:
    """At most `most` of the metrics, sorted: those that best tell the profiles apart.

    Pivoted QR on the standardised logarithms picks columns one by one, each time the one that the columns before
    explain least (Golub and Van Loan, Matrix Computations, 5.4.2). Of collinear metrics one is kept. The selection
    ignores outcomes, so it cannot leak them into a test.
    """
    names = sorted(metrics)
    if len(names) <= most:
        return tuple(names)
    at = {name: column for column, name in enumerate(names)}
    values = np.full((len(profiles), len(names)), np.nan)
    for row, profile in enumerate(profiles):
        for key in profile.metrics.keys() & at.keys():
            values[row, at[key]] = np.log1p(profile.metrics[key])
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, values, 0.0).sum(axis=0) / count
    off = np.where(known, values - centre, 0.0)
    spread = np.sqrt((off**2).sum(axis=0) / count)
    scaled = off / np.maximum(spread, 1e-9)
    from scipy.linalg import qr  # which every command would wait for, and few datasets need

    _, _, order = qr(scaled, mode="economic", pivoting=True)
    return tuple(sorted(names[column] for column in order[:most]))
