"""Rows of CSV and Parquet tables with their line numbers; cells are read strictly, and errors name file and line."""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from profiler import files

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

MOST_BYTES = 4096 * files.MEGABYTE  # of a table's text, whatever it was compressed to
ROWS_AT_ONCE = 1_000  # of a Parquet table
MOST_OF_GROUP = 256 * files.MEGABYTE
MAX_LINE = files.MEGABYTE
MAX_NUMBER = 1e15  # beyond anything measured; keeps sums and ratios finite


class DatasetError(ValueError):
    """A dataset breaks a rule; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class CellRule:
    """How a cell is read: as text, or as a `number` of at least `low`, `whole` or not. `among` lists allowed texts."""

    required: bool = False
    number: bool = False
    whole: bool = False
    low: float = 0.0
    among: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its file and line, and its cells as text ("" = empty)."""

    file: str
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, reason: str) -> DatasetError:
        """An error that points at one cell of this row."""
        return DatasetError(f"{self.file}, line {self.line}, column {column}: {reason}")

    def read(self, rules: Mapping[str, CellRule]) -> dict[str, Any]:
        """Several cells at once, by column; DatasetError at the first wrong one.

        Texts are "" where the cell is empty, numbers None.
        """
        return {column: self._read(column, rule) for column, rule in rules.items()}

    def _read(self, column: str, rule: CellRule) -> str | float | None:
        if not rule.required and not self.cells.get(column):  # most cells; the same as below, in less time
            return None if rule.number or rule.whole else ""
        if rule.whole:
            return self.whole(column, low=int(rule.low))
        if rule.number:
            return self.number(column, low=rule.low, required=rule.required)
        text = self.text(column, required=rule.required)
        if text and rule.among and text not in rule.among:
            raise self.error(column, f"{text!r} is none of {', '.join(rule.among)}")
        return text

    def text(self, column: str, *, required: bool = False) -> str:
        """The cell, stripped; DatasetError where it is required and empty, or holds what cannot be printed."""
        value = self.cells.get(column, "").strip()
        if not value.isprintable():
            raise self.error(column, f"{value[:40]!r} holds a character that cannot be printed")
        if required and not value:
            raise self.error(column, "is empty, and it is needed")
        return value

    def number(self, column: str, *, low: float | None = 0.0, required: bool = False) -> float | None:
        """The cell as a finite number of at least `low`; None where it is empty (unknown)."""
        text = self.text(column, required=required)
        if not text:
            return None
        try:
            value = float(text if text.isascii() and "_" not in text else "?")
        except ValueError:
            raise self.error(column, f"{text[:40]!r} is not a number") from None
        if not math.isfinite(value):
            raise self.error(column, f"{text[:40]!r} is not a finite number (leave the cell empty for unknown)")
        if low is not None and value < low:
            raise self.error(column, f"{text[:40]} is below {low:g}")
        if abs(value) > MAX_NUMBER:
            raise self.error(column, f"{text[:40]} is beyond {MAX_NUMBER:g}")
        return value

    def whole(self, column: str, *, low: int) -> int | None:
        """The cell as a whole number of at least `low`; None where it is empty (unknown)."""
        value = self.number(column, low=low)
        if value is not None and not value.is_integer():
            raise self.error(column, f"{value:g} is not a whole number")
        return None if value is None else int(value)


def find_table(directory: Path, name: str) -> Path | None:
    """The file of a table: `NAME.csv` or `NAME.parquet`; DatasetError for both at once and for what is not a file."""
    found = [path for suffix in (".csv", ".parquet") if os.path.lexists(path := directory / f"{name}{suffix}")]
    if len(found) > 1:
        raise DatasetError(f"{directory.name} has both {found[0].name} and {found[1].name}; keep one of them")
    if found and not found[0].is_file():
        raise DatasetError(f"{found[0].name} of {directory.name} is not a file")
    return found[0] if found else None


def read_rows(path: Path, required: Sequence[str], most_bytes: int = MOST_BYTES) -> Iterator[TableRow]:
    """Read a table row by row; DatasetError where a column is missing, the file cannot be read, or its text has more
    than `most_bytes`."""
    rows = _parquet_rows(path, most_bytes) if path.suffix == ".parquet" else _csv_rows(path, most_bytes)
    header, body = next(rows), rows
    missing = [column for column in required if column not in header.cells]
    if missing:
        raise DatasetError(f"{path.name}, line 1: column {missing[0]} is missing")
    yield from body


def _csv_rows(path: Path, most_bytes: int) -> Iterator[TableRow]:
    reader = None
    try:
        with files.open_limited(path, most_bytes, packed=path.suffix == ".gz") as file:
            reader = csv.reader(_text(file), strict=True)
            header = _header(path, [name.strip() for name in next(reader, [])])
            yield TableRow(path.name, 1, dict.fromkeys(header, ""))
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise DatasetError(
                        f"{path.name}, line {reader.line_num}: {len(cells)} cells where the header has {len(header)}"
                    )
                yield TableRow(path.name, reader.line_num, dict(zip(header, cells, strict=True)))
    except UnicodeDecodeError as error:
        line = reader.line_num + 1 if reader else 1
        raise DatasetError(f"{path.name}, line {line}: it is not UTF-8 text, {error.reason}") from None
    except files.TooLargeError as error:
        raise DatasetError(f"{path.name} is too large: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatasetError(f"{path.name} is not a whole gzip file: {error}") from None
    except csv.Error as error:
        line = reader.line_num if reader else 1
        raise DatasetError(f"{path.name}, line {line}: it is not a CSV table, {error}") from None
    except OSError as error:
        raise DatasetError(f"{path.name} cannot be read: {error.strerror}") from None


def _text(file: BinaryIO) -> Iterator[str]:
    """The lines of a file; spreadsheets write a byte order mark before the first."""
    for number, line in enumerate(files.lines(file, MAX_LINE)):
        yield line.decode("utf-8" if number else "utf-8-sig")


def _header(path: Path, names: Sequence[str]) -> Sequence[str]:
    """Check the column names; DatasetError where there are none or one occurs twice."""
    twice = {name for name, count in Counter(names).items() if count > 1}
    if not names or twice:
        reason = f"column {min(twice)} stands twice" if twice else "the file is empty, a header line is needed"
        raise DatasetError(f"{path.name}, line 1: {reason}")
    return names


def _check_size(path: Path, table: ParquetFile, most_bytes: int) -> None:
    """DatasetError where the cells of a table, or some of them that are read at once, are more than fits."""
    groups = [table.metadata.row_group(number) for number in range(table.metadata.num_row_groups)]
    most = max((group.total_byte_size for group in groups), default=0)
    if sum(group.total_byte_size for group in groups) > most_bytes or most > MOST_OF_GROUP:
        raise DatasetError(
            f"{path.name} is too large: it holds more than {files.in_words(most_bytes)}, or more than "
            f"{files.in_words(MOST_OF_GROUP)} in one group of rows"
        )


def _parquet_rows(path: Path, most_bytes: int) -> Iterator[TableRow]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        message = f"{path.name} is a Parquet table, which needs pyarrow: pip install 'cotenant[traces]'"
        raise DatasetError(message) from None
    try:
        table = parquet.ParquetFile(path)
        _check_size(path, table, most_bytes)
        names = _header(path, list(table.schema_arrow.names))
        yield TableRow(path.name, 1, dict.fromkeys(names, ""))
        line = 1
        for batch in table.iter_batches(ROWS_AT_ONCE):
            for values in batch.to_pylist():
                line += 1
                yield TableRow(
                    path.name, line, {key: "" if value is None else str(value) for key, value in values.items()}
                )
    except DatasetError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DatasetError(f"{path.name} is not a Parquet table: {error}") from None
