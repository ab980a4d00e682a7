"""Packs give back the very numbers that went in, and take few bytes for figures as agents round them."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.store import packs

figures = st.one_of(
    st.floats(allow_nan=False),
    st.floats(0, 1e16).map(lambda value: float(f"{value:.3g}")),
    st.floats(0, 1e16).map(lambda value: float(f"{value:.7g}")),
    st.just(0.0),
)
rows = st.dictionaries(st.integers(0, 2**31 - 1), st.tuples(figures, figures), max_size=40)


@given(rows=rows)
def test_what_was_packed_comes_back_bit_by_bit(rows: dict[int, tuple[float, float]]) -> None:
    ids = np.array(sorted(rows), np.int64)
    columns = [np.array([rows[number][at] for number in ids.tolist()], np.float64) for at in range(2)]
    back, values = packs.unpack(packs.pack(ids, *columns))
    assert back.tolist() == ids.tolist()
    for column, value in zip(columns, values, strict=True):
        assert (value == column).all()  # 0.0 and -0.0 are one


@given(former=rows, coming=rows)
def test_joined_packs_keep_what_was_there(
    former: dict[int, tuple[float, float]], coming: dict[int, tuple[float, float]]
) -> None:
    def packed(rows: dict[int, tuple[float, float]]) -> tuple[packs.Ids, packs.Values]:
        ids = np.array(sorted(rows), np.int64)
        return ids, np.array([rows[number][0] for number in ids.tolist()], np.float64)

    data, new = packs.merge(packs.pack(*packed(former)), *packed(coming))
    ids, (values,) = packs.unpack(data)
    expected = {**coming, **former}
    assert new == len(coming.keys() - former.keys())
    assert dict(zip(ids.tolist(), values.tolist(), strict=True)) == {key: pair[0] for key, pair in expected.items()}


@pytest.mark.parametrize(("digits", "most"), [(3, 2.0), (7, 4.0), (17, 8.2)])
def test_figures_of_few_digits_take_few_bytes(digits: int, most: float) -> None:
    chance = random.Random(1)
    values = [float(f"{math.exp(chance.gauss(0, 3)):.{digits}g}") for _ in range(485)]
    assert len(packs.pack(np.arange(1000, 1485), np.array(values))) <= most * 485 + 40


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x01", b"\x01abc", b"\x02" + packs.pack(np.arange(3), np.ones(3))[1:]]
)
def test_what_is_no_pack_is_refused(data: bytes) -> None:
    with pytest.raises(packs.Unpackable):
        packs.unpack(data)


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_damaged_pack_is_refused_or_read_but_nothing_else_happens(at: int, bit: int) -> None:
    data = bytearray(packs.pack(np.arange(100), np.linspace(0, 1, 100)))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(packs.Unpackable):
        packs.unpack(bytes(data))
