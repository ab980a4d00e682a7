"""What a rollout brought: CPU delivered in windows after it less before it, beside instances that were left alone.

The difference in differences of the means of windows. Windows that follow each other are alike, so each series counts
as fewer independent ones: n (1 - r) / (1 + r), with r the correlation of neighbours (Bayley and Hammersley, 1946).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Band, MeasuredEffect, PredictedEffect, Verdict

FEWEST = 5  # windows on either side, before an effect is said
CONFIDENCE = 0.90  # of intervals, as those of predictions
_LEAST_INDEPENDENT = 2.0
Series = Mapping[float, float]  # end of a window, s since the epoch → CPU delivered, 0-1


@dataclass(frozen=True, slots=True)
class Span:
    """The windows that count: those that end in (begin, changed] are before, those that begin at `settled` or later and
    end by `end` are after; all in s since the epoch."""

    begin: float
    changed: float
    settled: float
    end: float
    window_s: float

    def before(self, time_s: float) -> bool:
        return self.begin < time_s <= self.changed

    def after(self, time_s: float) -> bool:
        return self.settled + self.window_s <= time_s <= self.end


def measure(
    predicted: PredictedEffect, own: Series, controls: Mapping[str, Series], span: Span, fewest: int = FEWEST
) -> MeasuredEffect:
    """What became of one instance; `unknown` with the reason where too few windows were measured."""
    usable = {name: series for name, series in controls.items() if _has_enough(series, span, fewest)}
    differences = _less(own, list(usable.values()))
    before = np.array([value for time_s, value in sorted(differences.items()) if span.before(time_s)])
    after = np.array([value for time_s, value in sorted(differences.items()) if span.after(time_s)])
    change = predicted.change
    counted = {"windows_before": len(before), "windows_after": len(after), "controls": tuple(sorted(usable))}
    if min(len(before), len(after)) < fewest:
        why = f"{len(before)} windows before and {len(after)} after were measured; {fewest} of each are needed"
        return MeasuredEffect(predicted.instance, change, "unknown", why=why, **counted)  # type: ignore[arg-type]
    effect = _difference(before, after)
    verdict, why = verdict_of(change, effect)
    levels = (_mean_of(own, differences, span.before), _mean_of(own, differences, span.after))
    return MeasuredEffect(predicted.instance, change, verdict, effect, *levels, why=why, **counted)  # type: ignore[arg-type]


def verdict_of(predicted: Band, effect: Band) -> tuple[Verdict, str]:
    """How a measured effect stands to the predicted one.

    harmful = beyond doubt below 0 and below what was predicted: the whole interval is; less and more = the whole
    interval is outside of the predicted range; unknown = the interval covers 0 and all of the predicted range.
    """
    said = f"{effect.expected:+.3f} [{effect.lower:+.3f}, {effect.upper:+.3f}]"
    beside = f"predicted {predicted.expected:+.3f} [{predicted.lower:+.3f}, {predicted.upper:+.3f}], measured {said}"
    if effect.upper < min(predicted.lower, 0.0):
        return "harmful", beside
    if effect.upper < predicted.lower:
        return "less", beside
    if effect.lower > predicted.upper:
        return "more", beside
    if effect.lower < min(predicted.lower, 0.0) and effect.upper > max(predicted.upper, 0.0):
        return "unknown", f"{beside}: the windows vary too much to tell"
    return "as predicted", beside


def _has_enough(series: Series, span: Span, fewest: int) -> bool:
    return sum(map(span.before, series)) >= fewest and sum(map(span.after, series)) >= fewest


def _less(own: Series, controls: Sequence[Series]) -> dict[float, float]:
    """The own value of each window less the mean of the controls that were measured in it."""
    if not controls:
        return dict(own)
    differences = {}
    for time_s, value in own.items():
        there = [series[time_s] for series in controls if time_s in series]
        if there:
            differences[time_s] = value - sum(there) / len(there)
    return differences


def _difference(before: NDArray[np.float64], after: NDArray[np.float64]) -> Band:
    """Welch's interval of the difference of means, with as many windows as are independent."""
    from scipy import stats

    parts = [(float(np.var(some, ddof=1)), _independent(some)) for some in (before, after)]
    errors = [variance / number for variance, number in parts]
    expected = float(after.mean() - before.mean())
    total = sum(errors)
    if total <= 0.0:
        return Band(expected, expected, expected)
    freedom = total**2 / sum(error**2 / max(number - 1, 1.0) for error, (_, number) in zip(errors, parts, strict=True))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(total)
    return Band(expected, expected - half, expected + half)


def _independent(values: NDArray[np.float64]) -> float:
    """How many independent windows a series is worth."""
    centred = values - values.mean()
    power = float(centred @ centred)
    if power <= 0.0 or len(values) < 3:
        return float(len(values))
    alike = min(max(float(centred[1:] @ centred[:-1]) / power, 0.0), 0.95)
    return max(len(values) * (1 - alike) / (1 + alike), _LEAST_INDEPENDENT)


def _mean_of(own: Series, counted: Mapping[float, float], chosen: object) -> float:
    values = [own[time_s] for time_s in counted if chosen(time_s)]  # type: ignore[operator]
    return sum(values) / len(values)
