"""Strict reading of table pieces from a file; errors name file, row, column and reason."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from advisor.errors import InvalidInput
from models.arrays import Floats, Ints
from profiler.names import instance_id

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
