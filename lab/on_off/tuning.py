"""How long a state must last for a workload: its settling time after a switch, and the length with the least error."""

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
    """The lengths for windows of (state, rates in steps of STEP_S since its switch), in the order of time.

    No ratio between states enters: rates are relative to the mean of their own state. Among lengths of about the same
    error the shortest is taken, because it also cancels what these few seconds did not show.
    """
    guard_ms = settling_ms(windows)
    skipped = round(guard_ms / 1000 / STEP_S)
    relative = _relative([(name, rates[skipped:]) for name, rates in windows])
    candidates: list[tuple[float, int, float]] = []
    for dwell_ms in DWELLS_MS:
        if guard_ms <= _MOST_GUARD * dwell_ms:
            means = _means(relative, round(dwell_ms / 1000 / STEP_S) - skipped)
            candidates.append((_error(means, dwell_ms), dwell_ms, lag_one(means)))
    if not candidates:
        return Tuning(DWELLS_MS[-1], guard_ms, 0.0)
    least, _, _ = min(candidates)
    _, dwell_ms, correlation = next(
        candidate for candidate in candidates if candidate[0] <= _NEARLY * least or math.isinf(least)
    )
    return Tuning(dwell_ms, guard_ms, correlation)


def settling_ms(windows: Sequence[tuple[str, Sequence[float]]]) -> int:
    """Time after a switch until the mean rate is that of the window's second half, within noise or 5 %.

    Two steps in a row must be: among many noisy steps some are off by chance.
    """
    by_state: dict[str, list[Sequence[float]]] = defaultdict(list)
    for state, rates in windows:
        by_state[state].append(rates)
    steps = max(map(_settling_steps, by_state.values()), default=0)
    return min(_MOST_GUARD_MS, max(_LEAST_GUARD_MS, round(steps * STEP_S * 1000)))


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
    by_state: dict[str, list[float]] = defaultdict(list)
    for name, rates in windows:
        by_state[name] += rates
    means = {name: fmean(rates) for name, rates in by_state.items()}
    return [rate / means[name] for name, rates in windows for rate in rates if means[name] > 0]


def _means(series: Sequence[float], size: int) -> list[float]:
    return [fmean(series[at : at + size]) for at in range(0, len(series) - size + 1, size)]


def _error(means: Sequence[float], dwell_ms: int) -> float:
    """Error of a ratio of neighbouring windows after a second of each: Allan deviation over the root of their number.

    Short windows have the least error where noise is slow, long ones where the guard or single events cost much.
    """
    if len(means) <= 1:
        return math.inf
    steps = [b - a for a, b in itertools.pairwise(means)]
    return math.sqrt(fmean(step * step for step in steps)) * math.sqrt(dwell_ms / 1000)
