"""Packed tables: what is damaged is refused in one sentence, wherever the damage is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.tables import DatasetError, read_rows
from tests.examples import examples

ROWS = 4000
PACKED = gzip.compress(b"run,value\n" + b"".join(b"r%d,%d\n" % (n, n * 7919) for n in range(ROWS)), mtime=0)


def test_a_packed_table_is_read_like_a_plain_one(tmp_path: Path) -> None:
    plain, packed = tmp_path / "metrics.csv", tmp_path / "metrics.csv.gz"
    plain.write_bytes(b"\xef\xbb\xbfrun,value\nr1,7\n")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [row.cells for row in read_rows(packed, ("run",))] == [row.cells for row in read_rows(plain, ("run",))]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PACKED[: len(PACKED) // 2], "is not a whole gzip file"),
        (PACKED[:-1], "is not a whole gzip file"),
        (PACKED[:5], "is not a whole gzip file"),
        (PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], "is not a whole gzip file: CRC"),
        (b"run,value\nr1,1\n", "is not a whole gzip file: Not a gzipped file"),
        (b"", "line 1: the file is empty"),
        (gzip.compress(b"run,value\nr1,\xff\n", mtime=0), "line 2: it is not UTF-8 text"),
        (
            gzip.compress(b"run,value\n" + b"r1,1\n" * 9000 + b"\xff," * 70000, mtime=0)[:-20],
            "is not a whole gzip file",
        ),
    ],
)
def test_a_damaged_packed_table_is_refused_in_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "metrics.csv.gz"
    file.write_bytes(content)
    with pytest.raises(DatasetError, match=rf"^metrics\.csv\.gz.*{said}") as caught:
        list(read_rows(file, ("run", "value")))
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith("None")


@settings(max_examples=examples(50), deadline=None)
@given(at=st.integers(0, len(PACKED) - 1), byte=st.integers(0, 255))
def test_a_packed_table_altered_anywhere_is_read_whole_or_refused(tmp_path: Path, at: int, byte: int) -> None:
    file = tmp_path / "metrics.csv.gz"
    file.write_bytes(PACKED[:at] + bytes([byte]) + PACKED[at + 1 :])
    try:
        assert len(list(read_rows(file, ("run", "value")))) == ROWS
    except DatasetError as error:
        assert str(error).startswith("metrics.csv.gz")
