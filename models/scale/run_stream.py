"""Reads a colocations table (CSV or Parquet) as a stream of whole runs, few rows at a time. No checks here."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from models.arrays import Hashes, Ints
from models.data.dataset import COLOCATION_COLUMNS, DatasetError
from models.data.tables import TableRow
from models.scale.columns import hashes, mixed, text

TEXTS = ("run", "platform", "instance", "workload", "pinning", "driver_cpus", "net_mode", "outcome", "unit", "repeat",
         "paper", "finding")  # fmt: skip
NUMBERS = ("load", "vcpus", "cap_percent", "weight", "net_rate_mbit", "disk_limit_mb_s", "solo", "colocated")
HEADER_LINES = 1
CSV_BLOCK = 1 << 22  # bytes of text read at once


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Whole runs that stand together in a table, R rows of K runs.

    `line` is the first row's number in the file; `start` (K + 1,) the rows at which runs begin, and R; `key` (K,) a
    hash of platform, run and repeat.
    """

    file: str
    batch: pa.RecordBatch
    line: int
    start: Ints
    key: Hashes

    def rows(self, runs: Sequence[int] | Ints) -> list[TableRow]:
        """The rows of some runs, in order, as the row-by-row reader has them."""
        places = np.concatenate([np.arange(self.start[run], self.start[run + 1]) for run in runs] or [np.zeros(0, int)])
        found = self.batch.take(pa.array(places)).to_pylist()
        cells = [{key: "" if cell is None else str(cell) for key, cell in row.items()} for row in found]
        return [TableRow(self.file, self.line + int(at), row) for at, row in zip(places, cells, strict=True)]


def read_run_batches(table: Path, rows: int) -> Iterator[RunBatch]:
    """Read a table about `rows` rows at a time; DatasetError where it cannot be read or lacks a column.

    The rows of a run must stand together, which `models.scale.first_pass` checks.
    """
    try:
        left: pa.RecordBatch | None = None
        line = HEADER_LINES + 1
        for batch in _batches(table, rows):
            joined = batch if left is None else pa.concat_batches([left, batch])
            if not len(joined):
                continue
            start, key = _runs(joined)
            cut = int(start[-1])
            if cut:
                yield RunBatch(table.name, joined.slice(0, cut), line, start, key[:-1])
            left, line = joined.slice(cut), line + cut
        if left is not None and len(left):
            yield RunBatch(table.name, left, line, np.array([0, len(left)]), _runs(left)[1])
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DatasetError):
            raise
        kind = "Parquet" if table.suffix == ".parquet" else "CSV"
        raise DatasetError(f"{table.name} is not a {kind} table: {str(error).splitlines()[0]}") from None


def count_rows(table: Path) -> int:
    """How many rows a table has, without reading its cells; an estimate from its size for CSV.

    DatasetError when it is not a table.
    """
    if table.suffix == ".parquet":
        try:
            return int(parquet.ParquetFile(table).metadata.num_rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{table.name} is not a Parquet table: {error}") from None
    with table.open("rb") as file:
        block = file.read(CSV_BLOCK)
    lines = block.count(b"\n")
    return int(table.stat().st_size * lines / len(block)) if lines else 0


def _runs(batch: pa.RecordBatch) -> tuple[Ints, Hashes]:
    """The rows at which runs begin and the hash of each run."""
    key = np.zeros(len(batch), dtype=np.uint64)
    for column in ("platform", "run", "repeat"):
        key = mixed(key + hashes(text(batch, column)))
    start = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    return start, key[start]


def _batches(table: Path, rows: int) -> Iterator[pa.RecordBatch]:
    if table.suffix == ".parquet":
        with parquet.ParquetFile(table) as file:
            used = _used(table, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=rows, columns=used, use_threads=False):
                yield _plain(batch)
        return
    with table.open(encoding="utf-8-sig", newline="") as head:
        names = [name.strip() for name in next(csv.reader(head), [])]
    used = _used(table, names)
    reader = arrow_csv.open_csv(
        table,
        read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=1, block_size=CSV_BLOCK, use_threads=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(used, pa.string()), include_columns=used, strings_can_be_null=False
        ),
    )
    for batch in reader:
        for first in range(0, len(batch), rows):
            yield batch.slice(first, rows)


def _used(table: Path, names: Sequence[str]) -> list[str]:
    """The columns that are read; DatasetError where a needed one is missing or one stands twice."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DatasetError(f"{table.name}, line 1: column {twice[0]} stands twice")
    if missing := [column for column in COLOCATION_COLUMNS if column not in names]:
        raise DatasetError(f"{table.name}, line 1: column {missing[0]} is missing")
    return [name for name in (*TEXTS, *NUMBERS) if name in names]


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionary columns: their dictionaries differ from batch to batch."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
