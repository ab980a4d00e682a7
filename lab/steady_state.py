"""Steady-state test of a run, by the spread and the trend of its windows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from lab.statistics import variation

FEWEST_WINDOWS = 6  # any trend of fewer may be chance
MOST_VARIATION = 0.05  # of windows that count as steady in whatever order
MOST_DRIFT = 0.05  # of the second half's median against the first's; less moves a run's mean by under 2.5 %
_SIGNIFICANT = 1.96  # two-sided 5 %


def trend(values: Sequence[float]) -> float:
    """Mann-Kendall's Z: above 0 for rising values; beyond +-1.96 in 5 % of the cases by chance alone.

    With the correction for ties (Gilbert 1987, section 16.4); 0 where all values are equal. Windows that follow each
    other closely are not independent, so trends are found somewhat more often than in 5 % of steady runs.
    """
    n = len(values)
    score = sum((later > earlier) - (later < earlier) for i, earlier in enumerate(values) for later in values[i + 1 :])
    ties = sum(count * (count - 1) * (2 * count + 5) for count in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    return 0.0 if not score or variance <= 0 else (score - math.copysign(1, score)) / math.sqrt(variance)


def drift(values: Sequence[float]) -> float:
    """Median of the second half over that of the first, minus 1; infinite where work only began half-way."""
    half = len(values) // 2
    first, second = median(values[:half]), median(values[-half:])
    if first <= 0:
        return 0.0 if second <= 0 else math.inf
    return second / first - 1


def drifts(values: Sequence[float]) -> bool | None:
    """Whether windows have a significant trend and halves that differ; None for too few windows.

    Both, because a tiny significant trend does no harm, and a large one that is not significant may be chance.
    """
    if len(values) < FEWEST_WINDOWS:
        return None
    return abs(drift(values)) > MOST_DRIFT and abs(trend(values)) > _SIGNIFICANT


def has_settled(values: Sequence[float]) -> bool:
    """Whether the last windows of a warm-up are steady: a variation of at most 5 %, or no trend."""
    last = values[-FEWEST_WINDOWS:]
    if len(last) < FEWEST_WINDOWS:
        return False
    spread = variation(last)
    return spread is None or spread <= MOST_VARIATION or not drifts(last)
