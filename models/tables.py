"""Rows of CSV and Parquet tables with the line they came from, cells read strictly; nothing about what they mean."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class DatasetError(ValueError):
    """A dataset breaks a rule; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: where it stands and its cells as text, an empty text where the cell is empty."""

    file: str
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, reason: str) -> DatasetError:
        """An error that points at one cell of this row."""
        return DatasetError(f"{self.file}, line {self.line}, column {column}: {reason}")

    def text(self, column: str, *, required: bool = False) -> str:
        """The cell, stripped; DatasetError where it is required and empty."""
        value = self.cells.get(column, "").strip()
        if required and not value:
            raise self.error(column, "is empty, and it is needed")
        return value

    def number(self, column: str, *, low: float | None = 0.0, required: bool = False) -> float | None:
        """The cell as a finite number of at least `low`; None where it is empty (unknown)."""
        text = self.text(column, required=required)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"{text[:40]!r} is not a number") from None
        if not math.isfinite(value):
            raise self.error(column, f"{text[:40]!r} is not a finite number (leave the cell empty for unknown)")
        if low is not None and value < low:
            raise self.error(column, f"{text[:40]} is below {low:g}")
        return value


def find_table(directory: Path, name: str) -> Path | None:
    """The file that holds a table: `NAME.csv` or `NAME.parquet`; both at once are refused."""
    found = [path for suffix in (".csv", ".parquet") if (path := directory / f"{name}{suffix}").is_file()]
    if len(found) > 1:
        raise DatasetError(f"{directory.name} has both {found[0].name} and {found[1].name}; keep one of them")
    return found[0] if found else None


def read_rows(path: Path, required: Sequence[str]) -> Iterator[Row]:
    """Read a table row by row; DatasetError where a column is missing or the file cannot be read."""
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path)
    header, body = next(rows), rows
    missing = [column for column in required if column not in header.cells]
    if missing:
        raise DatasetError(f"{path.name}, line 1: column {missing[0]} is missing")
    yield from body


def _csv_rows(path: Path) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            twice = {name for name in header if header.count(name) > 1}
            if not header or twice:
                reason = f"column {min(twice)} stands twice" if twice else "the file is empty, a header line is needed"
                raise DatasetError(f"{path.name}, line 1: {reason}")
            yield Row(path.name, 1, dict.fromkeys(header, ""))
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise DatasetError(
                        f"{path.name}, line {reader.line_num}: {len(cells)} cells where the header has {len(header)}"
                    )
                yield Row(path.name, reader.line_num, dict(zip(header, cells, strict=True)))
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path.name} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise DatasetError(f"{path.name} is not a CSV table: {error}") from None
    except OSError as error:
        raise DatasetError(f"{path.name} cannot be read: {error.strerror}") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path)
        yield Row(path.name, 1, dict.fromkeys(table.schema_arrow.names, ""))
        line = 1
        for batch in table.iter_batches():
            for values in batch.to_pylist():
                line += 1
                yield Row(path.name, line, {key: "" if value is None else str(value) for key, value in values.items()})
    except (pyarrow.ArrowException, OSError) as error:
        raise DatasetError(f"{path.name} is not a Parquet table: {error}") from None
