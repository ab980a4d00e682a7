"""How many digits of a figure are shown: what is known of it, and no more. What is stored keeps all of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

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


def utc_time(time_s: float) -> datetime:
    """Seconds since the epoch as a time; the first window of a series may begin before the epoch, and counts as 0."""
    return datetime.fromtimestamp(max(time_s, 0.0), UTC)


def _tenths(value: float) -> float | None:
    return decimals(value, 1)


def _hundredths(value: float) -> float | None:
    return decimals(value, 2)


def _thousandths(value: float) -> float | None:
    return decimals(value, 3)


def _or_infinite(value: Any) -> Any:
    return math.inf if value is None else value


_NULL = BeforeValidator(_or_infinite)
# Figures of answers, as JSON has them; null = not finite, which is infinite again where JSON is read.
Figure = Annotated[
    float, PlainSerializer(significant, float | None, "json"), _NULL
]  # ratios, shares, ends of intervals
Known = Annotated[float, PlainSerializer(significant, float, "json")]  # a figure that is finite in any case
Score = Annotated[float, PlainSerializer(score_figure, float | None, "json"), _NULL]  # scores and sums of ratios
Tenths = Annotated[float, PlainSerializer(_tenths, float | None, "json"), _NULL]  # watts, days
Hundredths = Annotated[float, PlainSerializer(_hundredths, float | None, "json"), _NULL]  # money
Thousandths = Annotated[float, PlainSerializer(_thousandths, float | None, "json"), _NULL]  # seconds, short answers
