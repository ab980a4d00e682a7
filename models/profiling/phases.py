"""Change-point detection: exact optimal partitioning (PELT) of noisy series, and which segments are the same phase.

Levels are compared as logarithms, so that a change is a factor. The noise of each metric is estimated from differences
of neighbouring windows, locally (an idle phase is quieter than a busy one) and with its autocorrelation: without the
latter a slow wander passes for changes. Single outliers are cut before anything is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.arrays import Floats, Ints

SHORTEST = 6  # windows that a phase lasts at least: one minute at the agent's ten seconds
SAME = float(np.log(1.25))  # levels within a quarter of each other in every metric are one phase
FALSE_ALARM = 0.01  # wanted chance of a change where there is none, per series; measured: tests/models
LEAST_NOISE = 0.03  # of log levels: below it shifts are no news, and constant series have noise to divide by
MOST_CORRELATION = 0.9  # of neighbouring windows; above it noise and change cannot be distinguished
CUT = 3.0  # standard deviations from the running median beyond which a value is cut
_AROUND = 31  # windows that the local noise is estimated from
_MEDIAN = 5  # windows of the running median: outlives outliers of two windows
_DOUBT = 1.5  # × 1/√windows is added to the autocorrelation found: its error, which short series would pay for
_NOTHING = 1e-300  # weight of stretches in which a metric is missing; their sums are 0, and so is their mean
# Noise is measured at this quantile of absolute differences: bursts are noise where they are common, and a change or an
# outlier spoils one or two differences of _AROUND. The second number makes it a normal distribution's deviation.
_QUANTILE, _TO_SIGMA = 0.8, 1 / 1.2816
_OF_ALL = (
    0.5  # of the whole series' noise that a stretch has at least: bursts may miss the windows around one by chance
)


@dataclass(frozen=True, slots=True)
class Phases:
    """`labels` (T,) has the phase of each window, numbered from 0 by first appearance; a phase may come back.

    `changes` are the windows at which a stretch of another phase begins, without 0.
    """

    labels: Ints
    changes: tuple[int, ...]

    @property
    def count(self) -> int:
        return int(self.labels.max()) + 1 if len(self.labels) else 0

    @property
    def stretches(self) -> tuple[tuple[int, int], ...]:
        """First window and the one after the last of every stretch, in order."""
        edges = (0, *self.changes, len(self.labels))
        return tuple(pairwise(edges)) if len(self.labels) else ()


@dataclass(frozen=True, slots=True)
class LevelSeries:
    """The input of partitioning: log levels `y` (T, M), `weight` (T, M) = 1 / long-run variance, 0 where unknown.

    `penalty` is the cost of a change in units of the weighted sum of squares.
    """

    y: Floats
    weight: Floats
    penalty: float


def find_phases(values: Floats, floors: Floats) -> Phases:
    """Phases of a multivariate series (T, M) in order of time; nan = missing.

    `floors` (M,) are the values in each metric's unit below which differences mean nothing.
    """
    count = len(values)
    known = np.isfinite(values).any(axis=0) if count else np.zeros(values.shape[1], dtype=bool)
    if count < 2 * SHORTEST or not known.any():
        return Phases(np.zeros(count, dtype=np.int64), ())
    levels = as_levels(values[:, known], floors[known])
    changes, _ = partition(levels, SHORTEST)
    return _recognise(levels, changes)


def as_levels(values: Floats, floors: Floats) -> LevelSeries:
    """Values (T, M) as log levels with their noise; outliers are cut to CUT deviations from the running median."""
    from scipy.special import chdtri  # a fifth of a second, which only a search for phases waits for

    logs = np.log1p(values / floors)
    sigma, correlation, effective = _noise(logs)
    smooth = _running(logs, _MEDIAN, 0.5)
    cut = np.clip(logs, smooth - CUT * sigma, smooth + CUT * sigma)
    long_run = sigma**2 * (1 + correlation) / (1 - correlation)
    missing = ~np.isfinite(cut)
    centre = np.nanmedian(cut, axis=0)
    scale, freedom = effective
    penalty = scale * float(chdtri(freedom, FALSE_ALARM / len(values)))
    return LevelSeries(np.where(missing, 0.0, cut - centre), np.where(missing, 0.0, 1 / long_run), penalty)


def partition(levels: LevelSeries, shortest: int) -> tuple[tuple[int, ...], float]:
    """The changes that cost least, and that cost: weighted squares around each stretch's mean plus penalties.

    Pruned exact linear time (Killick, Fearnhead, Eckley 2012). A beginning is given up only `shortest` windows after it
    was beaten, because the better one cannot be followed by a change any earlier. So `shortest` ends are looked at at
    once: none of them depends on what is found for another.
    """
    count = len(levels.y)
    sums = _Sums(levels)
    best = np.full(count + 1, np.inf)
    best[0] = -levels.penalty
    before = np.zeros(count + 1, dtype=np.int64)
    until = np.full(count + 1, count + 1, dtype=np.int64)
    candidates = np.zeros(0, dtype=np.int64)
    for first in range(shortest, count + 1, shortest):
        ends = np.arange(first, min(first + shortest, count + 1))
        begins = ends - shortest
        candidates = np.append(candidates[until[candidates] > first], begins[(begins == 0) | (begins >= shortest)])
        possible = (candidates <= begins[:, None]) & (until[candidates] > ends[:, None])
        total = np.where(possible, best[candidates] + sums.cost(candidates[None], ends[:, None]), np.inf)
        choice = total.argmin(axis=1)
        best[ends], before[ends] = total.min(axis=1) + levels.penalty, candidates[choice]
        beaten = possible & (total > best[ends, None])
        given_up = np.where(beaten, ends[:, None] + shortest, count + 1).min(axis=0)
        until[candidates] = np.minimum(until[candidates], given_up)
    changes: list[int] = []
    at = int(before[count])
    while at > 0:
        changes.append(at)
        at = int(before[at])
    return tuple(reversed(changes)), float(best[count])


class _Sums:
    """Running sums, from which the cost of any segment follows in constant time; by metric, which is faster."""

    def __init__(self, levels: LevelSeries) -> None:
        weighted = levels.weight * levels.y
        self._weight, self._first = _summed(levels.weight.T), _summed(weighted.T)
        self._second = _summed((weighted * levels.y).sum(axis=1))

    def of(self, begin: Ints, end: Ints) -> tuple[Floats, Floats]:
        """Weight and mean of stretches, (S, M) each."""
        weight = (self._weight[:, end] - self._weight[:, begin]).T
        return weight, (self._first[:, end] - self._first[:, begin]).T / np.maximum(weight, _NOTHING)

    def cost(self, begin: Ints, end: Ints) -> Floats:
        """Weighted squares around the mean from begins to ends, summed over metrics; shaped as the two together."""
        weight = np.maximum(self._weight[:, end] - self._weight[:, begin], _NOTHING)
        total = self._first[:, end] - self._first[:, begin]
        around_zero = self._second[end] - self._second[begin]
        return np.asarray(np.maximum(around_zero - np.einsum("m...,m...->...", total / weight, total), 0.0))


def _summed(values: Floats) -> Floats:
    """Sums of the first 0, 1, ... T of the last axis; exact differences where values are 0, as those of missing windows
    are."""
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)


def _noise(logs: Floats) -> tuple[Floats, Floats, tuple[float, float]]:
    """Local deviation (T, M), autocorrelation (M,) of neighbours, and how many metrics the M are worth together.

    The last is the (scale, degrees of freedom) of the chi-square that a sum over correlated metrics is like
    (Satterthwaite). Differences k windows apart have the variance 2 σ² (1 - ρᵏ) wherever the level stays, which the
    few differences across a change hardly move: quantiles are taken.
    """
    near = np.diff(logs, axis=0) / np.sqrt(2)
    far = (logs[2:] - logs[:-2]) / np.sqrt(2)
    local = _TO_SIGMA * _running(np.abs(near), _AROUND, _QUANTILE)
    overall = np.nan_to_num(_TO_SIGMA * _quantile(np.abs(near), _QUANTILE))
    local = np.fmax(np.vstack([local, local[-1:]]), np.maximum(_OF_ALL * overall, LEAST_NOISE))
    scaled_near, scaled_far = np.abs(near / local[:-1]), np.abs(far / local[:-2])
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (_quantile(scaled_far, _QUANTILE) / _quantile(scaled_near, _QUANTILE)) ** 2
    found = np.clip(np.nan_to_num(ratio, nan=1.0, posinf=1.0) - 1, 0.0, MOST_CORRELATION)
    doubt = _DOUBT / np.sqrt(len(logs))
    correlation = np.clip((found + found.mean()) / 2 + doubt, 0.0, MOST_CORRELATION)
    common = _correlation(np.sign(near))
    weight = float((common**2).sum()) / len(common)
    return local / np.sqrt(1 - correlation), correlation, (weight, len(common) / weight)


def _correlation(signs: Floats) -> Floats:
    """Correlation of metrics from the signs of their differences (M, M), which no outlier moves (quadrant)."""
    known = np.nan_to_num(signs)
    both = np.abs(known).T @ np.abs(known)
    same = np.divide(known.T @ known, both, out=np.zeros_like(both), where=both > 0)
    found = np.sin(np.pi / 2 * same)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def _running(values: Floats, width: int, share: float) -> Floats:
    """A quantile over `width` windows around each (T, M), fewer at the ends; nan where nothing is known around."""
    half = min(width, len(values)) // 2
    padded = np.pad(values, ((half, half), (0, 0)), constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1, axis=0)
    return _quantile(np.moveaxis(around, 2, 0), share)


def _quantile(values: Floats, share: float) -> Floats:
    """Quantile of what is known along the first axis, nan where nothing is; far faster than nanquantile."""
    ordered = np.sort(values, axis=0)  # nan comes last
    place = share * np.maximum(np.isfinite(ordered).sum(axis=0, keepdims=True) - 1, 0)
    below = np.floor(place).astype(np.int64)
    low, high = (np.take_along_axis(ordered, at, 0)[0] for at in (below, np.ceil(place).astype(np.int64)))
    return np.asarray(low + (place - below)[0] * (high - low))


def _recognise(levels: LevelSeries, changes: tuple[int, ...]) -> Phases:
    """Give segments of the same level one label: the closest two are joined until no two are the same.

    Two are the same when no metric differs by SAME, or when joining them costs no more than a change does. The former
    goes by medians: windows that hold some of two phases make no third one of a short stretch between them.
    """
    edges = np.array([0, *changes, len(levels.y)], dtype=np.int64)
    weight, mean = _Sums(levels).of(edges[:-1], edges[1:])
    known = np.where(levels.weight > 0, levels.y, np.nan)
    middle = np.nan_to_num(np.array([_quantile(known[begin:end], 0.5) for begin, end in pairwise(edges)]))
    parts = _Stretches(weight, mean, middle)
    group = np.arange(len(mean))
    alive = np.ones(len(mean), dtype=bool)
    apart = np.array([parts.apart(one, levels.penalty) for one in range(len(mean))])
    np.fill_diagonal(apart, np.inf)
    while apart.min() <= 1:
        one, other = sorted(int(index) for index in np.unravel_index(int(apart.argmin()), apart.shape))
        parts.join(one, other)
        group[group == other] = one
        alive[other] = False
        apart[one] = apart[:, one] = np.where(alive, parts.apart(one, levels.penalty), np.inf)
        apart[one, one] = apart[other] = apart[:, other] = np.inf
    _, first, number = np.unique(group, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    labels = np.repeat(rank[number], np.diff(edges)).astype(np.int64)
    return Phases(labels, tuple(int(at) for at in np.flatnonzero(np.diff(labels)) + 1))


@dataclass(slots=True)
class _Stretches:
    """Weight, mean and median of K stretches, (K, M) each; changed in place as stretches are joined."""

    weight: Floats
    mean: Floats
    middle: Floats

    def apart(self, one: int, penalty: float) -> Floats:
        """How far each stretch is from one, (K,): at most 1 = the same."""
        both = np.maximum(self.weight + self.weight[one], _NOTHING)
        known = (self.weight > 0) & (self.weight[one] > 0)
        shift = np.where(known, np.abs(self.middle - self.middle[one]), 0.0)
        gain = (self.weight * self.weight[one] / both * (self.mean - self.mean[one]) ** 2).sum(axis=1)
        return np.asarray(np.minimum(shift.max(axis=1) / SAME, np.sqrt(gain / penalty)))

    def join(self, one: int, other: int) -> None:
        """Make one of two; the other stays as it was and is not to be looked at any more."""
        both = self.weight[one] + self.weight[other]
        share = self.weight[other] / np.maximum(both, _NOTHING)
        self.mean[one] += share * (self.mean[other] - self.mean[one])
        self.middle[one] += share * (self.middle[other] - self.middle[one])
        self.weight[one] = both
