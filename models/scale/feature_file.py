"""Feature rows on disk as float32, written chunk by chunk and read back by lightgbm.Sequence, never all in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import lightgbm
import numpy as np
from numpy.typing import NDArray

from models.arrays import Ints

Singles = NDArray[np.float32]

READ_AT_ONCE = 16_384  # rows


class FeatureFile:
    """A temporary file of R rows of F float32 below TMPDIR: written first, then read at any position, until `close`.

    The file has no name, so nothing is left behind even when the process is killed. `monotone` (F,) goes with the
    columns, as in FeatureMatrix.
    """

    def __init__(self, monotone: NDArray[np.int8]) -> None:
        self.monotone, self.columns = monotone, len(monotone)
        self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - `close` closes it

    def append(self, x: NDArray[Any]) -> None:
        """Write rows (r, F) at the end; OSError when the disk is full."""
        self._file.write(np.ascontiguousarray(x, dtype=np.float32).tobytes())

    def seal(self) -> None:
        """End writing and allow reading."""
        self._file.flush()

    def read(self, first: int, last: int) -> Singles:
        """Rows first to last, (last - first, F). Read, not mapped: mapped pages would count as memory in use."""
        width = 4 * self.columns
        out = np.empty((last - first, self.columns), dtype=np.float32)
        view, at = memoryview(out.data).cast("B"), 0
        while at < len(view):
            got = os.preadv(self._file.fileno(), [view[at:]], first * width + at)
            if not got:
                raise OSError(f"the file of features ends before row {last}")
            at += got
        return out

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """The rows of one target: `row` (n,) their places in `file`, `residual` (n,) log(T/B / prior), and how much each
    counts, `weight` (n,), None = alike."""

    file: FeatureFile
    row: Ints
    residual: Singles
    weight: Singles | None = None

    def __len__(self) -> int:
        return len(self.row)

    @property
    def columns(self) -> int:
        """F, the number of features."""
        return self.file.columns

    def x(self, first: int, last: int) -> Singles:
        """Features of the measured rows first to last, (last - first, F)."""
        rows = self.row[first:last]
        if not len(rows):
            return np.empty((0, self.columns), dtype=np.float32)
        return np.asarray(self.file.read(int(rows[0]), int(rows[-1]) + 1)[rows - rows[0]])


class RowSequence(lightgbm.Sequence):  # type: ignore[misc]  # lightgbm has no types
    """Measured rows as a lightgbm.Sequence: read one at a time to find bins, then all in order."""

    batch_size = READ_AT_ONCE

    def __init__(self, rows: MeasuredRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, wanted: int | slice | Sequence[int]) -> NDArray[np.float64]:  # it samples doubles only
        if isinstance(wanted, slice):
            first, last, step = wanted.indices(len(self))
            return np.asarray(self._rows.x(first, max(first, last))[::step], dtype=float)
        if isinstance(wanted, (int, np.integer)):
            return np.asarray(self._rows.x(int(wanted), int(wanted) + 1)[0], dtype=float)
        return np.asarray(np.stack([self[one] for one in wanted]))
