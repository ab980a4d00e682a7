"""Statistics of few and noisy repeats: centre, spread, and intervals that assume no distribution."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

_LEVEL = 0.95
_RESAMPLES = 2000
_FEWEST_FOR_ORDER = 6  # below, no pair of order statistics brackets the median with 95 %
_FEWEST_FOR_ANY = 2


@dataclass(frozen=True, slots=True)
class Description:
    """`lower` and `upper` bracket the median with 95 %; None when there are too few values to say."""

    count: int
    mean: float
    median: float
    cv: float | None
    lower: float | None
    upper: float | None


def describe(values: Sequence[float], seed: int = 0) -> Description:
    """Describe at least one value; ValueError for none."""
    if not values:
        raise ValueError("no values to describe")
    low, high = interval(values, seed)
    return Description(len(values), fmean(values), median(values), variation(values), low, high)


def variation(values: Sequence[float]) -> float | None:
    """Coefficient of variation, sample standard deviation over mean; None for fewer than two values."""
    if len(values) < _FEWEST_FOR_ANY or not fmean(values):
        return None
    return stdev(values) / abs(fmean(values))


def interval(values: Sequence[float], seed: int = 0) -> tuple[float | None, float | None]:
    """95 % interval of the median: by order statistics from six values on, by bootstrap below, none for one value.

    A bootstrap of very few values is too narrow (with 3, nominal 95 % holds about 75 %): read it as a lower bound.
    """
    if len(values) >= _FEWEST_FOR_ORDER:
        return order_interval(values)
    if len(values) >= _FEWEST_FOR_ANY:
        return bootstrap_interval(values, median, seed)
    return None, None


def order_interval(values: Sequence[float], level: float = _LEVEL) -> tuple[float, float]:
    """The narrowest symmetric pair of order statistics that brackets the median with at least `level`."""
    ordered = sorted(values)
    n = len(ordered)
    lowest = 0
    tail = 0.0
    for rank in range(n // 2):
        tail += math.comb(n, rank) / 2**n
        if 1 - 2 * tail < level:
            break
        lowest = rank
    return ordered[lowest], ordered[n - 1 - lowest]


def bootstrap_interval(
    values: Sequence[float], statistic: Callable[[Sequence[float]], float], seed: int = 0, level: float = _LEVEL
) -> tuple[float, float]:
    """Percentile bootstrap of any statistic; the same seed gives the same interval."""
    draw = random.Random(seed)  # noqa: S311 - resampling, not a secret
    results = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    cut = (1 - level) / 2
    return results[math.floor(cut * _RESAMPLES)], results[math.ceil((1 - cut) * _RESAMPLES) - 1]
