"""Traces are read as they are written, and what is broken is refused by file, row, column and reason."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from advisor.errors import InvalidInput
from advisor.replay import grid
from advisor.replay.grid import Trace
from advisor.replay.trace_formats import load_trace
from profiler.names import instance_id
from tests.advisor.replay.replay_cases import PUBLIC, STEP_S, write_csv, write_parquet
from tests.examples import examples

public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public traces are not at hand")
WRITERS = {"csv": write_csv, "parquet": write_parquet}


def row(instance: str = "a", step: float = 0, **cells: Any) -> dict[str, Any]:
    return {"instance": instance, "time_s": step * STEP_S, "cpu_percent": 50.0, **cells}


def many(count: int = 3, steps: int = 5) -> list[dict[str, Any]]:
    """Rows by instance, each beginning a step later and with demands of its own."""
    return [
        row(f"vm-{who}", who + step, cpu_percent=float(10 * who + step), vcpus=who + 1, memory_mb=512.0 * who,
            net_mbit=1.5 * step, workload="web" if who else "")
        for who in range(count)
        for step in range(steps)
    ]  # fmt: skip


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Instances with rows at some steps, interleaved in any order that keeps each one's time."""
    rows: list[list[dict[str, Any]]] = []
    for who in range(draw(st.integers(1, 4))):
        vcpus = draw(st.integers(1, 4))
        steps = sorted(draw(st.sets(st.integers(-20, 20), min_size=1, max_size=6)))
        percent = st.floats(0, 100 * vcpus, allow_subnormal=False)
        rows.append([row(f"vm{who}", step, cpu_percent=draw(percent), vcpus=vcpus) for step in steps])
    turns = draw(st.permutations([who for who, own in enumerate(rows) for _ in own]))
    return [rows[who].pop(0) for who in turns]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@given(rows=traces())
@settings(max_examples=examples(25))
def test_what_is_written_in_the_own_form_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, form: str, rows: list[dict[str, Any]]
) -> None:
    path = WRITERS[form](tmp_path_factory.mktemp("trace") / f"trace.{form}", rows)
    trace, unsaid = load_trace(path, interval_s=STEP_S)
    assert trace.form == form
    assert unsaid == ("memory", "network", "disk", "what the instances run")
    first = min(one["time_s"] for one in rows)
    assert list(trace.ids) == list(dict.fromkeys(one["instance"] for one in rows))
    for number, name in enumerate(trace.ids):
        own = [one for one in rows if one["instance"] == name]
        assert trace.vcpus[number] == own[0]["vcpus"]
        expected = np.full(trace.steps, np.nan)
        for here, following in zip(own, [*own[1:], None], strict=True):
            begin = round((here["time_s"] - first) / STEP_S)
            end = begin + 1 if following is None else round((following["time_s"] - first) / STEP_S)
            expected[begin:end] = here["cpu_percent"] / 100 / here["vcpus"]
        np.testing.assert_allclose(trace.cpu[:, number], expected, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return load_trace(write_csv(tmp_path_factory.mktemp("whole") / "trace.csv", many()))[0]


@given(at=st.integers(0, 14), column=st.sampled_from(list(many()[0])), text=st.text(max_size=6))
@settings(max_examples=examples(60))
def test_a_damaged_cell_is_refused_or_kept_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, whole: Trace, at: int, column: str, text: str
) -> None:
    rows = many()
    rows[at][column] = text
    try:
        trace, _ = load_trace(write_csv(tmp_path_factory.mktemp("trace") / "damaged.csv", rows))
    except InvalidInput as error:
        assert error.field in {"trace", "interval"}
        assert error.message.startswith("damaged.csv")
        return
    if column in {"cpu_percent", "net_mbit"}:
        who, step = int(rows[at]["instance"][3:]), int(rows[at]["time_s"] / STEP_S)
        assert trace.net_mbit is not None
        read = trace.cpu[step, who] * 100 * (who + 1) if column == "cpu_percent" else trace.net_mbit[step, who]
        assert read == pytest.approx(float(text), rel=1e-5, abs=1e-5)
        same = np.ones(trace.cpu.shape, dtype=bool)
        same[step, who] = False
        np.testing.assert_array_equal(trace.cpu[same], whole.cpu[same])
    elif column == "time_s":
        assert math.isfinite(float(text))
    elif column in {"vcpus", "memory_mb"}:  # a size must be what it was in other rows
        assert float(text) == many()[at][column]
    else:
        assert text == many()[at][column] if column == "workload" else instance_id(text.strip()) in trace.ids


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(step=1), row(step=0)], "row 3, column time_s: instance a goes back from 300 to 0 s"),
        ([row(), row("b"), row()], "row 4, column time_s: instance a stands twice at 0 s"),
        ([row(cpu_percent=-1)], "row 2, column cpu_percent: -1 is outside 0 to"),
        ([row(), row(step=1, cpu_percent="nan")], "row 3, column cpu_percent: it is not finite"),
        ([row(cpu_percent="1e999")], "row 2, column cpu_percent: it is not finite"),
        ([row(cpu_percent="much")], "row 2, column cpu_percent: 'much' is not a number"),
        ([row(cpu_percent="")], "row 2, column cpu_percent: it is empty"),
        ([row(cpu_percent=301, vcpus=2)], "row 2, column cpu_percent: it asks for 1.5 times the CPUs that it has"),
        ([row(vcpus=1.5)], "row 2, column vcpus: 1.5 is not a whole number"),
        ([row(vcpus=1), row(step=1, vcpus=2)], "row 3, column vcpus: instance a has 2 here and 1 before"),
        ([row(workload="x"), row(step=1, workload="")], "row 3, column workload: instance a has none here and x"),
        ([row(" ")], "row 2, column instance: it is empty"),
        ([row(step=1e300)], "row 2, column time_s: 3e+302 is outside"),
        ([row(colour="red")], "column 'colour' is none of instance, time_s"),
        ([{"instance": "a", "time_s": 0}], "exactly one of cpu_percent and cpu_mhz is needed"),
        ([{"instance": "a", "time_s": 0, "cpu_mhz": 5}], "column capacity_mhz (what cpu_mhz is a part of) is missing"),
        ([row(), row(step=1e-6)], "no instance lasts for 0.0001 of a step of 300 s; choose shorter steps"),
        ([row(), row(step=1e8)], "more than 20,000,000 cells; choose longer steps or fewer instances"),
    ],
)  # fmt: skip
def test_a_broken_trace_is_refused_with_row_column_and_reason(tmp_path: Path, rows: Sequence[Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_trace(write_csv(tmp_path / "trace.csv", rows))
    assert refused.value.message.startswith("trace.csv: ")
    assert says in refused.value.message


CUT = gzip.compress(b"instance,time_s,cpu_percent\n" + b"a,0,1\n" * 1000, mtime=0)[:-20]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.csv", b"", "looks like no trace"),
        ("header.csv", b"instance,time_s,cpu_percent\n", "trace is empty"),
        ("short.csv", b"instance,time_s,cpu_percent\na,0\n", "Row #2: Expected 3 columns, got 2"),
        ("letter.txt", b"Dear reader, all is well", "looks like no trace"),
        ("bytes.csv", b"instance,time_s\xff\xfe\n", "cannot be read as a trace"),
        ("cut.csv.gz", CUT, "cannot be read as a trace"),
        ("wrong.parquet", b"PAR1 and nothing else", "cannot be read as a trace"),
        ("planet.csv", b"vm,1,2,3\nother,4,x,6\n", "row 2, column 3: 'x' is not a number"),
        ("planet.csv", b"vm,1,2,3\nvm,4,5,6\n", "row 2, column time_s: instance vm goes back"),
        ("quote.csv", b'"instance,time_s,cpu_percent\na,0,1\n', "quote.csv cannot be read as a trace"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        load_trace(tmp_path / name)
    assert says in refused.value.message
    assert "\n" not in refused.value.message


def test_a_trace_that_is_not_there_and_a_form_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no trace"):
        load_trace(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match=r"the name 'caf\\udce9.csv' is not UTF-8; give the trace another"):
        load_trace(tmp_path / "caf\udce9.csv")  # of a disk that was written in Latin-1
    path = write_csv(tmp_path / "trace.csv", many())
    with pytest.raises(InvalidInput, match="form 'yaml' is none of bitbrains"):
        load_trace(path, form="yaml")
    with pytest.raises(InvalidInput, match="interval 0 s is outside 1 to"):
        load_trace(path, interval_s=0)


def test_a_longer_step_has_the_mean_and_a_shorter_one_what_holds_then(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "trace.csv", [row(step=step, cpu_percent=10.0 * step) for step in range(4)])
    long, short = (load_trace(path, interval_s=seconds)[0].cpu[:, 0] for seconds in (600, 150))
    np.testing.assert_allclose(long, [0.05, 0.25], rtol=1e-6)
    np.testing.assert_allclose(short, np.repeat([0.0, 0.1, 0.2, 0.3], [2, 2, 2, 1]), rtol=1e-6)


def test_a_long_step_is_the_mean_of_all_its_short_rows(tmp_path: Path) -> None:
    shares = np.random.default_rng(0).uniform(0, 1, 200_000)
    columns = {"instance": ["a"] * len(shares), "time_s": np.arange(len(shares)), "cpu_percent": 100 * shares}
    parquet.write_table(pa.table(columns), tmp_path / "trace.parquet")
    trace, _ = load_trace(tmp_path / "trace.parquet", interval_s=len(shares))
    assert float(trace.cpu[0, 0]) == pytest.approx(shares.mean(), rel=2e-5)


def test_however_a_file_is_cut_into_pieces_it_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = many(5, 40)
    paths = [write(tmp_path / f"trace.{form}", rows) for form, write in WRITERS.items()]
    whole = [load_trace(path)[0] for path in paths]
    monkeypatch.setattr(grid, "ROWS_PER_BATCH", 3)
    monkeypatch.setattr(grid, "BLOCK_BYTES", 256)
    monkeypatch.setattr(grid, "ROWS_PER_PIECE", 7)
    for path, before in zip(paths, whole, strict=True):
        after, _ = load_trace(path)
        np.testing.assert_array_equal(after.cpu, before.cpu)
        np.testing.assert_array_equal(after.net_mbit, before.net_mbit)
        assert (after.ids, after.workloads) == (before.ids, before.workloads)
    rows[103]["cpu_percent"] = "x"
    with pytest.raises(InvalidInput, match=r"row 105, column cpu_percent: 'x'"):
        load_trace(write_csv(tmp_path / "broken.csv", rows))


def test_only_the_first_instances_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MAX_CELLS", 40)
    path = write_csv(tmp_path / "trace.csv", many(20, 10))
    with pytest.raises(InvalidInput, match="fewer instances"):
        load_trace(path)
    trace, _ = load_trace(path, most_instances=3)
    assert trace.ids == ("vm-0", "vm-1", "vm-2")


def test_bitbrains_needs_its_sizes_beside_it(tmp_path: Path) -> None:
    rows = [{"id": "7", "timestamp": 600, "duration": 300_000, "cpu_usage": 500.0}]
    path = write_parquet(tmp_path / "x-trace.parquet", rows)
    with pytest.raises(InvalidInput, match=r"should be beside it in x-meta\.parquet"):
        load_trace(path)
    size = {"id": "7", "cpu_count": 2, "cpu_capacity": 2000.0, "mem_capacity": 2048}
    write_parquet(tmp_path / "x-meta.parquet", [size])
    trace, _ = load_trace(path)
    assert (trace.form, trace.vcpus.tolist(), trace.memory_mb.tolist()) == ("bitbrains", [2], [2.0])
    np.testing.assert_allclose(trace.cpu, [[0.25]])
    write_parquet(tmp_path / "x-meta.parquet", [{**size, "id": "8"}])
    with pytest.raises(InvalidInput, match="row 1, column id: instance 7 is not in the meta file"):
        load_trace(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", "instance,time_s,cpu_percent\na,0,10\na,300,20\nb,0,5\nb,300,5\n"),
        ("csv", '"instance","time_s","cpu_percent"\r\n"a","0","10"\r\n"a","300","20"\r\n"b",0,5\r\n"b",300,5\r\n'),
        ("planetlab", "a,10,20\nb,5,5\n"),
    ],
)
def test_what_a_spreadsheet_writes_before_the_first_name_and_around_names_is_no_part_of_them(
    tmp_path: Path, form: str, text: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"trace.csv{'' if pack is bytes else '.gz'}"
    path.write_bytes(pack(text.encode("utf-8-sig")))
    trace, _ = load_trace(path)
    assert (trace.form, trace.ids) == (form, ("a", "b"))
    np.testing.assert_allclose(trace.cpu, [[0.1, 0.05], [0.2, 0.05]], rtol=1e-6)


def test_a_cell_that_says_yes_or_no_is_no_number(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "trace.parquet", [row(cpu_percent=True)])
    with pytest.raises(InvalidInput, match="row 1, column cpu_percent: True is not a number"):
        load_trace(path)


def test_names_that_no_id_can_be_stay_apart(tmp_path: Path) -> None:
    """Public traces name machines in base64."""
    names = ["yJcLN/s8xA+Q==", "yJcLN+s8xA/Q==", "..", "x" * 300, "web-1"]
    path = tmp_path / "trace.csv"
    lines = [f"{name},{time_s},{10 * at}" for at, name in enumerate(names) for time_s in (0, 300)]
    path.write_text("\n".join(["instance,time_s,cpu_percent", *lines, ""]), encoding="utf-8")
    trace, _ = load_trace(path)
    assert trace.ids == tuple(map(instance_id, names))
    assert (len(set(trace.ids)), trace.ids[-1]) == (5, "web-1")
    np.testing.assert_allclose(trace.cpu[0], [0.0, 0.1, 0.2, 0.3, 0.4], rtol=1e-6)


def _day(folder: Path, **vms: list[int]) -> None:
    folder.mkdir(parents=True)
    for name, values in vms.items():
        (folder / name).write_text("".join(f"{value}\n" for value in values), encoding="ascii")


def test_planetlab_is_read_as_it_is_published_and_days_follow_each_other(tmp_path: Path) -> None:
    _day(tmp_path / "t" / "20250101", node_a=list(range(96)) * 3, node_b=[7] * 288)
    _day(tmp_path / "t" / "20250102", node_a=[50] * 288)
    _day(tmp_path / "t" / "20250105", node_a=[60] * 288, node_b=[8] * 10)
    (tmp_path / "t" / ".git").mkdir()
    trace, unsaid = load_trace(tmp_path / "t")
    assert (trace.form, trace.ids, trace.steps) == ("planetlab", ("node_a", "node_b", "node_b.20250105"), 3 * 288)
    assert "memory" in unsaid
    np.testing.assert_allclose(trace.cpu[:288, 0] * 100, list(range(96)) * 3, rtol=1e-6)
    assert np.isnan(trace.cpu[288:, 1]).all()
    assert np.isnan(trace.cpu[586:, 2]).all()
    np.testing.assert_allclose(trace.cpu[576:586, 2] * 100, [8] * 10, rtol=1e-6)
    one_day, _ = load_trace(tmp_path / "t" / "20250102")
    one_file, _ = load_trace(tmp_path / "t" / "20250102" / "node_a")
    assert one_day.ids == one_file.ids == ("node_a",)
    np.testing.assert_array_equal(one_day.cpu, one_file.cpu)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1\n2\nx\n", "20250101/vm: row 3: 'x' is not a CPU percent"),
        ("1\n-2\n", "row 2: '-2' is not"),
        ("1\n151\n", "row 2: '151' is not a CPU percent of 0-150"),
        ("", "20250101/vm has 0 lines"),
        ("1\n" * 289, "has 289 lines"),
        ("1" * 70_000, "is no file of at most 64 KiB"),
    ],
)
def test_a_broken_file_of_planetlab_is_refused_by_name_and_line(tmp_path: Path, text: str, says: str) -> None:
    _day(tmp_path / "20250101", fine=[1] * 288)
    (tmp_path / "20250101" / "vm").write_text(text, encoding="ascii")
    with pytest.raises(InvalidInput, match=says):
        load_trace(tmp_path / "20250101")


def test_only_planetlab_is_a_folder_and_days_are_not_mixed_with_files(tmp_path: Path) -> None:
    _day(tmp_path / "t" / "20250101", vm=[1] * 288)
    (tmp_path / "t" / "readme").write_text("about", encoding="ascii")
    with pytest.raises(InvalidInput, match="files beside folders"):
        load_trace(tmp_path / "t")
    with pytest.raises(InvalidInput, match="only planetlab is read from"):
        load_trace(tmp_path / "t", form="csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="the trace is empty"):
        load_trace(tmp_path / "empty")


@public
def test_bitbrains_keeps_the_work_that_its_rows_have() -> None:
    path = PUBLIC / "bitbrains-small-trace.parquet"
    trace, unsaid = load_trace(path)
    assert (trace.form, len(trace), trace.steps) == ("bitbrains", 50, 8641)
    assert trace.memory_mb.max() < 130_000
    assert "network" in unsaid
    table = parquet.read_table(path, columns=["id", "duration", "cpu_usage"])
    sizes = parquet.read_table(PUBLIC / "bitbrains-small-meta.parquet").to_pylist()
    capacity = {one["id"]: one["cpu_capacity"] for one in sizes}
    rows = zip(table["id"].to_pylist(), table["cpu_usage"].to_pylist(), strict=True)
    share = np.array([usage / capacity[name] for name, usage in rows])
    asked = float((share * table["duration"].to_numpy()).sum()) / 1000
    # 0.22 % more was read: durations are rounded, and what a row says holds until the next one begins.
    assert float(np.nansum(trace.cpu)) * STEP_S == pytest.approx(asked, rel=0.004)


@public
def test_planetlab_has_every_value_of_its_rows() -> None:
    path = PUBLIC / "planetlab-20110303.csv.gz"
    trace, _ = load_trace(path)
    with gzip.open(path, "rt") as file:
        lines = [line.strip().split(",")[1:] for line in file]
    assert (trace.form, trace.cpu.shape) == ("planetlab", (288, 1052))
    np.testing.assert_allclose(trace.cpu.T * 100, np.array(lines, dtype=float), rtol=1e-6)


@pytest.mark.parametrize("unit", ["ms", "ns"])
def test_a_time_may_be_a_timestamp_and_a_name_a_category(tmp_path: Path, unit: str) -> None:
    begin, end = (1_700_000_100_000, 1_700_000_400_000)
    if unit == "ns":  # which are finer than what is kept
        begin, end = begin * 10**6 + 1, end * 10**6 + 1
    table = pa.table(
        {
            "instance": pa.array(["a", "a"]).dictionary_encode(),
            "time_s": pa.array([begin, end], pa.timestamp(unit, "UTC")),
            "cpu_mhz": pa.array([600, 1200], pa.int32()),
            "capacity_mhz": [2400.0, 2400.0],
        }
    )
    parquet.write_table(table, tmp_path / "trace.parquet")
    trace, _ = load_trace(tmp_path / "trace.parquet")
    assert np.nansum(trace.cpu) == pytest.approx(0.75, abs=1e-6)
