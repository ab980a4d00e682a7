"""Tables read as a stream give what the row-by-row reader gives: the same rows, and the same words for errors."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from models import scale
from models.data.dataset import DatasetError, load_dataset
from models.features.examples import build_examples, metrics_of
from models.learning.residual_model import target_of
from models.scale import run_stream
from models.scale.boosting import chunks
from models.scale.columns import hashes
from models.scale.first_pass import choose, survey_of
from tests.models.synthetic import COLOCATION_COLUMNS, World, write_csv

CELL = {
    "workload": st.sampled_from(["w0", "w1", "w2", "elsewhere"]),
    "load": st.sampled_from(["", "1", "0.5", "1.0", " 2 "]),
    "vcpus": st.sampled_from(["", "1", "2", "3"]),
    "pinning": st.sampled_from(["", "0:0", "0:1", "0:0-1", "0:5"]),
    "cap_percent": st.sampled_from(["", "0", "50", "150"]),
    "weight": st.sampled_from(["", "1", "256", "1024"]),
    "net_mode": st.sampled_from(["", "none", "shared", "dedicated"]),
    "net_rate_mbit": st.sampled_from(["", "0", "100", "1e3"]),
    "disk_limit_mb_s": st.sampled_from(["", "0", "20"]),
}
VALUE = st.sampled_from(["", "0", "1", "90", "100.5", "1e9", "7e-7"])
OUTCOME = st.sampled_from(["throughput", "runtime_s", "latency_mean_ms", "jitter_ms", "timeouts_percent"])
WRONG = st.sampled_from(
    [
        ("workload", "no id"), ("workload", ""), ("load", "0"), ("load", "11"), ("load", "nan"), ("load", "1_0"),
        ("vcpus", "0"), ("vcpus", "1.5"), ("vcpus", "5000"), ("pinning", "0:x"), ("pinning", "0:0|1:1|2:2|3:3"),
        ("cap_percent", "-1"), ("cap_percent", "inf"), ("weight", "0"), ("weight", "70000"), ("weight", "2.5"),
        ("net_mode", "fast"), ("net_rate_mbit", "-3"), ("disk_limit_mb_s", "many"), ("platform", "p9"),
        ("platform", ""), ("instance", "a b"), ("instance", ""), ("run", ""), ("outcome", "speed"), ("solo", "0"),
        ("solo", "1e16"), ("colocated", "-0.5"), ("unit", "\x07"), ("driver_cpus", "3-1"), ("driver_cpus", "1"),
        ("instance", "vm0"), ("net_mode", "shared"), ("repeat", "\u2028"),
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose table of co-locations every example writes anew."""
    return World(workloads=3, platforms=("p1", "p2")).write(tmp_path_factory.mktemp("stream") / "world")


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, str]]:
    """Whole runs of one to three instances with any of their outcomes; rows of an instance describe it alike."""
    rows = []
    for run in range(draw(st.integers(1, 5))):
        shared = {"run": f"r{run}", "platform": draw(st.sampled_from(["p1", "p2"]))}
        shared |= {"repeat": draw(st.sampled_from("1 ")), "driver_cpus": draw(st.sampled_from(["", "0", "0-1"]))}
        for slot in range(draw(st.integers(1, 3))):
            one = {**shared, "instance": f"vm{slot}", **{name: draw(cell) for name, cell in CELL.items()}}
            for outcome in draw(st.lists(OUTCOME, min_size=1, max_size=2, unique=True)):
                solo = draw(VALUE.filter(lambda text: text != "0"))
                rows.append({**one, "outcome": outcome, "solo": solo, "colocated": draw(VALUE), "unit": "x"})
    return rows


def rewrite(folder: Path, rows: Sequence[dict[str, str]], *, typed: bool) -> None:
    """Write the table of co-locations: CSV, or Parquet with the types that Arrow sees in it."""
    (folder / "colocations.parquet").unlink(missing_ok=True)
    write_csv(folder / "colocations.csv", rows, COLOCATION_COLUMNS)
    if typed:
        table = arrow_csv.read_csv(folder / "colocations.csv")
        (folder / "colocations.csv").unlink()
        parquet.write_table(table, folder / "colocations.parquet", row_group_size=3)


def told(action: object, *args: object) -> str | None:
    """What a reader complains about, None when it does not."""
    try:
        action(*args)  # type: ignore[operator]
    except DatasetError as error:
        return str(error)
    return None


def check_equal(folder: Path) -> None:
    """Stream and reference give the same platforms and the same rows of both targets in the same order."""
    reference, found = load_dataset(folder), survey_of(folder)
    assert dict(found.dataset.platforms) == dict(reference.platforms)
    assert len(found.key) == len(reference.colocations)
    metrics = metrics_of([reference])
    streamed = list(chunks(found, metrics))
    for target in ("throughput", "latency"):
        examples = build_examples([reference], metrics, target=target)
        residual = np.concatenate([one.residual[target] for one in streamed])
        x = np.concatenate([one.x for one in streamed])[~np.isnan(residual)]
        assert len(x) == len(examples)
        np.testing.assert_allclose(x, examples.x, rtol=1e-9)
        np.testing.assert_allclose(residual[~np.isnan(residual)], target_of(examples), rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(rows=tables(), typed=st.booleans(), at_once=st.sampled_from([1, 2, 7, 1000]))
def test_a_stream_gives_the_rows_of_the_row_by_row_reader(
    folder: Path, rows: list[dict[str, str]], typed: bool, at_once: int
) -> None:
    rewrite(folder, rows, typed=typed)
    with pytest.MonkeyPatch.context() as patch:
        real = run_stream.read_run_batches
        for module in (scale.first_pass, scale.boosting):
            patch.setattr(module, "read_run_batches", lambda table, _rows: real(table, at_once))
        complaint = told(load_dataset, folder)
        if complaint is None:
            check_equal(folder)
        else:
            assert told(survey_of, folder) == complaint


@settings(deadline=None, max_examples=50)
@given(rows=tables(), wrong=WRONG, data=st.data())
def test_a_wrong_cell_is_refused_in_the_words_of_the_row_by_row_reader(
    folder: Path, rows: list[dict[str, str]], wrong: tuple[str, str], data: st.DataObject
) -> None:
    column, cell = wrong
    rows[data.draw(st.integers(0, len(rows) - 1))][column] = cell
    rewrite(folder, rows, typed=False)
    assert told(survey_of, folder) == told(load_dataset, folder)


@pytest.mark.parametrize("typed", [False, True])
def test_a_made_up_cloud_streams_as_it_loads(tmp_path: Path, typed: bool) -> None:
    path = World(workloads=5, triples=True, latency=True, settings=("0:1", "")).write(tmp_path / "world")
    with (path / "colocations.csv").open(encoding="utf-8", newline="") as file:
        rewrite(path, list(csv.DictReader(file)), typed=typed)
    check_equal(path)


@pytest.mark.parametrize(
    "kind", [pa.float32(), pa.int64(), pa.bool_(), pa.string(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_columns_of_any_type_are_read_alike(folder: Path, kind: pa.DataType) -> None:
    rows = [{"run": "r", "platform": "p1", "instance": f"vm{at}", "workload": "w0", "outcome": "throughput",
             "solo": "2", "colocated": "1"} for at in range(2)]  # fmt: skip
    rewrite(folder, rows, typed=True)
    table = parquet.read_table(folder / "colocations.parquet")
    ones = pa.array(["1", "1"]) if pa.types.is_dictionary(kind) or pa.types.is_string(kind) else pa.array([1, 1])
    changed = ones.dictionary_encode() if pa.types.is_dictionary(kind) else ones.cast(kind)
    for column in ("load", "repeat"):
        table = table.set_column(table.schema.get_field_index(column), column, changed)
    parquet.write_table(table, folder / "colocations.parquet")
    complaint = told(load_dataset, folder)
    assert told(survey_of, folder) == complaint
    assert (complaint is not None) == pa.types.is_boolean(kind)


def test_a_run_that_goes_on_after_another_is_refused_with_its_line(tmp_path: Path) -> None:
    path = World(workloads=3).write(tmp_path / "world")
    with (path / "colocations.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rewrite(path, [*rows[1:], rows[0]], typed=True)
    with pytest.raises(DatasetError, match=rf"colocations.parquet, line {len(rows) + 1}, column run: .*stand together"):
        survey_of(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"PAR1 and no more", "is not a Parquet table"), (b"", "is not a Parquet table")],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = World(workloads=3).write(tmp_path / "world")
    (path / "colocations.csv").unlink()
    (path / "colocations.parquet").write_bytes(content)
    with pytest.raises(DatasetError, match=reason):
        scale.is_large([path])
    with pytest.raises(DatasetError, match=reason):
        survey_of(path)


def test_a_table_without_a_needed_column_is_refused(folder: Path) -> None:
    write_csv(folder / "colocations.csv", [], COLOCATION_COLUMNS[1:])
    (folder / "colocations.parquet").unlink(missing_ok=True)
    with pytest.raises(DatasetError, match=r"line 1: column run is missing"):
        survey_of(folder)


@given(st.lists(st.text(), max_size=20))
def test_hashes_are_equal_exactly_where_texts_are(texts: list[str]) -> None:
    cells = pa.array(["", *texts], pa.string()).slice(1)
    found = hashes(cells)
    for one, mine in zip(texts, found, strict=True):
        assert [mine == other for other in found] == [one == other for other in texts]


def test_a_sample_takes_whole_runs_evenly_over_pairs_and_is_drawn_by_the_seed(tmp_path: Path) -> None:
    path = World(workloads=4, repeats=5).write(tmp_path / "world")
    found = survey_of(path)
    drawn = scale.sample([found], seed=3, most=40)[0].colocations
    pairs = [tuple(sorted(str(one.instance.workload) for one in run.outcomes)) for run in drawn]
    assert all(len(run.outcomes) == 2 for run in drawn)
    assert sum(len(run.outcomes) for run in drawn) == 40
    assert {pairs.count(pair) for pair in pairs} == {2}  # ten pairs, twenty runs
    assert drawn == scale.sample([found], seed=3, most=40)[0].colocations
    assert drawn != scale.sample([found], seed=4, most=40)[0].colocations
    assert scale.sample([found], most=10_000)[0].colocations == load_dataset(path).colocations


def test_a_sample_is_shared_by_all_datasets(tmp_path: Path) -> None:
    surveys = [survey_of(World(workloads=3, seed=seed).write(tmp_path / f"world{seed}")) for seed in (1, 2)]
    keys = choose(surveys, 12, 0)
    assert [len(one) for one in keys] != [0, 0]
    assert sum(2 * len(one) for one in keys) == 12
    for one, survey in zip(keys, surveys, strict=True):
        assert np.isin(one, survey.key).all()
