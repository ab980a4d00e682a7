"""Packs: numbers of many series at one time as a few bytes each, and back, without a loss.

A pack is a byte that names the format, then DEFLATE (RFC 1951, in zlib's frame) of the ids in order as differences, and
of one or more columns of values. A column of figures as agents round them is kept as decimals, a mantissa and a power
of ten in 16 or 32 bits: `mantissa / 10**n` is the very number that reading its text gives, since both are exact in a
double and division rounds correctly (IEEE 754). Figures with more digits follow as doubles. Bytes of one rank stand
together, which DEFLATE likes.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

_VERSION = b"\x01"
_HEAD = struct.Struct("<IBIB")  # how many ids, of how many columns, the first id, bytes of a difference
_COLUMN = struct.Struct("<BI")  # kind, and how many doubles follow
_LEVEL = 6
_MOST = 1 << 26  # bytes unpacked: a host has some hundred series, each of 26 bytes at most
_POWERS = 10.0 ** np.arange(23)  # exact in a double
_FAR = 22


class _Kind(NamedTuple):
    """How figures of `digits` are kept: in `bits` of mantissa below the power, all in one number."""

    number: int
    dtype: Any
    bits: int
    digits: int

    @property
    def other(self) -> int:
        """What says that a double stands for it."""
        return int(np.iinfo(self.dtype).max)


_SHORT, _LONG, _DOUBLES = _Kind(1, np.uint16, 10, 3), _Kind(2, np.uint32, 26, 7), 0
_KINDS = {kind.number: kind for kind in (_SHORT, _LONG)}


class Unpackable(ValueError):  # noqa: N818 - reads as what it says at the raise
    """Bytes are no pack."""


def pack(ids: Ids, *columns: Values) -> bytes:
    """Ids, ascending and each once, with a value each in every column; none of them is nan."""
    steps = np.diff(ids)
    size = 2 if not len(steps) or int(steps.max()) < 1 << 16 else 4
    first = int(ids[0]) if len(ids) else 0
    parts = [_HEAD.pack(len(ids), len(columns), first, size), _planes(steps.astype(f"<u{size}"))]
    for column in columns:
        parts += _column(column)
    return _VERSION + zlib.compress(b"".join(parts), _LEVEL)


def unpack(data: bytes) -> tuple[Ids, list[Values]]:
    """Inverse of `pack`; Unpackable for anything else."""
    if data[:1] != _VERSION:
        raise Unpackable("a pack of samples has another format")
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(data[1:], _MOST)
        number, columns, first, size = _HEAD.unpack_from(raw)
        at = _HEAD.size
        steps, at = _from_planes(raw, at, max(number - 1, 0), f"<u{size}")
        ids = np.empty(number, np.int64)
        if number:
            ids[0] = first
            np.cumsum(steps, out=ids[1:])
            ids[1:] += first
        values = []
        for _ in range(columns):
            column, at = _read_column(raw, at, number)
            values.append(column)
    except (zlib.error, struct.error, ValueError, TypeError, IndexError, KeyError) as error:
        raise Unpackable(f"a pack of samples cannot be read: {error}") from error
    return ids, values


def merge(data: bytes, ids: Ids, values: Values) -> tuple[bytes, int]:
    """A pack of one column with more of it: what is there stays; returns how many are new."""
    former, (kept,) = unpack(data)
    all_ids, all_values = joined(former, kept, ids, values)
    number = len(all_ids) - len(former)
    return (pack(all_ids, all_values), number) if number else (data, 0)


def joined(ids: Ids, values: Values, more_ids: Ids, more: Values) -> tuple[Ids, Values]:
    """Both in order of ids; of one that both have the first value stays."""
    new = ~np.isin(more_ids, ids)
    all_ids, all_values = np.concatenate([ids, more_ids[new]]), np.concatenate([values, more[new]])
    order = np.argsort(all_ids)
    return all_ids[order], all_values[order]


def _column(values: Values) -> list[bytes]:
    """The kind that takes the fewest bytes before they are compressed."""
    best, size = None, 8 * len(values)
    for kind in (_SHORT, _LONG):
        codes, others = _decimals(values, kind)
        taken = codes.nbytes + 8 * int(others.sum())
        if taken < size:
            best, size = (kind, codes, values[others]), taken
        if not others.any():
            break
    if best is None:
        return [_COLUMN.pack(_DOUBLES, len(values)), _planes(values.astype("<f8"))]
    kind, codes, doubles = best
    return [_COLUMN.pack(kind.number, len(doubles)), _planes(codes), _planes(doubles.astype("<f8"))]


def _read_column(raw: bytes, at: int, number: int) -> tuple[Values, int]:
    kind_number, doubles = _COLUMN.unpack_from(raw, at)
    at += _COLUMN.size
    if kind_number == _DOUBLES:
        return _from_planes(raw, at, number, "<f8")
    kind = _KINDS[kind_number]
    codes, at = _from_planes(raw, at, number, np.dtype(kind.dtype).newbyteorder("<"))
    others, at = _from_planes(raw, at, doubles, "<f8")
    is_other = codes == kind.other
    codes[is_other] = 0
    values = _figures((codes & ((1 << kind.bits) - 1)).astype(np.float64), (codes >> kind.bits).astype(np.int64) - _FAR)
    values[is_other] = others
    return values, at


def _decimals(values: Values, kind: _Kind) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Each value as one number, and which values are none of so few digits."""
    there = (values > 0) & (values < np.inf)
    sized = np.where(there, values, 1.0)
    powers = np.clip(np.floor(np.log10(sized)).astype(np.int64) - (kind.digits - 1), -_FAR, _FAR)
    scale = _POWERS[np.abs(powers)]
    with np.errstate(over="ignore"):  # what overflows is no such figure
        whole = np.rint(np.where(powers < 0, sized * scale, sized / scale))
    others = (values != 0) & ((whole >= 1 << kind.bits) | (_figures(whole, powers) != values))
    codes = np.where(there, (powers + _FAR) * (1 << kind.bits) + np.minimum(whole, (1 << kind.bits) - 1), 0.0)
    codes[others] = kind.other
    return codes.astype(np.dtype(kind.dtype).newbyteorder("<")), others


def _figures(whole: Values, powers: Ids) -> Values:
    scale = _POWERS[np.abs(powers)]
    return np.where(powers < 0, whole / scale, whole * scale)


def _planes(values: NDArray[Any]) -> bytes:
    """All first bytes, then all second ones."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1).T.tobytes() if len(values) else b""


def _from_planes(raw: bytes, at: int, number: int, dtype: Any) -> tuple[NDArray[Any], int]:
    size = np.dtype(dtype).itemsize
    planes = np.frombuffer(raw, np.uint8, number * size, at).reshape(size, number)
    return planes.T.copy(order="C").reshape(-1).view(dtype), at + number * size
