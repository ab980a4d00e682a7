"""How many digits of a figure are shown: what is known of it, and no more. What is stored keeps all of them."""

from __future__ import annotations

import math
from functools import lru_cache

SIGNIFICANT_DIGITS = 4  # of ratios, shares and ends of intervals: the best known are measured to about 0.01
SCORE_DECIMALS = 4  # of scores and sums of ratios: scores within 0.0005 are equal, however large they are
_SIGNIFICANT = f"%.{SIGNIFICANT_DIGITS}g"
REMEMBERED = 4096  # an answer repeats its figures: one of 772 on 12 hosts had 37 different ones


@lru_cache(REMEMBERED, typed=True)
def significant(value: float) -> float | None:
    """A figure to four significant digits; None for what is not finite, which JSON lacks."""
    return float(_SIGNIFICANT % value) if math.isfinite(value) else None


@lru_cache(REMEMBERED, typed=True)
def score_figure(value: float) -> float | None:
    """A score, or a sum of ratios, to four decimals; None for what is not finite."""
    return decimals(value, SCORE_DECIMALS)


def decimals(value: float, digits: int) -> float | None:
    """A figure whose absolute error is known, to so many decimals; None for what is not finite."""
    return round(value, digits) if math.isfinite(value) else None
