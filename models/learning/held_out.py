"""Held-out predictions of a trained model, row by row, and their file in an artifact. The gate compares them."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats
from models.data.tables import DatasetError, TableRow, read_rows

HELD_OUT = "held_out.csv"  # file name in an artifact; .gz is added where it is large
TARGETS = ("throughput", "latency", "jitter", "share")
PROTOCOLS = ("unseen_pair", "unseen_workload", "unseen_platform", "random_row", "unseen_host", "newest")
COLUMNS = ("target", "protocol", "key", "platform", "pair", "measured", "prior", "expected", "lower", "upper")
LABELS, NUMBERS = COLUMNS[2:5], COLUMNS[5:]  # of each row
MOST_ROWS = 100_000  # rows kept of one table: 10 MB of text, and far more than a comparison needs
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

    Of a table with more than MOST_ROWS rows, the rows whose keys have the smallest checksums are kept. So two models
    that were trained on the same data keep the same rows.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in tables:
        kept = _bounded(table)
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
    rows: dict[tuple[str, str], list[TableRow]] = {}
    for row in read_rows(packed if packed.is_file() else path, COLUMNS):
        name = _among(row, "target", TARGETS), _among(row, "protocol", PROTOCOLS)
        rows.setdefault(name, []).append(row)
        if len(rows[name]) > MOST_ROWS:
            raise DatasetError(f"{row.file}, line {row.line}: over {MOST_ROWS} rows of {' '.join(name)}")
    return tuple(_table(target, protocol, found) for (target, protocol), found in rows.items())


def held_out_of(artifact: Path) -> tuple[HeldOutPredictions, ...]:
    """The held-out predictions of an artifact, () where it has none; ValueError when they cannot be read."""
    path = artifact / HELD_OUT
    if not path.is_file() and not path.with_name(f"{HELD_OUT}.gz").is_file():
        return ()
    return read_held_out(path)


def _bounded(table: HeldOutPredictions) -> HeldOutPredictions:
    if len(table) <= MOST_ROWS:
        return table
    order = np.argsort([zlib.crc32(key.encode()) for key in table.key], kind="stable")
    return table.take(np.sort(order[:MOST_ROWS]))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text).strip()


def _number(value: float) -> str:
    return "" if value == math.inf else f"{value:.7g}"


def _table(target: str, protocol: str, rows: Sequence[TableRow]) -> HeldOutPredictions:
    measured, prior, expected, lower, upper = np.array([_numbers(row) for row in rows], dtype=float).T
    return HeldOutPredictions(
        target,
        protocol,
        key=tuple(row.text("key", required=True) for row in rows),
        platform=tuple(row.text("platform") for row in rows),
        pair=tuple(row.text("pair") for row in rows),
        measured=measured,
        prior=prior,
        expected=expected,
        lower=lower,
        upper=upper,
    )


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
