"""What `lab show` reads: every table strictly, wrong cells named, missing tables as unknown, and never a crash."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import LabError
from lab.show import analyse
from lab.show.dataset_reader import read_dataset
from tests.examples import examples
from tests.lab.lab_show_cases import Made

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made() -> Made:
    made = Made()
    for repeat in (1, 2):
        made.add("same", ("web-1k", "cpu"), (0.5, 0.8), repeat, windows=4)
        made.add("apart", ("web-1k", "disk"), (0.9, 1.0), repeat, cpus=("0", "1"))
    return made


def _change(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the text of a table, packed or not."""
    raw = path.read_bytes()
    path.write_bytes(gzip.compress(change(gzip.decompress(raw))) if path.suffix == ".gz" else change(raw))


def _spoil(path: Path, column: str, cell: str) -> None:
    """Put `cell` into a column of the second line of a table."""

    def spoiled(text: bytes) -> bytes:
        lines = text.decode().splitlines()
        cells = lines[1].split(",")
        cells[lines[0].split(",").index(column)] = cell
        return "\n".join([lines[0], ",".join(cells), *lines[2:], ""]).encode()

    _change(path, spoiled)


@pytest.mark.parametrize(
    ("table", "column", "cell"),
    [
        ("colocations.csv", "repeat", "first"),
        ("colocations.csv", "repeat", "-1"),
        ("colocations.csv", "solo", "-3"),
        ("colocations.csv", "colocated", "inf"),
        ("colocations.csv", "load", "half"),
        ("colocations.csv", "pinning", "0:9999999"),
        ("colocations.csv", "instance", ""),
        ("colocations.csv", "workload", "a\x1b[2Jb"),
        ("colocations.csv", "run", "x" * 2000),
        ("runs.csv", "disturbed", "yes"),
        ("runs.csv", "unsteady", "2"),
        ("runs.csv", "started", "yesterday"),
        ("runs.csv", "started", "0001-01-01T00:00:00+23:59"),
        ("runs.csv", "steal_percent", "nan"),
        ("outcomes.csv", "value", "nan"),
        ("outcomes.csv", "unit", "m\x07s"),
        ("series.csv.gz", "at_s", "inf"),
        ("series.csv.gz", "value", "-1"),
    ],
)
def test_a_wrong_cell_is_named_with_file_line_and_column(
    tmp_path: Path, made: Made, table: str, column: str, cell: str
) -> None:
    _spoil(made.write(tmp_path) / table, column, cell)
    with pytest.raises(LabError, match=rf"{table}, line 2, column {column}: ") as error:
        read_dataset(tmp_path)
    assert "\x1b" not in str(error.value)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path, made: Made) -> None:
    made.write(tmp_path)
    before = read_dataset(tmp_path)
    for path in tmp_path.glob("*.csv*"):  # as a spreadsheet saves them
        _change(path, lambda text: b"\xef\xbb\xbf" + text)
    assert read_dataset(tmp_path) == before


@pytest.mark.parametrize("table", ["colocations.csv", "runs.csv", "outcomes.csv", "series.csv.gz"])
def test_a_missing_column_is_named(tmp_path: Path, made: Made, table: str) -> None:
    _change(
        made.write(tmp_path) / table,
        lambda text: text.replace(b"instance", b"something", 1).replace(b"disturbed", b"else", 1),
    )
    with pytest.raises(LabError, match=rf"{table}, line 1: column (instance|disturbed) is missing"):
        read_dataset(tmp_path)


def test_an_outcome_that_stands_twice_is_refused(tmp_path: Path, made: Made) -> None:
    made.rows["colocations"].insert(1, made.rows["colocations"][0])
    with pytest.raises(LabError, match=r"line 3, column outcome: 'throughput' stands twice for web-1k\.1"):
        read_dataset(made.write(tmp_path))


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-9], lambda raw: b"no gzip", lambda raw: raw[:20] + b"\0" + raw[21:]]
)
def test_a_damaged_gzip_file_is_refused_in_one_sentence(
    tmp_path: Path, made: Made, damage: Callable[[bytes], bytes]
) -> None:
    path = made.write(tmp_path) / "series.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LabError, match=r"series\.csv\.gz"):
        read_dataset(tmp_path)


@pytest.mark.parametrize("text", ["a: [", "- a\n- b", "date: 2026-99-99", "a: &x [*x]", "\x00", "x: " + "9" * 5000])
def test_a_description_that_is_no_mapping_is_refused_or_shown(tmp_path: Path, made: Made, text: str) -> None:
    made.write(tmp_path)
    (tmp_path / "dataset.yaml").write_text(text, encoding="utf-8")
    try:
        about = read_dataset(tmp_path).about
    except LabError as error:
        assert "dataset.yaml" in str(error)
    else:
        assert all(len(value) <= 2000 for value in about.values())


@settings(max_examples=examples(60))
@given(
    text=st.text(max_size=40),
    column=st.sampled_from(["run", "instance", "pinning", "net_mode", "outcome", "solo", "repeat"]),
)
def test_whatever_stands_in_a_cell_is_shown_or_refused(tmp_path: Path, made: Made, text: str, column: str) -> None:
    path = made.write(tmp_path) / "colocations.csv"
    _spoil(path, column, '"' + text.replace('"', '""').replace("\n", " ").replace("\r", " ") + '"')
    try:
        analyse(tmp_path)
    except LabError as error:
        assert "colocations.csv" in str(error)


def test_tables_of_an_older_lab_are_enough(tmp_path: Path, made: Made) -> None:
    shown = analyse(made.write(tmp_path, only=["colocations"]))
    assert set(shown.forms) == {"same", "apart"}
    assert (shown.disturbed, shown.marks, shown.courses, shown.alone) == (None, (), {}, ())


def test_an_empty_cell_is_unknown_and_never_zero(tmp_path: Path, made: Made) -> None:
    _spoil(made.write(tmp_path) / "colocations.csv", "solo", "")
    cell = analyse(tmp_path).forms["same"].matrix["web-1k"]["cpu"]
    assert (cell.count, cell.median) == (1, 0.5)


def test_only_the_asked_workloads_and_form_are_kept(tmp_path: Path, made: Made) -> None:
    made.write(tmp_path)
    shown = analyse(tmp_path, ["web-1k", "cpu"])
    assert set(shown.forms) == {"same"}
    assert shown.runs == 2 * 3
    assert set(analyse(tmp_path, form="apart").forms["apart"].matrix) == {"web-1k", "disk"}


@pytest.mark.parametrize(
    ("workloads", "form", "message"),
    [
        (["ghost"], "", "no workload is called 'ghost': there are cpu, disk, web-1k"),
        ([], "none", "no pinning form is called 'none': there are apart, same"),
        (["cpu"], "apart", "none of these workloads ran with another of them"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, made: Made, workloads: list[str], form: str, message: str
) -> None:
    with pytest.raises(LabError, match=message):
        analyse(made.write(tmp_path), workloads, form)


def test_figures_alone_are_taken_from_solo_runs_only(tmp_path: Path, made: Made) -> None:
    made.rows["outcomes"].append(("same:web-1k:cpu", 1, "web-1k.1", "web-1k", "clock_offset", -2.5, "ms"))
    made.rows["outcomes"].append(("solo:web-1k:0", 1, "web-1k.1", "web-1k", "clock_offset", -1.5, "ms"))
    alone = analyse(made.write(tmp_path)).alone
    medians = {(outcome.label, outcome.outcome): outcome.value.median for outcome in alone}
    assert medians["web-1k", "clock_offset"] == -1.5
    assert medians["web-1k", "throughput"] == 1000


@pytest.mark.parametrize("name", ["lab-neighbours", "papers"])
def test_datasets_of_this_repository_can_be_shown(name: str) -> None:
    shown = analyse(ROOT / "datasets" / name)
    assert shown.about["origin"] in ("measured", "paper")
    assert any(form.scores for form in shown.forms.values())
