"""Aggregates trace rows into equal time steps; memory grows with the steps, not with the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from models.arrays import Floats, Floats32, Ints

MAX_CELLS = 20_000_000  # instances x steps: of each kind of demand 80 MB, and while it grows twice that
ROWS_PER_BATCH = 1_000_000  # cells that rows are added to together, at about 100 bytes each; one row may need more
MIN_COVERED = 1e-4  # of a step: less is what rounding leaves of a row that ended with the step before


@dataclass(frozen=True, slots=True)
class TraceRows:
    """R validated rows of a file.

    `names` are the instances; `who` (R,) is each row's instance, `time_s` (R,), `demands` (R, K) by kind of demand;
    `vcpus`, `memory_mb` (R,) and `workloads` (R,) are sizes and workloads, "" = unknown; `numbers` (R,) are row numbers
    in the file.
    """

    names: tuple[str, ...]
    who: Ints
    time_s: Floats
    demands: Floats
    vcpus: Floats
    memory_mb: Floats
    workloads: NDArray[Any]
    numbers: Ints


class StepGrid:
    """Means of K demands per instance and step, for the first `most_instances` instances.

    A row holds until the instance's next one; the last holds as long as the one before, at most a step. InvalidInput
    where times do not increase or a constant property changes.
    """

    def __init__(self, name: str, interval_s: float, kinds: int, most_instances: int | None = None) -> None:
        self._name, self._interval = name, interval_s
        self._most = np.inf if most_instances is None else most_instances
        self.ids: dict[str, int] = {}  # their numbers, in the order in which they came
        self.vcpus, self.memory_mb = np.zeros(0), np.zeros(0)
        self.workloads: NDArray[Any] = np.zeros(0, dtype=object)
        self._held = np.zeros((0, 1 + kinds))  # the last row of each instance: its time and demands
        self._lasts = np.zeros(0)  # seconds that the last row of each instance holds if no other comes
        self._low, self._high = 0, 0  # the steps in use, counted from time 0
        self._origin = 0  # the step of the first column
        self._cells = np.zeros((1 + kinds, 0, 0), dtype=np.float32)  # (1 + K, I, T) share of the step covered, and sums

    def add(self, rows: TraceRows) -> None:
        """Add rows, in time order for each instance."""
        code = self._codes(rows)
        known = np.flatnonzero(code >= 0)
        code = code[known]
        held = np.unique(code)
        held = held[~np.isnan(self._held[held, 0])]
        # What was held goes first, so that a stable order by instance is one by time as well.
        code = np.concatenate([held, code])
        values = np.concatenate([self._held[held], np.column_stack([rows.time_s, rows.demands])[known]])
        source = np.concatenate([np.full(len(held), -1), known])
        order = np.argsort(code, kind="stable")
        code, values, source = code[order], values[order], source[order]
        before = np.flatnonzero(code[1:] == code[:-1])
        wrong = before[values[before + 1, 0] <= values[before, 0]]
        if len(wrong):
            at = wrong[source[wrong + 1].argmin()]
            then, now, row = float(values[at, 0]), float(values[at + 1, 0]), source[at + 1]
            how = "stands twice at" if now == then else f"goes back from {then:.15g} to"
            self._fail(rows.numbers[row], "time_s", f"instance {rows.names[rows.who[row]]} {how} {now:.15g} s")
        self._spread(code[before], values[before, 0], values[before + 1, 0], values[before, 1:])
        lasts = np.minimum(values[before + 1, 0] - values[before, 0], self._interval)
        self._lasts[code[before]] = lasts  # of several the last
        last = np.append(code[1:] != code[:-1], True)[: len(code)]
        self._held[code[last]] = values[last]

    def finish(self) -> tuple[Floats32, ...]:
        """The K means, (T, I) each, nan where an instance was absent.

        InvalidInput where no instance was present for long enough.
        """
        if not self.ids:
            raise InvalidInput(f"{self._name}: the trace is empty", field="trace")
        start = self._held[:, 0]
        self._spread(np.arange(len(start)), start, start + self._lasts, self._held[:, 1:])
        steps = slice(self._low - self._origin, self._high - self._origin)
        cells = self._cells[:, : len(self.ids), steps].transpose(0, 2, 1)
        there = cells[0] > MIN_COVERED
        ends = np.flatnonzero(there.any(axis=1))
        if not len(ends):
            raise InvalidInput(
                f"{self._name}: no instance lasts for {MIN_COVERED:g} of a step of {self._interval:g} s; "
                "choose shorter steps",
                field="interval",
            )
        cells, there = cells[:, ends[0] : ends[-1] + 1], there[ends[0] : ends[-1] + 1]
        covered = np.where(there, cells[0], np.nan)
        return tuple(np.ascontiguousarray(sums / covered) for sums in cells[1:])

    def _codes(self, rows: TraceRows) -> Ints:
        """The instance number of each row, -1 beyond the maximum; constant properties are checked."""
        _, first = np.unique(rows.who, return_index=True)
        new = [at for at in np.sort(first).tolist() if rows.names[rows.who[at]] not in self.ids]
        new = new[: int(min(self._most - len(self.ids), len(new)))]
        for at in new:
            self.ids[rows.names[rows.who[at]]] = len(self.ids)
        self.vcpus = np.append(self.vcpus, rows.vcpus[new])
        self.memory_mb = np.append(self.memory_mb, rows.memory_mb[new])
        self.workloads = np.append(self.workloads, rows.workloads[new])
        self._lasts = np.append(self._lasts, np.full(len(new), self._interval))
        nothing = np.full((len(new), self._held.shape[1]), np.nan)
        self._held = np.concatenate([self._held, nothing])
        code = np.array([self.ids.get(name, -1) for name in rows.names], dtype=np.int64)[rows.who]
        for column in ("vcpus", "memory_mb", "workloads"):
            known, values = getattr(self, column), getattr(rows, column)
            other = np.flatnonzero((code >= 0) & (known[code] != values))
            if len(other):
                at = int(other[0])
                was, now = (
                    f"{value:g}" if isinstance(value, float) else value or "none"
                    for value in (known[code[at]], values[at])
                )
                text = f"instance {rows.names[rows.who[at]]} has {now} here and {was} before"
                reason = f"{text}; give an instance that changes another name"
                self._fail(rows.numbers[at], column.removesuffix("s") if column == "workloads" else column, reason)
        return code

    def _spread(self, code: Ints, start: Floats, end: Floats, demands: Floats) -> None:
        """Distribute demands (R, K) that hold from `start` to `end` over their steps."""
        if not len(code):
            return
        begin, finish = start / self._interval, end / self._interval
        first = np.floor(begin).astype(np.int64)
        count = np.maximum(np.ceil(finish).astype(np.int64) - first, 1)
        self._make_room(int(first.min()), int((first + count).max()))
        cuts = np.flatnonzero(np.diff(np.cumsum(count) // ROWS_PER_BATCH)) + 1
        for rows in np.split(np.arange(len(code)), cuts):
            self._add_up(code[rows], begin[rows], finish[rows], first[rows], count[rows], demands[rows])

    def _add_up(self, code: Ints, begin: Floats, finish: Floats, first: Ints, count: Ints, demands: Floats) -> None:
        """Add demands (R, K) to `count` steps each from step `first` on; `begin` and `finish` are in steps."""
        row = np.repeat(np.arange(len(code)), count)
        step = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        share = np.maximum(np.minimum(finish[row], step + 1) - np.maximum(begin[row], step), 0.0)
        # Rows of one cell are summed up before they are added: a float32 forgets what is small beside it.
        cell, of = np.unique(code[row] * self._cells.shape[2] + step - self._origin, return_inverse=True)
        sums = self._cells.reshape(len(self._cells), -1)
        sums[0, cell] += np.bincount(of, share)
        for kind in range(1, len(sums)):
            sums[kind, cell] += np.bincount(of, share * demands[row, kind - 1])

    def _make_room(self, low: int, high: int) -> None:
        """Grow to these steps and all instances, doubling so that it happens rarely."""
        if self._high > self._low:
            low, high = min(low, self._low), max(high, self._high)
        self._low, self._high = low, high
        count, steps = len(self.ids), high - low
        if count * steps > MAX_CELLS:
            raise InvalidInput(
                f"{self._name}: {count} instances over {steps} steps of {self._interval:g} s are more than "
                f"{MAX_CELLS:,} cells; choose longer steps or fewer instances",
                field="interval",
            )
        _, rows, width = self._cells.shape
        if count <= rows and self._origin <= low and high <= self._origin + width:
            return
        origin = self._origin
        if not (origin <= low and high <= origin + width):
            origin, width = low - steps // 2, 2 * steps
        grown = np.zeros((len(self._cells), max(rows, 2 * count), width), dtype=np.float32)
        have = slice(max(self._origin, origin), min(self._origin + self._cells.shape[2], origin + width))
        if have.stop > have.start:  # what is cut off is empty: nothing in use lies outside low to high
            grown[:, :rows, have.start - origin : have.stop - origin] = self._cells[
                :, :, have.start - self._origin : have.stop - self._origin
            ]
        self._cells, self._origin = grown, origin

    def _fail(self, row: int, column: str, reason: str) -> NoReturn:
        raise InvalidInput(f"{self._name}: row {row}, column {column}: {reason}", field="trace")
