"""Tallies of demand side by side, as the store keeps them: what `Tally` and `estimated` do of one, of all in arrays.

Figures are the same to the last bit, but for hours where Python adds floats more exactly (3.12 and later).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from models.data.demand_classes import DAY_ONE, PRIOR_HOURS, doubt, usual_spread
from models.profiling.demand_estimation import (
    DAYS_FOR_HOURS,
    DAYS_FOR_WEEK,
    FIRST_BIN,
    HOURS,
    LAST_BIN,
    LEAST_EXECUTIONS,
    MOST_WINDOWS,
    PRIOR_WINDOWS,
    Estimate,
    Tally,
    bin_of,
    border,
    common_share,
    lag_one,
)
from profiler.demand import Resource

_VERSION = 1
_HEAD = struct.Struct("<BBH")  # format, how many hours and how many bins have windows
_N, _MEAN, _SQUARES, _LAST_VALUE, _LEAST, _MOST, _FIRST_S, _LAST_S, _ADDED = range(9)
_LAGGED, _SHARED, _BURSTS, _WIDTH = 9, 15, 21, 23
_NUMBER_OF_BINS = LAST_BIN - FIRST_BIN + 2  # the first counts windows without a demand
_BORDERS = np.array([0.0, *(border(at) for at in range(FIRST_BIN, LAST_BIN + 2))])  # of the bins, in order
_QUANTILES = (0.50, 0.95, 0.99)
Rows = NDArray[np.intp]
Floats = NDArray[np.float64]


class Unreadable(ValueError):  # noqa: N818 - reads as what it says at the raise
    """Bytes are no tally."""


class Tallies:
    """Tallies of `window_s`, one for each of `resources`; every array has a row for each.

    `added` is what the owner notes of the last window, nan = nothing.
    """

    def __init__(self, resources: Sequence[Resource], window_s: float = 300.0) -> None:
        number = len(resources)
        self.resources, self.window_s = resources, window_s
        self._held = np.zeros((number, _WIDTH))
        self._held[:, _LEAST] = self._held[:, _FIRST_S] = math.inf
        self._held[:, _LAST_S] = -math.inf
        self._held[:, _ADDED] = math.nan
        self._sums, self._counts = np.zeros((number, HOURS)), np.zeros((number, HOURS))
        self._bins = np.zeros((number, _NUMBER_OF_BINS))

    @classmethod
    def of(cls, resources: Sequence[Resource], states: Sequence[bytes], window_s: float = 300.0) -> Tallies:
        """Of what `states` wrote; empty = no window yet. Unreadable for anything else."""
        found = cls(resources, window_s)
        there = np.array([row for row, state in enumerate(states) if state], np.intp)
        try:
            parts = [_parts(states[row]) for row in there]
            found._held[there] = np.frombuffer(b"".join(part[0] for part in parts)).reshape(len(there), _WIDTH)
            hours = np.frombuffer(b"".join(part[1] for part in parts), np.uint8)
            bins = np.frombuffer(b"".join(part[2] for part in parts), "<u2")
            of_hours = np.repeat(there, np.array([len(part[1]) for part in parts], np.intp))
            of_bins = np.repeat(there, np.array([len(part[2]) // 2 for part in parts], np.intp))
            found._sums[of_hours, hours] = np.frombuffer(b"".join(part[3] for part in parts))
            found._counts[of_hours, hours] = np.frombuffer(b"".join(part[4] for part in parts))
            found._bins[of_bins, bins] = np.frombuffer(b"".join(part[5] for part in parts))
        except (struct.error, ValueError, IndexError) as error:
            raise Unreadable(f"a tally of demand cannot be read: {error}") from error
        return found

    @classmethod
    def of_tallies(cls, tallies: Sequence[Tally]) -> Tallies:
        """The same numbers."""
        found = cls([one.resource for one in tallies], tallies[0].window_s if tallies else 300.0)
        for row, one in enumerate(tallies):
            plain = (one.n, one.mean, one.squares, one.last, one.least, one.most, one.first_s, one.last_s, math.nan)
            found._held[row] = (*plain, *one.lagged, *one.shared, *one.bursts)
            found._sums[row], found._counts[row] = one.sums, one.counts
            for at, count in one.bins.items():
                found._bins[row, at - FIRST_BIN + 1] = count
        return found

    def tally(self, row: int) -> Tally:
        """One of them by itself."""
        held: list[float] = self._held[row].tolist()
        plain = dict(zip(("n", "mean", "squares", "last", "least", "most", "first_s", "last_s"), held, strict=False))
        return Tally(
            resource=self.resources[row],
            window_s=self.window_s,
            bins={at + FIRST_BIN - 1: count for at, count in enumerate(self._bins[row].tolist()) if count},
            sums=self._sums[row].tolist(),
            counts=self._counts[row].tolist(),
            lagged=held[_LAGGED:_SHARED],
            shared=held[_SHARED:_BURSTS],
            bursts=held[_BURSTS:],
            **plain,
        )

    def states(self) -> list[bytes]:
        """Each as bytes: fixed numbers, and what differs from 0 of the hours and bins."""
        rows, hours = np.nonzero(self._counts)
        in_rows, bins = np.nonzero(self._bins)
        number = len(self.resources)
        cut, cut_bins = (np.searchsorted(of, np.arange(number + 1)).tolist() for of in (rows, in_rows))
        held, hour_bytes, bin_bytes = (
            self._held.tobytes(),
            hours.astype(np.uint8).tobytes(),
            bins.astype("<u2").tobytes(),
        )
        sums, counts = self._sums[rows, hours].tobytes(), self._counts[rows, hours].tobytes()
        in_bins, width, written = self._bins[in_rows, bins].tobytes(), 8 * _WIDTH, []
        for row in range(number):
            a, b, c, d = cut[row], cut[row + 1], cut_bins[row], cut_bins[row + 1]
            parts = (
                _HEAD.pack(_VERSION, b - a, d - c), held[row * width : (row + 1) * width], hour_bytes[a:b],
                bin_bytes[2 * c : 2 * d], sums[8 * a : 8 * b], counts[8 * a : 8 * b], in_bins[8 * c : 8 * d],
            )  # fmt: skip
            written.append(b"".join(parts))
        return written

    @property
    def n(self) -> NDArray[np.float64]:
        """Windows of each."""
        return self._held[:, _N]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Of each."""
        return self._held[:, _MEAN]

    @property
    def last(self) -> NDArray[np.float64]:
        """The demand of each one's last window."""
        return self._held[:, _LAST_VALUE]

    @property
    def last_s(self) -> NDArray[np.float64]:
        """When each one's last window ended."""
        return self._held[:, _LAST_S]

    @property
    def added(self) -> NDArray[np.float64]:
        """Of each."""
        return self._held[:, _ADDED]

    def add(self, rows: Rows, time_s: float, demand: Floats, ran: Floats, executions: Floats) -> None:
        """As `Tally.add`, a window of each of these rows, none twice, that ended at one time."""
        if not ((demand >= 0) & (demand < np.inf)).all() or not math.isfinite(time_s):
            raise ValueError(f"windows at {time_s} have demands that are none")
        held, since = self._held[rows], time_s - self._held[rows, _LAST_S]
        near = (held[:, _N] > 0) & (since > 0) & (since < 1.5 * self.window_s)
        _co_moments_of(self._held, rows[near], _LAGGED, held[near, _LAST_VALUE], demand[near])
        counted = (executions > 0) & np.isfinite(ran)
        for at, rate in enumerate((ran, executions)):
            self._held[rows[counted], _BURSTS + at] += rate[counted] * self.window_s
        number, change = held[:, _N] + 1, demand - held[:, _MEAN]
        mean = held[:, _MEAN] + change / number
        self._held[rows, _N], self._held[rows, _MEAN] = number, mean
        self._held[rows, _SQUARES] += change * (demand - mean)
        self._held[rows, _LEAST] = np.minimum(held[:, _LEAST], demand)
        self._held[rows, _MOST] = np.maximum(held[:, _MOST], demand)
        self._bins[rows, [bin_of(value) - FIRST_BIN + 1 for value in demand.tolist()]] += 1
        hour = int(time_s - self.window_s / 2) // 3600 % HOURS
        self._sums[rows, hour] += demand
        self._counts[rows, hour] += 1
        self._held[rows, _FIRST_S] = np.minimum(held[:, _FIRST_S], time_s)
        later = rows[since > 0]
        self._held[later, _LAST_S], self._held[later, _LAST_VALUE] = time_s, demand[since > 0]
        self._halve(rows[number > MOST_WINDOWS])

    def compare(self, rows: Rows, demand: Floats, others_in_step: Floats) -> None:
        """As `Tally.compare`, of each of these rows."""
        there = np.isfinite(others_in_step)
        _co_moments_of(self._held, rows[there], _SHARED, demand[there], others_in_step[there])

    def _halve(self, rows: Rows) -> None:
        if not len(rows):
            return
        halved = [_N, _SQUARES, *(at + of for at in (_LAGGED, _SHARED) for of in (0, 3, 4, 5)), _BURSTS, _BURSTS + 1]
        self._held[rows[:, None], halved] /= 2
        self._held[rows, _FIRST_S] = (self._held[rows, _FIRST_S] + self._held[rows, _LAST_S]) / 2
        for held in (self._sums, self._counts, self._bins):
            held[rows] /= 2

    def estimates(self, rows: Rows, vcpus: Sequence[int]) -> list[Estimate]:
        """As `estimated` of each of these rows, which have windows."""
        held = self._held[rows]
        quantiles, hours_of = self._quantiles(rows).tolist(), self._hours(rows)
        counts = _by_hour(self._counts[rows], 24).tolist()
        found = []
        for at, (row, numbers) in enumerate(zip(rows.tolist(), held.tolist(), strict=True)):
            resource = self.resources[row]
            most = float(vcpus[at]) if resource == "cpu" else math.inf
            n, mean = numbers[_N], min(numbers[_MEAN], most)
            guess = max(usual_spread(mean, most), 1e-3 if resource == "cpu" else 0.0)
            spread = math.sqrt((numbers[_SQUARES] + PRIOR_WINDOWS * guess**2) / (n - 1 + PRIOR_WINDOWS))
            lagged, shared = numbers[_LAGGED:_SHARED], numbers[_SHARED:_BURSTS]
            lag, days = lag_one(lagged), max(numbers[_LAST_S] - numbers[_FIRST_S], 0.0) / 86_400
            p50, p95, p99 = (min(value, most) for value in quantiles[at])
            ran_s, executions = numbers[_BURSTS:]
            found.append(
                Estimate(
                    mean,
                    resource,
                    spread,
                    p50,
                    p95,
                    p99,
                    self.window_s,
                    self.window_s / -math.log(lag) if lag is not None and lag > 0 else None,
                    hours_of.get(at, ()),
                    counts[at] if resource == "cpu" and days < DAYS_FOR_HOURS else (),
                    common_share(shared),
                    n,
                    doubt(n, spread, mean, DAY_ONE.lag_one if lag is None else lag, days),
                    None,
                    1000 * ran_s / executions if executions >= LEAST_EXECUTIONS else None,
                    "measured",
                )
            )
        return found

    def _hours(self, rows: Rows) -> dict[int, list[float]]:
        """Factors of hours by position in `rows`, of those of which they are known."""
        held = self._held[rows]
        found: dict[int, list[float]] = {}
        with np.errstate(invalid="ignore"):  # without windows
            days = np.where(held[:, _N] > 0, np.maximum(held[:, _LAST_S] - held[:, _FIRST_S], 0.0) / 86_400, 0.0)
        known = (days >= DAYS_FOR_HOURS) & (held[:, _MEAN] > 0)
        for number, here in ((24, known & (days < DAYS_FOR_WEEK)), (HOURS, known & (days >= DAYS_FOR_WEEK))):
            places = np.flatnonzero(here)
            if len(places):
                sums, counts = (_by_hour(of[rows[places]], number) for of in (self._sums, self._counts))
                factors = (sums / held[places, _MEAN, None] + PRIOR_HOURS) / (counts + PRIOR_HOURS)
                scale = number / np.cumsum(factors, axis=1)[:, -1:]
                found.update(zip(places.tolist(), (factors * scale).tolist(), strict=True))
        return found

    def _quantiles(self, rows: Rows) -> Floats:
        """As `Tally.quantile` of each of these rows: a column for each of _QUANTILES."""
        bins, held = self._bins[rows], self._held[rows]
        reached = np.cumsum(bins, axis=1)
        found = np.empty((len(rows), len(_QUANTILES)))
        every = np.arange(len(rows))
        for column, share in enumerate(_QUANTILES):
            below = share * held[:, _N]
            enough = (reached >= below[:, None]) & (bins > 0)
            at = enough.argmax(axis=1)
            count = bins[every, at]
            before = np.where(at > 0, reached[every, at - 1], 0.0)
            low, high = _BORDERS[at], _BORDERS[at + 1]
            with np.errstate(divide="ignore", invalid="ignore"):  # where no bin has enough
                value = low + (high - low) * np.maximum(below - before, 0.0) / count
            value = np.minimum(np.maximum(value, held[:, _LEAST]), held[:, _MOST])
            found[:, column] = np.where(enough[every, at], value, held[:, _MOST])
        return found


def _parts(state: bytes) -> tuple[bytes, ...]:
    """What a state is joined of."""
    version, hours, bins = _HEAD.unpack_from(state)
    lengths = (8 * _WIDTH, hours, 2 * bins, 8 * hours, 8 * hours, 8 * bins)
    borders = [*accumulate(lengths, initial=_HEAD.size)]
    if version != _VERSION or borders[-1] != len(state):
        raise ValueError(f"{len(state)} bytes of format {version}")
    return tuple(state[begin:end] for begin, end in pairwise(borders))


def _co_moments_of(held: Floats, rows: Rows, first: int, x: Floats, y: Floats) -> None:
    """As `_co_moments`, of the six columns from `first` on in each of these rows."""
    n, mean_x, mean_y, xx, yy, xy = held[rows, first : first + 6].T
    n = n + 1
    dx, dy = x - mean_x, y - mean_y
    mean_x, mean_y = mean_x + dx / n, mean_y + dy / n
    products = (xx + dx * (x - mean_x), yy + dy * (y - mean_y), xy + dx * (y - mean_y))
    held[rows, first : first + 6] = np.stack([n, mean_x, mean_y, *products], axis=1)


def _by_hour(of_week: Floats, number: int) -> Floats:
    """Sums of the same hour of all days, in the order of days."""
    days = of_week.reshape(len(of_week), HOURS // number, number)
    total = np.zeros((len(of_week), number))
    for day in range(days.shape[1]):
        total += days[:, day]
    return total
