"""How long a state must last for a workload: its settling after a switch, and the length that makes ratios surest."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

STEP_S = 0.01
"""How often progress is read while a workload is tuned."""
DWELLS_MS = (50, 100, 200)
WINDOW_S = 0.4
"""Length of the states in which a workload is tuned."""
_MOST_GUARD = 0.4  # of the shortest window that goes with it
_TOLERANCE = 0.05  # of the rate, within which a workload has settled whatever its noise
_NEARLY = 1.25  # times the least error
_NOISE = 2.0  # standard errors
_LEAST_GUARD_MS = 10
_MOST_GUARD_MS = 80


@dataclass(frozen=True, slots=True)
class Tuning:
    """`lag_one` is the autocorrelation of windows of the chosen length, where they were contiguous in time."""

    dwell_ms: int
    guard_ms: int
    lag_one: float


def tune(windows: Sequence[tuple[str, Sequence[float]]]) -> Tuning:
    """From the rates in steps of STEP_S since each switch, and the name of the state, in the order of time.

    No ratio between states is looked at: rates are taken relative to the mean of their own state. Of lengths that are
    about as sure the shortest is taken: it also cancels what these few seconds did not show.
    """
    guard_ms = settling_ms(windows)
    skipped = round(guard_ms / 1000 / STEP_S)
    relative = _relative([(name, rates[skipped:]) for name, rates in windows])
    found: list[tuple[float, int, float]] = []
    for dwell_ms in DWELLS_MS:
        if guard_ms <= _MOST_GUARD * dwell_ms:
            means = _means(relative, round(dwell_ms / 1000 / STEP_S) - skipped)
            found.append((_error(means, dwell_ms), dwell_ms, lag_one(means)))
    if not found:
        return Tuning(DWELLS_MS[-1], guard_ms, 0.0)
    least, _, _ = min(found)
    _, dwell_ms, correlation = next(one for one in found if one[0] <= _NEARLY * least or math.isinf(least))
    return Tuning(dwell_ms, guard_ms, correlation)


def settling_ms(windows: Sequence[tuple[str, Sequence[float]]]) -> int:
    """Time after a switch until the mean rate is that of the window's second half, but for noise or 5 %.

    Until two steps in a row are: among many noisy ones some are always off by chance.
    """
    steps = max((_settling_steps([rates for name, rates in windows if name == state]) for state in _names(windows)),
                default=0)  # fmt: skip
    return min(_MOST_GUARD_MS, max(_LEAST_GUARD_MS, round(steps * STEP_S * 1000)))


def _names(windows: Sequence[tuple[str, Sequence[float]]]) -> list[str]:
    return sorted({name for name, _ in windows})


def _settling_steps(rows: Sequence[Sequence[float]]) -> int:
    half = min(len(rates) for rates in rows) // 2
    late = fmean(rate for rates in rows for rate in rates[half:])
    if late <= 0 or len(rows) <= 1:
        return 0
    off = [_is_off([rates[step] for rates in rows], late) for step in range(half)]
    return next((step for step in range(half - 1) if not (off[step] or off[step + 1])), half)


def _is_off(rates: Sequence[float], usual: float) -> bool:
    noise = _NOISE * stdev(rates) / math.sqrt(len(rates))
    return abs(fmean(rates) - usual) > max(noise, _TOLERANCE * usual)


def lag_one(values: Sequence[float]) -> float:
    """Autocorrelation at lag 1; 0 for constant or too few values."""
    if len(values) <= 2:
        return 0.0
    mean = fmean(values)
    spread = sum((value - mean) ** 2 for value in values)
    return sum((a - mean) * (b - mean) for a, b in itertools.pairwise(values)) / spread if spread else 0.0


def _relative(windows: Sequence[tuple[str, Sequence[float]]]) -> list[float]:
    """One series of settled rates over time, relative to the mean of their state."""
    every: dict[str, list[float]] = defaultdict(list)
    for name, rates in windows:
        every[name] += rates
    means = {name: fmean(rates) for name, rates in every.items()}
    return [rate / means[name] for name, rates in windows for rate in rates if means[name] > 0]


def _means(series: Sequence[float], size: int) -> list[float]:
    return [fmean(series[at : at + size]) for at in range(0, len(series) - size + 1, size)]


def _error(means: Sequence[float], dwell_ms: int) -> float:
    """Error of a ratio of neighbouring windows after a second of each: the Allan deviation, over the root of their
    number. Short windows win where noise is slow, long ones where the guard or single events cost much."""
    if len(means) <= 1:
        return math.inf
    steps = [b - a for a, b in itertools.pairwise(means)]
    return math.sqrt(fmean(step * step for step in steps)) * math.sqrt(dwell_ms / 1000)
