"""Held-out predictions of a trained model, row by row, and their file in an artifact. The gate compares them."""

from __future__ import annotations

import csv
import gzip
import io
import math
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats
from models.data.tables import DatasetError, TableRow, read_rows
from profiler.files import MEGABYTE

HELD_OUT = "held_out.csv"  # file name in an artifact; .gz is added where it is large
TARGETS = ("throughput", "latency", "jitter", "share")
PROTOCOLS = ("unseen_campaign", "unseen_workload", "unseen_pair", "unseen_host", "newest")
COLUMNS = ("target", "protocol", "key", "platform", "pair", "measured", "prior", "expected", "lower", "upper")
LABELS, NUMBERS = COLUMNS[2:5], COLUMNS[5:]  # of each row
MOST_ROWS = 100_000  # rows kept of one table: 10 MB of text, and far more than a comparison needs
MOST_IN_ALL = 300_000  # rows of all tables
MOST_BYTES = 64 * MEGABYTE  # of text
MOST_TEXT = 1_000  # characters of a key, a platform or a pair
LARGE = 1_000_000  # bytes of text above which the file is compressed


@dataclass(frozen=True, slots=True)
class HeldOutPredictions:
    """A model's predictions for R measured rows that it was not trained on, for one target under one protocol.

    `key` (R,) identifies each row as dataset/platform/run/repeat/instance, so that two models can be compared on the
    rows they share. A key may occur twice: a row is left out once with each of its workloads. `pair` (R,) has the
    workloads of the row's run. `measured`, `prior`, `expected`, `lower` and `upper` (R,) are ratios; `upper` may be
    infinite. ValueError when lengths differ or a number is out of range.
    """

    target: str
    protocol: str
    key: tuple[str, ...]
    platform: tuple[str, ...]
    pair: tuple[str, ...]
    measured: Floats
    prior: Floats
    expected: Floats
    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        if self.target not in TARGETS or self.protocol not in PROTOCOLS:
            message = f"{self.target!r} under {self.protocol!r} is not among {TARGETS} and {PROTOCOLS}"
            raise ValueError(message)
        columns = [getattr(self, name) for name in (*LABELS, *NUMBERS)]
        if {len(column) for column in columns} != {len(self.key)}:
            raise ValueError(f"held-out rows of {self.target}, {self.protocol}: the columns differ in length")
        for name in ("measured", "prior", "expected"):
            values = getattr(self, name)
            if not (np.isfinite(values) & (values > 0)).all():
                raise ValueError(f"held-out rows of {self.target}, {self.protocol}: {name} is not above 0 everywhere")
        if not ((self.lower >= 0) & np.isfinite(self.lower) & (self.lower <= self.upper)).all():
            raise ValueError(f"held-out rows of {self.target}, {self.protocol}: lower is not between 0 and upper")

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: NDArray[np.int64]) -> HeldOutPredictions:
        """The rows with these numbers, in this order."""
        labels = {name: tuple(getattr(self, name)[row] for row in rows) for name in LABELS}
        picked: dict[str, Any] = labels | {name: getattr(self, name)[rows] for name in NUMBERS}
        return replace(self, **picked)


def write_held_out(path: Path, tables: Sequence[HeldOutPredictions]) -> Path:
    """Write tables as one CSV file, numbers with seven digits; returns its path, which is `path`.gz where it is large.

    Of a table with more than MOST_ROWS rows (less where many tables share MOST_IN_ALL), the rows whose keys have the
    smallest checksums are kept. So two models that were trained on the same data keep the same rows.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in tables:
        kept = _bounded(table, min(MOST_ROWS, MOST_IN_ALL // len(tables)))
        numbers = zip(*(getattr(kept, name).tolist() for name in NUMBERS), strict=True)
        for key, platform, pair, values in zip(kept.key, kept.platform, kept.pair, numbers, strict=True):
            cells = [_printable(one) for one in (key, platform, pair)]
            writer.writerow([table.target, table.protocol, *cells, *(_number(value) for value in values)])
    data = text.getvalue().encode()
    if len(data) <= LARGE:
        path.write_bytes(data)
        return path
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(data, 6, mtime=0))  # without a time stamp: the same model gives the same bytes
    return packed


def read_held_out(path: Path) -> tuple[HeldOutPredictions, ...]:
    """What `write_held_out(path, ...)` wrote; DatasetError (a ValueError) that names line and column otherwise."""
    packed = path.with_name(f"{path.name}.gz")
    tables: dict[tuple[str, str], _Columns] = {}
    for number, row in enumerate(read_rows(packed if packed.is_file() else path, COLUMNS, MOST_BYTES)):
        name = _among(row, "target", TARGETS), _among(row, "protocol", PROTOCOLS)
        columns = tables.setdefault(name, _Columns())
        columns.add(row)
        if len(columns.key) > MOST_ROWS or number >= MOST_IN_ALL:
            raise DatasetError(f"{row.file}, line {row.line}: over {MOST_ROWS} rows of {' '.join(name)}")
    return tuple(columns.table(target, protocol) for (target, protocol), columns in tables.items())


def held_out_of(artifact: Path) -> tuple[HeldOutPredictions, ...]:
    """The held-out predictions of an artifact, () where it has none; ValueError when they cannot be read."""
    path = artifact / HELD_OUT
    if not path.is_file() and not path.with_name(f"{HELD_OUT}.gz").is_file():
        return ()
    return read_held_out(path)


def _bounded(table: HeldOutPredictions, most: int) -> HeldOutPredictions:
    if len(table) <= most:
        return table
    order = np.argsort([zlib.crc32(key.encode()) for key in table.key], kind="stable")
    return table.take(np.sort(order[:most]))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text).strip()


def _number(value: float) -> str:
    return "" if value == math.inf else f"{value:.7g}"


@dataclass(slots=True)
class _Columns:
    """The rows of one table as they are read, in as few bytes as will do: platforms and pairs repeat."""

    key: list[str] = field(default_factory=list)
    platform: list[str] = field(default_factory=list)
    pair: list[str] = field(default_factory=list)
    numbers: array[float] = field(default_factory=lambda: array("d"))

    def add(self, row: TableRow) -> None:
        self.key.append(_short(row, "key", required=True))
        self.platform.append(sys.intern(_short(row, "platform")))
        self.pair.append(sys.intern(_short(row, "pair")))
        self.numbers.extend(_numbers(row))

    def table(self, target: str, protocol: str) -> HeldOutPredictions:
        measured, prior, expected, lower, upper = np.array(self.numbers).reshape(-1, len(NUMBERS)).T
        labels = tuple(self.key), tuple(self.platform), tuple(self.pair)
        return HeldOutPredictions(target, protocol, *labels, measured, prior, expected, lower, upper)


def _short(row: TableRow, column: str, *, required: bool = False) -> str:
    text = row.text(column, required=required)
    if len(text) > MOST_TEXT:
        raise row.error(column, f"is longer than {MOST_TEXT} characters")
    return text


def _numbers(row: TableRow) -> tuple[float, ...]:
    values = []
    for name in NUMBERS[:-1]:
        value = row.number(name, required=True)
        if not value and name != "lower":
            raise row.error(name, "is 0, a ratio is above that")
        values.append(value or 0.0)
    upper = row.number("upper")
    if upper is not None and upper < values[-1]:
        raise row.error("upper", f"{upper:g} is below lower")
    return *values, np.inf if upper is None else upper


def _among(row: TableRow, column: str, allowed: Sequence[str]) -> str:
    value = row.text(column, required=True)
    if value not in allowed:
        raise row.error(column, f"{value[:40]!r} is none of {', '.join(allowed)}")
    return value
