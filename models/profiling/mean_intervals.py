"""Means of autocorrelated windows with 90 % intervals, by the effective number of independent windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.arrays import Floats, Ints

_TAIL = 0.95  # of a two-sided 90 % interval
_ROUNDING = 1e-12  # spread over mean of values that differ by rounding only


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A metric's mean with its 90 % interval (None = too few windows) and its effective number of windows."""

    value: float
    lower: float | None
    upper: float | None
    effective: float

    @property
    def doubt(self) -> float | None:
        """Half width of the interval over the value; None where either is unknown or 0."""
        if self.lower is None or self.upper is None or self.value <= 0:
            return None
        return (self.upper - self.lower) / 2 / self.value


def estimate(values: Floats, runs: Ints) -> MeanEstimate | None:
    """Mean of the known values (n,) with a 90 % interval that accounts for autocorrelation within runs of windows.

    The effective number is n / (1 + 2 Σ ρₖ); lags are summed while sums of pairs are positive and fall (Geyer 1992).
    None where no value is known.
    """
    from scipy.special import stdtrit  # here, so that commands which estimate nothing start faster

    known = np.isfinite(values)
    values, runs = values[known], runs[known]
    count = len(values)
    if count == 0:
        return None
    mean = float(values.mean())
    if values.std() <= _ROUNDING * mean:
        return MeanEstimate(mean, mean, mean, float(count)) if count > 1 else MeanEstimate(mean, None, None, 1.0)
    effective = count / _inflation(values - mean, runs)
    if effective < 2:
        return MeanEstimate(mean, None, None, effective)
    half = float(stdtrit(effective - 1, _TAIL) * values.std() / np.sqrt(effective - 1))
    return MeanEstimate(mean, max(0.0, mean - half), mean + half, effective)


def _inflation(rest: Floats, runs: Ints) -> float:
    """1 + 2 Σ ρₖ of values around their mean, within runs; at least 1."""
    power = float(rest @ rest)
    total, last = -1.0, np.inf
    for lag in range(0, len(rest) - 1, 2):
        pair = _lagged(rest, runs, lag) / power + _lagged(rest, runs, lag + 1) / power
        if pair <= 0:
            break
        last = min(pair, last)
        total += 2 * last
    return float(np.clip(total, 1.0, len(rest)))


def _lagged(rest: Floats, runs: Ints, lag: int) -> float:
    same = runs[lag:] == runs[: len(runs) - lag]
    return float((rest[lag:] * rest[: len(rest) - lag])[same].sum())
