"""T/B and its standard error from the windows of an on/off run."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from statistics import stdev

_Row = tuple[float, float, float, float]  # progress and exposure together, then alone
_RESAMPLES = 400
FEWEST_PAIRS = 4
"""Blocks with both states; of fewer there is no ratio."""


@dataclass(frozen=True, slots=True)
class StateShare:
    """What a member did in one window: `progress` in `exposure`, which is seconds, or the number of answers."""

    progress: float
    exposure: float


@dataclass(frozen=True, slots=True)
class OnOffRatio:
    """`together` and `alone` are rates; `error` is the standard error of their ratio, over `pairs` blocks."""

    together: float
    alone: float
    error: float
    pairs: int


def estimate_ratio(pairs: Sequence[tuple[StateShare, StateShare]], seed: str = "") -> OnOffRatio | None:
    """The ratio of rates from (together, alone) of each block, in the order of time; None where too little is known.

    It is a ratio of sums, so that windows count by their length. Its error is by a circular moving block bootstrap
    (Politis & Romano 1992): blocks are drawn with both of their windows, so that what both share cancels, and in
    stretches of the cube root of their number, so that what lasts longer than a block still counts. It is widened by
    sqrt(n / (n - 1)), because a bootstrap of few blocks is too narrow.
    """
    count = len(pairs)
    if count < FEWEST_PAIRS:
        return None
    rows = [(both.progress, both.exposure, alone.progress, alone.exposure) for both, alone in pairs]
    together, alone = _rates(rows)
    if not (alone > 0 and math.isfinite(together)):
        return None
    draw = random.Random(seed)  # noqa: S311 - resampling, not a secret
    length = max(1, round(count ** (1 / 3)))
    stretches = math.ceil(count / length)
    whole = _sums(rows, length)
    last = _sums(rows, count - (stretches - 1) * length)  # a resample has as many blocks as there are
    # what draw.randrange(count) gives again and again, in a fraction of its time
    numbers = filter(count.__gt__, map(draw.getrandbits, repeat(count.bit_length())))
    ratios: list[float] = []
    for _ in range(_RESAMPLES):
        starts = list(islice(numbers, stretches))
        top, bottom = _rates([*map(whole.__getitem__, starts[:-1]), last[starts[-1]]])
        if bottom > 0 and math.isfinite(top):
            ratios.append(top / bottom)
    error = stdev(ratios) * math.sqrt(count / (count - 1)) if len(ratios) > _RESAMPLES // 2 else math.inf
    return OnOffRatio(together, alone, error, count)


def _sums(rows: Sequence[_Row], length: int) -> list[_Row]:
    """By its first block, what each stretch of blocks adds up to; the first block follows the last one."""
    around = [*rows, *rows[:length]]
    found: list[_Row] = []
    for start in range(len(rows)):
        together, exposure, alone, exposure_alone = map(sum, zip(*around[start : start + length], strict=True))
        found.append((together, exposure, alone, exposure_alone))
    return found


def _rates(rows: Sequence[_Row]) -> tuple[float, float]:
    together, exposure, alone, exposure_alone = (sum(column) for column in zip(*rows, strict=True))
    return (together / exposure if exposure > 0 else math.inf), (alone / exposure_alone if exposure_alone > 0 else 0.0)
