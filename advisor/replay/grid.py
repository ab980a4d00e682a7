"""Trace: presence and demand of instances as arrays over equal time steps, made of tables that are read strictly."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from advisor.domain import TraceForm
from advisor.errors import InvalidInput
from models.arrays import Bools, Floats, Floats32, Ints
from profiler.names import instance_id

# Trace: presence and demand of instances as arrays over equal time steps.


@dataclass(frozen=True, slots=True)
class Trace:
    """I instances over T steps of `interval_s` seconds.

    `ids` (I) are in the file's order, `vcpus` and `memory_mb` (I,) their sizes, `workloads` (I) what each runs, None =
    unknown. `cpu` (T, I) is the mean share of its vCPUs that an instance asked for, nan where it was absent; `net_mbit`
    and `disk_mb_s` (T, I) where the trace has them.
    """

    name: str
    form: TraceForm
    interval_s: float
    ids: tuple[str, ...]
    vcpus: Ints
    memory_mb: Floats
    workloads: tuple[str | None, ...]
    cpu: Floats32
    net_mbit: Floats32 | None = None
    disk_mb_s: Floats32 | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def steps(self) -> int:
        """T."""
        return len(self.cpu)

    @property
    def present(self) -> Bools:
        """Which instances are present in each step, (T, I)."""
        return ~np.isnan(self.cpu)

    def there(self, step: int) -> Bools:
        """Which instances are present in one step, (I,); cheaper than `present`."""
        return np.asarray(~np.isnan(self.cpu[step]))

    def of(self, instances: Ints) -> Trace:
        """The trace of these instances only, over the same steps."""
        numbers = instances.tolist()
        return replace(
            self,
            ids=tuple(self.ids[number] for number in numbers),
            workloads=tuple(self.workloads[number] for number in numbers),
            vcpus=self.vcpus[instances],
            memory_mb=self.memory_mb[instances],
            cpu=self.cpu[:, instances],
            net_mbit=None if self.net_mbit is None else self.net_mbit[:, instances],
            disk_mb_s=None if self.disk_mb_s is None else self.disk_mb_s[:, instances],
        )


# Strict reading of table pieces from a file; errors name file, row, column and reason.

ROWS_PER_PIECE = 65_536
BLOCK_BYTES = 4 * 2**20  # of a text file that are parsed at once; also the longest line
MAX_CPU_SHARE = 1.5  # share of its vCPUs that an instance can ask for; turbo and rounding give a little over 1


class Cells:
    """A piece of a table whose columns are read strictly; errors name row and column."""

    def __init__(self, file: str, piece: pa.RecordBatch, first_row: int) -> None:
        self._file, self._piece, self._first = file, piece, first_row

    def __len__(self) -> int:
        return int(self._piece.num_rows)

    def numbers(self, column: str, most: float, *, least: float = 0.0, above_zero: bool = False) -> Floats:
        """A column as finite numbers from `least` to `most`; a time as seconds since 1970."""
        cells = self._piece.column(column)
        if cells.null_count:
            self.fail(int(pc.index(cells.is_null(), True).as_py()), column, "it is empty")
        if pa.types.is_boolean(cells.type):
            self.fail(0, column, f"{cells[0].as_py()} is not a number")
        if pa.types.is_timestamp(cells.type):
            micro = pc.cast(cells, pa.timestamp("us", cells.type.tz), safe=False)  # nanoseconds are cut off
            cells = pc.divide(pc.cast(micro, pa.int64()).cast(pa.float64()), 1e6)
        try:
            values = pc.cast(cells, pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowException:
            at = next((at for at, cell in enumerate(cells) if not _is_number(cell)), 0)
            text = str(cells[at].as_py())
            self.fail(at, column, f"{text[:40]!r} is not a number" if text else "it is empty")
        wrong = ~(np.isfinite(values) & (values >= least) & (values <= most))
        if above_zero:
            wrong |= values <= 0
        if wrong.any():
            at = int(wrong.argmax())
            what = "not above 0" if above_zero and values[at] <= 0 else f"outside {least:g} to {most:g}"
            self.fail(at, column, f"{values[at]:.15g} is {what}" if np.isfinite(values[at]) else "it is not finite")
        return np.asarray(values, dtype=np.float64)

    def whole(self, column: str, most: int) -> Floats:
        """A column of whole numbers from 1."""
        values = self.numbers(column, most, least=1.0)
        if (values % 1).any():
            at = int((values % 1 > 0).argmax())
            self.fail(at, column, f"{values[at]:g} is not a whole number")
        return values

    def text(self, column: str) -> NDArray[Any]:
        """A column of texts, "" for empty cells."""
        cells = self._piece.column(column)
        try:
            return np.array([cell or "" for cell in pc.cast(cells, pa.string()).to_pylist()], dtype=object)
        except pa.ArrowException:
            self.fail(0, column, f"it holds {cells.type} and no text")

    def names(self, column: str) -> tuple[tuple[str, ...], Ints]:
        """The distinct names of a column as ids (any other name gets one of its own), and the id of each row, (R,)."""
        encoded = pc.dictionary_encode(pc.cast(self._piece.column(column), pa.string()))
        if encoded.null_count:
            self.fail(int(pc.index(encoded.is_null(), True).as_py()), column, "it is empty")
        names = [str(value).strip() for value in encoded.dictionary.to_pylist()]
        who = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if "" in names:
            self.fail(int((who == names.index("")).argmax()), column, "it is empty")
        return tuple(map(instance_id, names)), who

    def row_numbers(self) -> Ints:
        """The row numbers in the file, counted from 1."""
        return self._first + np.arange(len(self))

    def check_share(self, share: Floats, column: str) -> None:
        """Reject rows that ask for more CPU than the instance has."""
        if (share > MAX_CPU_SHARE).any():
            at = int((share > MAX_CPU_SHARE).argmax())
            self.fail(at, column, f"it asks for {share[at]:.3g} times the CPUs that it has")

    def fail(self, at: int, column: str, reason: str) -> NoReturn:
        """Raise InvalidInput for the cell `at` rows down."""
        raise InvalidInput(f"{self._file}: row {self._first + at}, column {column}: {reason}", field="trace")


def _is_number(cell: pa.Scalar) -> bool:
    try:
        pc.cast(cell, pa.float64())
    except pa.ArrowException:
        return False
    return True


def first_line(path: Path) -> list[str]:
    """The cells of the first line of a CSV file, compressed or not, without a byte order mark."""
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            start = stream.read(BLOCK_BYTES)
        line = start.split(b"\n", 1)[0].decode("utf-8-sig").strip("\r")
        return next(csv.reader([line], strict=True), [])
    except (UnicodeDecodeError, csv.Error, pa.ArrowException, OSError, EOFError) as error:
        raise unreadable(path, error) from error


def text_pieces(path: Path, *, header: bool = True) -> Iterator[pa.RecordBatch]:
    """Pieces of a CSV file, compressed or not, with every cell as text.

    Without a `header`, columns are named by their numbers, from 1.
    """
    columns = first_line(path)
    names = columns if header else [str(at + 1) for at in range(len(columns))]
    with pa.input_stream(str(path), compression="detect") as stream:
        yield from arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, column_names=None if header else names
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )


def parquet_pieces(file: parquet.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Pieces of a Parquet file."""
    return iter(file.iter_batches(ROWS_PER_PIECE, columns=None if columns is None else list(columns)))


def unreadable(path: Path, error: Exception) -> InvalidInput:
    """The InvalidInput for a file that the library cannot read."""
    reason = (str(error).splitlines() or [type(error).__name__])[0].removeprefix("CSV parse error: ")
    return InvalidInput(f"{path.name} cannot be read as a trace: {reason[:200]}", field="trace")


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
