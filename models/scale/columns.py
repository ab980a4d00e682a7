"""Columns of a record batch as arrays: text as dictionary codes, numbers as float64; suspicious cells are marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Hashes, Ints
from models.data.tables import MAX_NUMBER

_ID = r"^[A-Za-z0-9._:-]{1,255}$"  # with the next line profiler.observed.check_id
_STEPS = r"^\.{1,2}$"
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: odd, so that multiplying loses nothing


@dataclass(frozen=True, slots=True)
class DictionaryColumn:
    """A dictionary-encoded text column: `code` (R,) is the index of each row's value in `words`."""

    words: tuple[str, ...]
    code: Ints

    def pick(self, values: Sequence[Any] | NDArray[Any], dtype: Any = None) -> NDArray[Any]:
        """One value per word as one per row; (R, ...)."""
        return np.asarray(values, dtype=dtype)[self.code]


def text(batch: pa.RecordBatch, column: str) -> pa.StringArray:
    """The cells of a column, stripped, "" where empty or where there is no such column."""
    if column not in batch.schema.names:
        return pa.repeat(pa.scalar(""), len(batch))
    cells = batch.column(column)
    if pa.types.is_null(cells.type):
        return pa.repeat(pa.scalar(""), len(batch))
    if pa.types.is_integer(cells.type) or pa.types.is_large_string(cells.type):
        cells = cells.cast(pa.string())
    elif not pa.types.is_string(cells.type):  # as Python prints it, which is what the row-by-row reader does
        few = cells.dictionary_encode()
        printed = [None if value is None else str(value) for value in few.dictionary.to_pylist()]
        cells = pa.DictionaryArray.from_arrays(few.indices, pa.array(printed, pa.string())).cast(pa.string())
    return pc.utf8_trim_whitespace(pc.fill_null(cells, ""))


def words(cells: pa.StringArray) -> DictionaryColumn:
    """Dictionary-encode a column; words are Python objects, so the column should have few distinct values."""
    few = cells.dictionary_encode()
    return DictionaryColumn(tuple(few.dictionary.to_pylist()), codes(cells))


def codes(cells: pa.StringArray) -> Ints:
    """Numbers that are equal for equal text; (R,). No Python objects are made."""
    return np.asarray(cells.dictionary_encode().indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def empty(cells: pa.StringArray) -> Bools:
    """Cells without any text; (R,)."""
    return np.asarray(pc.equal(cells, "").to_numpy(zero_copy_only=False), dtype=bool)


def unprintable(cells: pa.StringArray) -> Bools:
    """Cells that hold what cannot be printed; (R,)."""
    return ~np.asarray(pc.utf8_is_printable(cells).to_numpy(zero_copy_only=False), dtype=bool)


def no_id(cells: pa.StringArray) -> Bools:
    """Cells that are not valid ids; (R,)."""
    good = pc.and_not(pc.match_substring_regex(cells, _ID), pc.match_substring_regex(cells, _STEPS))
    return ~np.asarray(good.to_numpy(zero_copy_only=False), dtype=bool)


def numbers(batch: pa.RecordBatch, column: str) -> tuple[Floats, Bools]:
    """A column as numbers, nan = empty, and which cells are not finite numbers from 0 to MAX_NUMBER; both (R,)."""
    kind = batch.schema.field(column).type if column in batch.schema.names else pa.null()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        cells = batch.column(column).cast(pa.float64(), safe=False)
        unknown = np.asarray(cells.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        values = np.array(cells.to_numpy(zero_copy_only=False), dtype=float)
        doubtful = np.zeros(len(values), dtype=bool)
    else:
        cells = text(batch, column)
        unknown = empty(cells)
        values, doubtful = _parse(cells)
    with np.errstate(invalid="ignore"):
        fine = np.isfinite(values) & (values >= 0) & (values <= MAX_NUMBER)
    return np.where(unknown, np.nan, values), ~unknown & (doubtful | ~fine)


def _parse(cells: pa.StringArray) -> tuple[Floats, Bools]:
    """Text as numbers, nan where empty; doubtful is what Arrow does not take for a number."""
    given = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    try:
        read = given.cast(pa.float64())
        return np.array(read.to_numpy(zero_copy_only=False), dtype=float), np.zeros(len(cells), dtype=bool)
    except pa.ArrowInvalid:
        few = words(cells)
        read_one = [_number(word) for word in few.words]
        values = few.pick(read_one, float)
        return values, np.isnan(values) & ~few.pick([word == "" for word in few.words], bool)


def _number(word: str) -> float:
    try:
        return float(word if word.isascii() and "_" not in word else "nan")
    except ValueError:
        return np.nan


def hashes(cells: pa.StringArray) -> Hashes:
    """A 64-bit number per cell, equal for equal text; (R,). Of ten million texts two agree by chance one time in 10^5.

    Every byte of the column is multiplied by a number of its place in its cell, and the products of a cell are summed
    (multilinear hashing, Carter and Wegman, J. Comput. Syst. Sci. 1979), all modulo 2^64.
    """
    cells = cells.cast(pa.large_string())
    offsets = np.frombuffer(cells.buffers()[1], dtype=np.int64)[cells.offset : cells.offset + len(cells) + 1]
    data = cells.buffers()[2]
    size = int(offsets[-1] - offsets[0])
    letters = np.frombuffer(data, dtype=np.uint8, offset=int(offsets[0]), count=size) if size else np.zeros(0, np.uint8)
    ends = offsets - offsets[0]
    place = np.arange(size) - np.repeat(ends[:-1], np.diff(ends))
    factors = mixed(np.arange(int(place.max(initial=0)) + 1, dtype=np.uint64)) | np.uint64(1)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum((letters + np.uint64(1)) * factors[place])])
    return mixed(total[ends[1:]] - total[ends[:-1]])


def mixed(values: Hashes) -> Hashes:
    """Numbers spread over all 64 bits (the finaliser of SplitMix64, Steele et al., OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        values = (values + np.uint64(1)) * _MIX
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(values ^ (values >> np.uint64(31)))
