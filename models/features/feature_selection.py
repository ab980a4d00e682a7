"""Which metrics are features: not those that an ablation showed to add nothing, and not more than are enough."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from models.data.profile import WorkloadProfile
from profiler.metrics import EIGHT, split_key

MOST_METRICS = 256  # as features they stand three times in a row; assumed to be enough to tell workloads apart
# Seven of the eight are measured, shown and read by the prior, but are no features: what they tell is in `cpu`, in the
# rates of network, disk and memory, and in the prior's columns. Without them errors on new workloads are smaller, and
# elsewhere no larger (decision 92).
FEATURES_OF_EIGHT = frozenset({"cpu"})
_LEFT_OUT = frozenset(metric.name for metric in EIGHT) - FEATURES_OF_EIGHT


def is_feature(key: str) -> bool:
    """Whether a metric becomes a feature, whatever its scope."""
    return split_key(key)[1] not in _LEFT_OUT


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
        for key, value in profile.metrics.items():
            values[row, at[key]] = np.log1p(value)
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, values, 0.0).sum(axis=0) / count
    off = np.where(known, values - centre, 0.0)
    spread = np.sqrt((off**2).sum(axis=0) / count)
    scaled = off / np.maximum(spread, 1e-9)
    from scipy.linalg import qr  # which every command would wait for, and few datasets need

    _, _, order = qr(scaled, mode="economic", pivoting=True)
    return tuple(sorted(names[column] for column in order[:most]))
