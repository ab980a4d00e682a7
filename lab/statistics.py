"""Statistics of few and noisy repeats: median, spread, and distribution-free intervals."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median, stdev

_LEVEL = 0.95
_REPLICATES = 200  # of each run, as in the simulation of what hierarchical intervals hold
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


def order_interval(values: Sequence[float], level: float = _LEVEL) -> tuple[float, float]:
    """The narrowest symmetric pair of order statistics that brackets the median with at least `level`."""
    ordered = sorted(values)
    lowest = _narrowest_rank(len(ordered), level)
    return ordered[lowest], ordered[len(ordered) - 1 - lowest]


def order_coverage(count: int, level: float = _LEVEL) -> float:
    """How often `order_interval` of so many independent values holds the median of what they are drawn from.

    At least `level` from six values on; of fewer it is their whole range, which holds it with 1 - 2 / 2**count.
    """
    return 1 - 2 * sum(math.comb(count, rank) for rank in range(_narrowest_rank(count, level) + 1)) / 2.0**count


def _narrowest_rank(count: int, level: float) -> int:
    lowest = 0
    tail = 0.0
    for rank in range(count // 2):
        tail += math.comb(count, rank) / 2**count
        if 1 - 2 * tail < level:
            break
        lowest = rank
    return lowest


def window_replicates(value: float, windows: Sequence[float], count: int, draw: random.Random) -> list[float]:
    """What a run might as well have reached, `count` times: its value with windows drawn anew from its own.

    `windows` follow the run's progress in any unit, so only their spread around their mean counts. They are taken as
    exchangeable: windows that depend on each other make this level too narrow, which the level of rounds makes up for.
    Without at least two windows the value has no spread.
    """
    mean = fmean(windows) if len(windows) >= _FEWEST_FOR_ANY else 0.0
    if mean <= 0:
        return [value] * count
    size = len(windows)
    drawn = draw.choices(windows, k=size * count)
    scale = value / mean / size
    return [scale * sum(drawn[at : at + size]) for at in range(0, size * count, size)]


@dataclass(frozen=True, slots=True)
class MemberRepeat:
    """One member in one round, alone or together: what it reached, and windows that follow its progress.

    `key` is different for every run, round and member; the same key is always redrawn alike.
    """

    key: str
    value: float
    windows: tuple[float, ...]


class RatioBootstrap:
    """What ratios T/B might as well have been, by the windows of their runs; each run is redrawn once."""

    def __init__(self) -> None:
        self._known: dict[str, list[float]] = {}

    def ratios(self, together: MemberRepeat, alone: MemberRepeat) -> tuple[float, ...]:
        """Equally many for any two; `alone` must have reached something."""
        ratio = together.value / alone.value
        pairs = zip(self._of(together), self._of(alone), strict=True)
        return tuple(top / bottom if bottom > 0 else ratio for top, bottom in pairs)  # 0: only idle windows were drawn

    def _of(self, repeat: MemberRepeat) -> list[float]:
        if repeat.key not in self._known:
            draw = random.Random(repeat.key)  # noqa: S311 - resampling, not a secret
            self._known[repeat.key] = window_replicates(repeat.value, repeat.windows, _REPLICATES, draw)
        return self._known[repeat.key]


def rounds_interval(values: Sequence[float], replicates: Sequence[Sequence[float]] = ()) -> tuple[float, float] | None:
    """95 % interval of the median over rounds, one value each; None for one round. Below 0 only where a value is.

    From six rounds on by order statistics; below, by the hierarchical bootstrap, over the rounds and their
    `replicates` (as many rounds as values, as many replicates in each), or over the rounds alone without them.
    """
    if len(values) >= FEWEST_FOR_ORDER:
        return order_interval(values)
    if len(values) < _FEWEST_FOR_ANY:
        return None
    low, high = hierarchical_interval(median(values), replicates or [(value,) for value in values])
    return max(low, 0.0) if min(values) >= 0 else low, high


def hierarchical_interval(middle: float, rounds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """95 % interval of a median over rounds, where each round has replicates of equal number; `middle` is the median.

    Rounds are drawn with replacement, within each a replicate. A draw is then one of all replicates, each as likely,
    and the distribution of a median of such draws is known (Maritz & Jarrett 1978), so nothing is drawn here: the ends
    are quantiles of all replicates. A bootstrap of n rounds is too narrow by sqrt((n - 1) / n) (Hesterberg 2015,
    section 4.1), which is put right. Simulated coverage of the nominal 95 %, by how much of the spread lies
    within rounds: 88-99 % for 2 rounds, 89-99 % for 3, 95-100 % for 4 and 5. Assumes that rounds do not depend on each
    other.
    """
    values = sorted(replicate for replicates in rounds for replicate in replicates)
    count = len(rounds)
    cut = math.floor(_tail_share(count) * len(values))
    stretch = math.sqrt(count / (count - 1)) if count > 1 else 1.0
    low, high = values[cut], values[len(values) - 1 - cut]
    return middle - stretch * max(0.0, middle - low), middle + stretch * max(0.0, high - middle)


@lru_cache
def _tail_share(count: int, level: float = _LEVEL) -> float:
    """Share p of all values below which the median of `count` draws lies with probability (1 - level) / 2.

    Of an even number the lower of the two middle ones counts, which makes intervals wider rather than narrower.
    """
    needed = (count + 1) // 2
    low, high = 0.0, 0.5
    for _ in range(50):
        share = (low + high) / 2
        below = sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(needed, count + 1))
        low, high = (share, high) if below < (1 - level) / 2 else (low, share)
    return low
