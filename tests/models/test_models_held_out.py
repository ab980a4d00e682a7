"""Held-out predictions as text: what is written is read back, and nothing else is read."""

from __future__ import annotations

import gzip
import tracemalloc
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.tables import DatasetError
from models.learning import held_out
from models.learning.held_out import COLUMNS, HELD_OUT, HeldOutPredictions, held_out_of, read_held_out, write_held_out
from tests.models.held_out_cases import table

names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
ratios = st.floats(1e-3, 1e3)


@st.composite
def tables(draw: st.DrawFn) -> list[HeldOutPredictions]:
    """One table for some of the targets and protocols."""
    kinds = draw(st.sets(st.tuples(st.sampled_from(held_out.TARGETS), st.sampled_from(held_out.PROTOCOLS)), max_size=3))
    found = []
    for target, protocol in sorted(kinds):
        rows = draw(st.lists(st.tuples(names, names, names, *[ratios] * 5), min_size=1, max_size=5))
        keys, platforms, pairs = ([row[at] for row in rows] for at in range(3))
        numbers = np.array([row[3:] for row in rows])
        lower, upper = np.sort(numbers[:, 3:], axis=1).T
        measured, prior, expected = numbers[:, :3].T
        unbounded = draw(st.booleans())
        labels = tuple(keys), tuple(platforms), tuple(pairs)
        upper = np.full(len(rows), np.inf) if unbounded else upper
        found.append(HeldOutPredictions(target, protocol, *labels, measured, prior, expected, lower, upper))
    return found


@given(tables())
def test_what_is_written_is_read_back_to_seven_digits(written: list[HeldOutPredictions]) -> None:
    with TemporaryDirectory() as folder:
        read = read_held_out(write_held_out(Path(folder) / HELD_OUT, written))
    for one, other in zip(read, written, strict=True):
        for name in ("target", "protocol", "key", "platform", "pair"):
            assert getattr(one, name) == getattr(other, name)
        for name in held_out.NUMBERS:
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6)


def test_a_large_table_is_packed_and_the_same_bytes_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "LARGE", 1000)
    written = []
    for folder in (tmp_path / "0", tmp_path / "1"):
        folder.mkdir()
        written.append(write_held_out(folder / HELD_OUT, [table()]))
    assert [path.name for path in written] == [f"{HELD_OUT}.gz"] * 2
    assert written[0].read_bytes() == written[1].read_bytes()
    assert held_out_of(tmp_path / "0")[0].key == table().key


def test_of_a_huge_table_two_models_keep_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "MOST_ROWS", 20)
    mixed = np.random.default_rng(0).permutation(90)
    kept = []
    for number, one in enumerate((table(seed=1), table(seed=2).take(mixed))):
        (read,) = read_held_out(write_held_out(tmp_path / f"{number}.csv", [one]))
        kept.append(set(read.key))
    assert len(kept[0]) == 20
    assert kept[0] == kept[1]


def test_an_artifact_without_the_file_has_no_held_out_predictions(tmp_path: Path) -> None:
    assert held_out_of(tmp_path) == ()


def test_a_name_that_cannot_be_printed_is_written_without_what_cannot(tmp_path: Path) -> None:
    odd = replace(table(pairs=1, repeats=1), platform=("la\x1bb\n",))
    assert read_held_out(write_held_out(tmp_path / HELD_OUT, [odd]))[0].platform == ("la?b?",)


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("target", "speed", "'speed' is none of throughput"),
        ("protocol", "unseen_setting", "'unseen_setting' is none of unseen_campaign"),
        ("key", "", "is empty"),
        ("measured", "0", "is 0"),
        ("measured", "", "is empty"),
        ("prior", "nan", "not a finite number"),
        ("expected", "-0.5", "below 0"),
        ("lower", "x", "not a number"),
        ("upper", "0.1", "below lower"),
    ],
)
def test_a_cell_that_is_not_right_is_named(tmp_path: Path, column: str, cell: str, reason: str) -> None:
    path = write_held_out(tmp_path / HELD_OUT, [table(pairs=2, repeats=1)])
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = lines[2].split(",")
    cells[COLUMNS.index(column)] = cell
    path.write_text("\n".join([*lines[:2], ",".join(cells)]) + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=f"held_out.csv, line 3, column {column}: .*{reason}"):
        read_held_out(path)


def test_a_file_that_is_cut_or_foreign_is_refused(tmp_path: Path) -> None:
    path = write_held_out(tmp_path / HELD_OUT, [table()])
    whole = path.read_bytes()
    for broken in (whole[:-20], b"a,b\n1,2\n", b"", whole.replace(b"measured", b"meassured", 1), b"\xff\xfe"):
        path.write_bytes(broken)
        with pytest.raises(DatasetError, match=r"held_out\.csv, line"):
            read_held_out(path)
    packed = tmp_path / f"{HELD_OUT}.gz"
    packed.write_bytes(gzip.compress(whole)[:-30])
    with pytest.raises(DatasetError, match="not a whole gzip file"):
        read_held_out(path)


@pytest.mark.parametrize(
    "change",
    [
        {"target": "speed"},
        {"protocol": "unseen_setting"},
        {"key": ("one",)},
        {"measured": np.array([np.nan, 0.5])},
        {"expected": np.array([0.0, 0.5])},
        {"upper": np.array([0.0, 0.0])},
        {"lower": np.array([-1.0, 0.0])},
    ],
)
def test_a_table_that_makes_no_sense_cannot_be_made(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"is not among|differ in length|is not above 0|is not between"):
        replace(table(pairs=2, repeats=1), **change)  # type: ignore[arg-type]


HEADER = (",".join(COLUMNS) + "\n").encode()
ROW = b"throughput,unseen_pair,lab/p/%d/0/vm0,lab/p,a+b,0.5,0.5,0.5,0.4,0.6\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"x" * (100 * 2**20), "line 2 is longer than 1 MiB"),
        (b"\n" * (20 * 2**20), "more than 1 MiB"),
        (ROW % 1 * 3_000, "over 2000 rows of throughput unseen_pair"),
        (b"throughput,unseen_pair," + b"k" * 200_000 + b",lab/p,a+b,0.5,0.5,0.5,0.4,0.6\n", "field"),
        (b"throughput,unseen_pair," + b"k" * 2_000 + b",lab/p,a+b,0.5,0.5,0.5,0.4,0.6\n", "longer than 1000"),
    ],
)
def test_a_small_file_that_unpacks_to_a_large_one_is_refused_for_little_memory(
    tmp_path: Path, body: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out, "MOST_ROWS", 2_000)
    if b"\n\n" in body:
        monkeypatch.setattr(held_out, "MOST_BYTES", 2**20)
    path = tmp_path / f"{HELD_OUT}.gz"
    path.write_bytes(gzip.compress(HEADER + body, 6))
    assert path.stat().st_size < 2**20 * 2
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=reason):
            held_out_of(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


def test_all_tables_together_keep_only_so_many_rows_and_are_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out, "MOST_IN_ALL", 60)
    write_held_out(tmp_path / HELD_OUT, [table(protocol=one) for one in held_out.PROTOCOLS[:3]])
    assert [len(one) for one in held_out_of(tmp_path)] == [20, 20, 20]
