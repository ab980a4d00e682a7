"""Statistics of few and noisy repeats: median, spread, and distribution-free intervals."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median, stdev

_LEVEL = 0.95
_REPLICATES = 200  # of each run, as in the simulation of the coverage of hierarchical intervals
FEWEST_FOR_ORDER = 6  # below, no pair of order statistics brackets the median with 95 %
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


def describe(values: Iterable[float], replicates: Sequence[Sequence[float]] = ()) -> Description:
    """Describe at least one value, one per round; ValueError for none. `replicates` as in `rounds_interval`."""
    known = tuple(values)
    if not known:
        raise ValueError("no values to describe")
    low, high = rounds_interval(known, replicates) or (None, None)
    return Description(len(known), fmean(known), median(known), variation(known), low, high)


def variation(values: Sequence[float]) -> float | None:
    """Coefficient of variation, sample standard deviation over mean; None for fewer than two values."""
    if len(values) < _FEWEST_FOR_ANY or not fmean(values):
        return None
    return stdev(values) / abs(fmean(values))


def order_interval(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest symmetric pair of order statistics that brackets the median with at least 95 %."""
    ordered = sorted(values)
    lowest = _narrowest_rank(len(ordered))
    return ordered[lowest], ordered[len(ordered) - 1 - lowest]


def order_coverage(count: int) -> float:
    """The probability that `order_interval` of so many independent values holds the median of their distribution.

    At least 95 % from six values on. Of fewer the interval is their whole range, with 1 - 2 / 2**count.
    """
    return 1 - 2 * sum(math.comb(count, rank) for rank in range(_narrowest_rank(count) + 1)) / 2.0**count


def _narrowest_rank(count: int) -> int:
    lowest = 0
    tail = 0.0
    for rank in range(count // 2):
        tail += math.comb(count, rank) / 2**count
        if 1 - 2 * tail < _LEVEL:
            break
        lowest = rank
    return lowest


def window_replicates(value: float, windows: Sequence[float], count: int, draw: random.Random) -> list[float]:
    """Bootstrap replicates of what a run reached: its value, `count` times, with windows drawn anew from its own.

    `windows` follow the run's progress in any unit, so only their spread around their mean counts. They are taken as
    exchangeable: where they depend on each other, the spread within runs is too narrow, which that between rounds makes
    up for. With fewer than two windows the value has no spread.
    """
    mean = fmean(windows) if len(windows) >= _FEWEST_FOR_ANY else 0.0
    if mean <= 0:
        return [value] * count
    size = len(windows)
    resamples = draw.choices(windows, k=size * count)
    scale = value / mean / size
    return [scale * sum(resamples[at : at + size]) for at in range(0, size * count, size)]


@dataclass(frozen=True, slots=True)
class MemberRepeat:
    """One member in one round, alone or together: what it reached, and windows that follow its progress.

    `key` is different for every run, round and member; replicates of the same key are always the same.
    """

    key: str
    value: float
    windows: tuple[float, ...]


class RatioBootstrap:
    """Bootstrap replicates of ratios T/B, by the windows of their runs; each run is resampled once."""

    def __init__(self) -> None:
        self._known: dict[str, list[float]] = {}

    def ratios(self, together: MemberRepeat, alone: MemberRepeat) -> tuple[float, ...]:
        """Replicates of the ratio, equally many for any two repeats; `alone` must have reached something."""
        ratio = together.value / alone.value
        pairs = zip(self._of(together), self._of(alone), strict=True)
        return tuple(top / bottom if bottom > 0 else ratio for top, bottom in pairs)  # 0: only idle windows were drawn

    def _of(self, repeat: MemberRepeat) -> list[float]:
        if repeat.key not in self._known:
            draw = random.Random(repeat.key)  # noqa: S311 - resampling, not a secret
            self._known[repeat.key] = window_replicates(repeat.value, repeat.windows, _REPLICATES, draw)
        return self._known[repeat.key]


def rounds_interval(values: Sequence[float], replicates: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """95 % interval of the median over rounds, one value each; None for one round. Below 0 only where a value is.

    From six rounds on by order statistics. For fewer by the hierarchical bootstrap over rounds and their `replicates`
    (one sequence for each value, all of one length); without replicates over the rounds alone.
    """
    if len(values) >= FEWEST_FOR_ORDER:
        return order_interval(values)
    if len(values) < _FEWEST_FOR_ANY:
        return None
    low, high = hierarchical_interval(median(values), replicates or [(value,) for value in values])
    return max(low, 0.0) if min(values) >= 0 else low, high


def hierarchical_interval(middle: float, rounds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """95 % interval of a median over rounds, where each round has replicates of equal number; `middle` is the median.

    The bootstrap draws rounds with replacement, and a replicate within each. So every replicate is as likely, and the
    distribution of a median of such draws is known (Maritz & Jarrett 1978): nothing is drawn here, the ends are
    quantiles of all replicates. A bootstrap of n rounds is too narrow by sqrt((n - 1) / n) (Hesterberg 2015, section
    4.1), which is corrected. Simulated coverage of the nominal 95 %, by how much of the spread lies within rounds:
    88-99 % for 2 rounds, 89-99 % for 3, 95-100 % for 4 and 5. Assumes that rounds do not depend on each other.
    """
    values = sorted(replicate for replicates in rounds for replicate in replicates)
    count = len(rounds)
    cut = math.floor(_tail_share(count) * len(values))
    stretch = math.sqrt(count / (count - 1)) if count > 1 else 1.0
    low, high = values[cut], values[len(values) - 1 - cut]
    return middle - stretch * max(0.0, middle - low), middle + stretch * max(0.0, high - middle)


@lru_cache
def _tail_share(count: int) -> float:
    """Share p of all values below which the median of `count` draws lies with probability 2.5 %.

    The median of an even number is taken as the lower of the two in the middle, which makes intervals wider.
    """
    needed = (count + 1) // 2
    low, high = 0.0, 0.5
    for _ in range(50):
        share = (low + high) / 2
        below = sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(needed, count + 1))
        low, high = (share, high) if below < (1 - _LEVEL) / 2 else (low, share)
    return low
