"""Dataset directories: what is read, and that everything broken is refused with file, line, column and reason."""

from __future__ import annotations

import gc
import re
from dataclasses import fields
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.dataset import Dataset, DatasetError, load_dataset, throughput_ratio
from models.features.examples import build_examples, further_metrics, measured
from profiler.observed import Host, Instance, NetworkSettings, Outcome, Pinning
from tests.examples import examples
from tests.models.synthetic import COLOCATION_COLUMNS, PLATFORM_COLUMNS, PROFILE_COLUMNS, World

PAPERS = Path(__file__).resolve().parents[2] / "datasets" / "papers"
PLATFORM = {"platform": "p", "kind": "xen", "pcpus": "2", "memory_mb": "4096", "nic_mbit": "100"}
PROFILE = {"platform": "p", "workload": "w", "load": "1", "scope": "instance", "metric": "cpu", "value": "50"}
COLOCATION = {
    "run": "r", "platform": "p", "instance": "vm1", "workload": "w", "load": "1", "vcpus": "2", "pinning": "0:0|1:1",
    "outcome": "throughput", "solo": "100", "colocated": "60", "unit": "req/s", "repeat": "1",
}  # fmt: skip
DESCRIPTION = "name: tiny\norigin: measured\ndate: 2026-01-02\n"

Rows = list[dict[str, str]]


def text(columns: tuple[str, ...], rows: Rows) -> str:
    """A CSV table."""
    return "\n".join([",".join(columns), *(",".join(row.get(key, "") for key in columns) for row in rows)]) + "\n"


def write(path: Path, **tables: Rows | str | bytes | None) -> Path:
    """A dataset directory of the rows above, with some of its files replaced (None = left out)."""
    default: dict[str, Rows | str | bytes | None] = {
        "dataset": DESCRIPTION, "platforms": [PLATFORM], "profiles": [PROFILE], "colocations": [COLOCATION],
    }  # fmt: skip
    columns = {"platforms": PLATFORM_COLUMNS, "profiles": PROFILE_COLUMNS, "colocations": COLOCATION_COLUMNS}
    path.mkdir(exist_ok=True)
    for name, value in {**default, **tables}.items():
        content = text(columns[name], value) if isinstance(value, list) else value
        file = path / f"{name}.{'yaml' if name == 'dataset' else 'csv'}"
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, **tables: Rows | str | bytes | None) -> str:
    """What is said of such a dataset."""
    with pytest.raises(DatasetError) as caught:
        load_dataset(write(path, **tables))
    return str(caught.value)


# what is read


def test_a_dataset_is_read_into_the_words_of_the_profiler(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "tiny"))
    assert (data.name, data.origin, data.meta["date"]) == ("tiny", "measured", "2026-01-02")
    assert data.platforms["p"].pcpus == 2
    assert data.platforms["p"].platform == "p"
    assert data.profiles[0].metrics == {"cpu": 50.0}
    (colocation,) = data.colocations
    (outcome,) = colocation.outcomes
    assert outcome.instance.settings.pinning == Pinning(((0,), (1,)))
    assert measured(colocation, "throughput") == {"vm1": 0.6}


@pytest.mark.parametrize(
    ("measured_at", "cpu"),
    [
        pytest.param({"0.5": ["7"], "1": ["10", "30", "11"], "2": ["12"]}, 11.5, id="median-at-the-highest-load"),
        pytest.param({"0": ["1"], "0.5": ["20"]}, 20.0, id="no-load-is-not-saturation"),
        pytest.param({"": ["40"], "0.9": ["20"]}, 40.0, id="an-unknown-load-is-saturation"),
    ],
)
def test_a_profile_is_what_was_measured_at_the_highest_load(
    tmp_path: Path, measured_at: dict[str, list[str]], cpu: float
) -> None:
    rows = [{**PROFILE, "load": load, "value": value} for load, values in measured_at.items() for value in values]
    assert load_dataset(write(tmp_path, profiles=rows)).profiles[0].metrics == {"cpu": cpu}


def test_shares_of_the_host_become_shares_of_one_cpu(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, profiles=[{**PROFILE, "unit": "% of host"}]))
    assert data.profiles[0].metrics == {"cpu": 100.0}


def test_any_metric_in_any_scope_is_kept(tmp_path: Path) -> None:
    rows = [PROFILE, {**PROFILE, "scope": "driver_domain"}, {**PROFILE, "metric": "bubble_32mb"},
            {**PROFILE, "scope": "host", "metric": "event"},
            {**PROFILE, "scope": "", "metric": "llc_misses"}]  # fmt: skip
    data = load_dataset(write(tmp_path, profiles=rows))
    assert set(data.profiles[0].metrics) == {"cpu", "driver_domain.cpu", "bubble_32mb", "event", "llc_misses"}


def test_an_empty_cell_is_unknown(tmp_path: Path) -> None:
    row = {key: COLOCATION[key] for key in ("run", "platform", "instance", "workload", "outcome", "solo")}
    (outcome,) = load_dataset(write(tmp_path, colocations=[row])).colocations[0].outcomes
    assert outcome.colocated is None
    assert outcome.instance == Instance("vm1", workload="w")


def test_an_instance_with_unknown_vcpus_has_as_many_as_are_pinned(tmp_path: Path) -> None:
    row = {**COLOCATION, "vcpus": "", "pinning": "0:0|1:0-1|2:1"}
    assert load_dataset(write(tmp_path, colocations=[row])).colocations[0].outcomes[0].instance.vcpus == 3


def test_a_platform_has_at_least_the_cpus_that_instances_are_pinned_to(tmp_path: Path) -> None:
    rows = [{**COLOCATION, "pinning": "0:0-5|1:3", "driver_cpus": "6"}]
    assert load_dataset(write(tmp_path, colocations=rows)).platforms["p"].pcpus == 7


def test_rows_of_one_run_and_repeat_are_one_colocation(tmp_path: Path) -> None:
    rows = [COLOCATION, {**COLOCATION, "instance": "vm2"}, {**COLOCATION, "repeat": "2"},
            {**COLOCATION, "outcome": "latency_mean_ms"}]  # fmt: skip
    data = load_dataset(write(tmp_path, colocations=rows))
    assert [len(one.outcomes) for one in data.colocations] == [3, 1]


def test_settings_are_read(tmp_path: Path) -> None:
    row = {**COLOCATION, "cap_percent": "50", "weight": "512", "net_mode": "dedicated", "net_rate_mbit": "10",
           "disk_limit_mb_s": "20"}  # fmt: skip
    found = load_dataset(write(tmp_path, colocations=[row])).colocations[0].outcomes[0].instance.settings
    assert (found.cap_percent, found.weight, found.disk_limit_mb_s) == (50.0, 512, 20.0)
    assert found.network == NetworkSettings("dedicated", 10.0)


def test_blank_lines_spaces_quotes_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    plain = load_dataset(write(tmp_path / "plain"))
    body = text(COLOCATION_COLUMNS, [{**COLOCATION, "run": ' "r" '.strip(), "solo": " 100 "}]).replace("\n", "\r\n\r\n")
    other = load_dataset(write(tmp_path / "other", colocations="\ufeff" + body))
    assert other.colocations == plain.colocations


def test_further_columns_of_platforms_are_kept_where_they_hold_numbers(tmp_path: Path) -> None:
    table = (
        "platform,kind,pcpus,memory_mb,tlb_mb,vendor,numa\n"
        "p,xen,2,4096,8,Intel,\nq,kvm,4,8192,,AMD,2\nr,kvm,4,8192,0.5,7,1\n"
    )
    data = load_dataset(write(tmp_path / "d", platforms=table))
    assert data.platform_numbers == {"p": {"tlb_mb": 8.0}, "q": {"numa": 2.0}, "r": {"tlb_mb": 0.5, "numa": 1.0}}
    assert load_dataset(write(tmp_path / "e")).platform_numbers == {"p": {}}


def test_nodes_of_a_platform_are_equal_blocks_of_its_cpus(tmp_path: Path) -> None:
    table = "platform,kind,pcpus,memory_mb,numa_nodes\np,xen,4,4096,2\nq,kvm,4,8192,1\nr,kvm,4,8192,\n"
    data = load_dataset(write(tmp_path / "d", platforms=table))
    assert {name: one.numa for name, one in data.platforms.items()} == {"p": ((0, 1), (2, 3)), "q": (), "r": ()}
    assert data.platform_numbers == {"p": {}, "q": {}, "r": {}}


@pytest.mark.parametrize("cells", ["4,0", "4,1.5", "4,3", ",2", "4,8", "4,two", "4,nan"])
def test_nodes_that_cannot_be_equal_blocks_are_refused_by_line_and_column(cells: str, tmp_path: Path) -> None:
    table = f"platform,kind,memory_mb,pcpus,numa_nodes\np,xen,4096,4,2\nq,kvm,8192,{cells}\n"
    said = refusal(tmp_path / "d", platforms=table)
    assert "platforms.csv, line 3, column numa_nodes" in said


def test_nodes_may_be_listed_in_any_numbering(tmp_path: Path) -> None:
    table = 'platform,kind,pcpus,memory_mb,numa_cpus\np,kvm,4,4096,"0,2;1,3"\nq,kvm,4,8192,0-3\nr,kvm,4,8192,\n'
    data = load_dataset(write(tmp_path / "d", platforms=table))
    assert {name: one.numa for name, one in data.platforms.items()} == {"p": ((0, 2), (1, 3)), "q": (), "r": ()}
    for cells in ('"0,2;2,3"', '"0-1;2-4"', "0-1;two", "0-1;"):
        said = refusal(tmp_path / f"bad{len(cells)}{cells[3]}", platforms=table.replace('"0,2;1,3"', cells))
        assert "platforms.csv, line 2, column numa_cpus" in said


def test_cores_with_several_threads_may_be_listed(tmp_path: Path) -> None:
    table = 'platform,kind,pcpus,memory_mb,siblings\np,kvm,6,4096,"0,1;2,3"\nq,kvm,4,8192,\n'
    data = load_dataset(write(tmp_path / "d", platforms=table))
    assert {name: one.siblings for name, one in data.platforms.items()} == {"p": ((0, 1), (2, 3)), "q": ()}
    said = refusal(tmp_path / "bad", platforms=table.replace("2,3", "1,3"))
    assert "platforms.csv, line 2, column siblings" in said


def test_a_word_in_a_column_of_numbers_is_named_by_line_and_column(tmp_path: Path) -> None:
    table = "platform,kind,pcpus,memory_mb,tlb_mb\np,xen,2,4096,8\nq,kvm,4,8192,many\n"
    said = refusal(tmp_path / "d", platforms=table)
    assert "platforms.csv, line 3" in said
    assert "tlb_mb" in said
    assert "many" in said


def test_numbers_of_platforms_are_metrics_beside_those_of_profiles(tmp_path: Path) -> None:
    table = "platform,kind,pcpus,memory_mb,tlb_mb\np,xen,2,4096,8\n"
    data = load_dataset(write(tmp_path / "d", platforms=table))
    assert further_metrics([data]) == ()
    examples = build_examples([data], further_metrics([data]))
    assert examples.key == ("tiny/p/r/1/vm1",)


def test_tables_of_profiles_and_colocations_may_be_missing(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, profiles=None, colocations=None))
    assert data.profiles == ()
    assert data.colocations == ()


def test_tables_may_have_no_rows(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, platforms=[], profiles=[], colocations=[]))
    assert (data.platforms, data.profiles, data.colocations) == ({}, (), ())
    assert len(build_examples([data], further_metrics([data]))) == 0


@pytest.mark.parametrize(
    ("outcome", "solo", "colocated", "ratio"),
    [
        ("throughput", 100.0, 60.0, 0.6),
        ("runtime_s", 10.0, 20.0, 0.5),
        ("latency_mean_ms", 2.0, 8.0, 0.25),
        ("throughput", 100.0, 0.0, 0.0),
        ("runtime_s", 10.0, 0.0, None),
        ("throughput", None, 5.0, None),
        ("throughput", 5.0, None, None),
    ],
)
def test_the_throughput_ratio_is_below_one_where_the_neighbour_hurts(
    outcome: str, solo: float | None, colocated: float | None, ratio: float | None
) -> None:
    assert throughput_ratio(Outcome(Instance("a"), outcome, solo, colocated, "")) == ratio


def test_measured_ratios_stay_within_what_has_a_logarithm(tmp_path: Path) -> None:
    rows = [{**COLOCATION, "colocated": "0"}, {**COLOCATION, "repeat": "2", "solo": "1e-15", "colocated": "1e15"}]
    data = load_dataset(write(tmp_path, colocations=rows))
    assert [measured(one, "throughput")["vm1"] for one in data.colocations] == [1e-3, 1e3]


def test_a_throughput_counts_before_a_run_time_of_the_same_instance(tmp_path: Path) -> None:
    rows = [{**COLOCATION, "outcome": "runtime_s", "colocated": "400"}, COLOCATION]
    (colocation,) = load_dataset(write(tmp_path, colocations=rows)).colocations
    assert measured(colocation, "throughput") == {"vm1": 0.6}


def test_the_papers_dataset_loads() -> None:
    data = load_dataset(PAPERS)
    assert data.origin == "paper"
    assert len(build_examples([data], further_metrics([data]))) > 40


# what is refused

CELLS = [
    ("colocations", "solo", "nan", "is not a finite number"),
    ("colocations", "colocated", "inf", "is not a finite number"),
    ("colocations", "solo", "1e400", "is not a finite number"),
    ("colocations", "solo", "many", "'many' is not a number"),
    ("colocations", "solo", "1_000", "is not a number"),
    ("colocations", "solo", "٣", "is not a number"),
    ("colocations", "solo", "-1", "is below 0"),
    ("colocations", "solo", "1e16", "is beyond 1e+15"),
    ("colocations", "solo", "0", "a ratio to it has no meaning"),
    ("colocations", "load", "0", "is 0"),
    ("colocations", "load", "-0.5", "is below 0"),
    ("colocations", "platform", "q", "'q' is not in the platforms table"),
    ("colocations", "platform", "", "is empty, and it is needed"),
    ("colocations", "run", "", "is empty, and it is needed"),
    ("colocations", "run", "a\x00b", "cannot be printed"),
    ("colocations", "instance", "", "is empty, and it is needed"),
    ("colocations", "instance", "a b", "is not 1-255 letters"),
    ("colocations", "instance", "x" * 256, "is not 1-255 letters"),
    ("colocations", "workload", "w|w", "is not 1-255 letters"),
    ("colocations", "workload", "a+b", "is not 1-255 letters"),  # reads as a pair
    ("colocations", "workload", "größe", "is not 1-255 letters"),
    ("colocations", "outcome", "speed", "'speed' is none of throughput"),
    ("colocations", "pinning", "0-1", "is not vCPU:pCPUs"),
    ("colocations", "pinning", "0:3-1|1:0", "runs backwards"),
    ("colocations", "pinning", "0:9999|1:0", "beyond CPU 4095"),
    ("colocations", "pinning", "0:0|0:1", "stands twice"),
    ("colocations", "pinning", "0:0|2:1", "not numbered from 0 without gaps"),
    ("colocations", "pinning", "0:0|1:1|2:1", "names 3 vCPUs of an instance that has 2"),
    ("colocations", "driver_cpus", "1-", "is not a number or a range"),
    ("colocations", "vcpus", "1.5", "is not a whole number"),
    ("colocations", "vcpus", "0", "is below 1"),
    ("colocations", "weight", "0", "is below 1"),
    ("colocations", "weight", "70000", "is above 65535"),
    ("colocations", "net_mode", "open", "'open' is none of none, shared, dedicated"),
    ("profiles", "value", "", "is empty, and it is needed"),
    ("profiles", "value", "nan", "is not a finite number"),
    ("profiles", "value", "-3", "is below 0"),
    ("profiles", "value", "fast", "is not a number"),
    ("profiles", "scope", "guest", "'guest' is none of instance, driver_domain, host"),
    ("profiles", "metric", "", "is empty, and it is needed"),
    ("profiles", "workload", "a/b", "is not 1-255 letters"),
    ("profiles", "platform", "q", "'q' is not in the platforms table"),
    ("platforms", "platform", "", "is empty, and it is needed"),
    ("platforms", "platform", "two words", "is not 1-255 letters"),
    ("platforms", "kind", "", "is empty, and it is needed"),
    ("platforms", "pcpus", "0", "is below 1"),
    ("platforms", "pcpus", "2.5", "is not a whole number"),
    ("platforms", "memory_mb", "lots", "is not a number"),
]


@pytest.mark.parametrize(("table", "column", "cell", "reason"), CELLS)
def test_a_broken_cell_is_named_by_file_line_and_column(
    tmp_path: Path, table: str, column: str, cell: str, reason: str
) -> None:
    good = {"platforms": PLATFORM, "profiles": PROFILE, "colocations": COLOCATION}[table]
    keeps = {"platforms": "platform", "profiles": "workload", "colocations": "instance"}[table]
    said = refusal(tmp_path, **{table: [{**good, keeps: "other"}, {**good, column: cell}]})
    assert said.startswith(f"{table}.csv, line 3, column {column}: ")
    assert reason in said
    assert len(said) < 400


LINES = [
    ("colocations", "run,platform\n", "colocations.csv, line 1: column instance is missing"),
    ("platforms", "platform\np\n", "platforms.csv, line 1: column kind is missing"),
    ("colocations", "", "colocations.csv, line 1: the file is empty"),
    ("colocations", ",".join((*COLOCATION_COLUMNS, "run")) + "\n", "colocations.csv, line 1: column run stands twice"),
    ("colocations", ",".join(COLOCATION_COLUMNS) + "\nr,p\n", "colocations.csv, line 2: 2 cells where the header"),
    ("profiles", ",".join(PROFILE_COLUMNS) + "\n" + "," * 20 + "\n", "profiles.csv, line 2: 21 cells where"),
    ("profiles", ",".join(PROFILE_COLUMNS) + '\n"p,w', "profiles.csv, line 2: it is not a CSV table"),
    ("profiles", ",".join(PROFILE_COLUMNS) + "\np," + "w" * 140_000, "profiles.csv, line 2: it is not a CSV table"),
    ("profiles", ",".join(PROFILE_COLUMNS).encode() + b"\n" + b"p,w,1,instance,cpu,1,,\n" * 900 + b"p,\xff",
     "profiles.csv, line 902: it is not UTF-8 text"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "content", "said"), LINES)
def test_a_broken_table_is_named_by_file_and_line(tmp_path: Path, table: str, content: str | bytes, said: str) -> None:
    assert refusal(tmp_path, **{table: content}).startswith(said)


def test_an_outcome_that_stands_twice_names_both_lines(tmp_path: Path) -> None:
    said = refusal(tmp_path, colocations=[COLOCATION, {**COLOCATION, "repeat": "2"}, {**COLOCATION, "colocated": "70"}])
    assert said == "colocations.csv, line 4, column outcome: throughput of vm1 stands in line 2 already"


def test_a_platform_that_stands_twice_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, platforms=[PLATFORM, PLATFORM]) == "platforms.csv, line 3, column platform: p stands twice"


def test_two_descriptions_of_one_instance_in_one_run_are_refused(tmp_path: Path) -> None:
    rows = [COLOCATION, {**COLOCATION, "outcome": "latency_mean_ms", "workload": "other"}]
    assert "line 3, column instance: vm1 is described otherwise" in refusal(tmp_path, colocations=rows)


def test_two_descriptions_of_one_driver_domain_in_one_run_are_refused(tmp_path: Path) -> None:
    rows = [{**COLOCATION, "driver_cpus": "0"}, {**COLOCATION, "instance": "vm2"}]
    assert "line 3, column driver_cpus: another line of run r says otherwise" in refusal(tmp_path, colocations=rows)


DESCRIPTIONS = [
    ("", "it must be a mapping"),
    ("- name: x\n", "it must be a mapping"),
    ("origin: paper\n", "field name is missing or not a text"),
    ("name: 3\norigin: paper\n", "field name is missing or not a text"),
    ("name: ' '\norigin: paper\n", "field name is missing or not a text"),
    ("name: x\n", "field origin is missing"),
    ("name: x\norigin: hearsay\n", "origin 'hearsay' is none of paper, measured, simulated"),
    ("name: x\norigin: paper\nlearn: maybe\n", "field learn must be true or false, not 'maybe'"),
    ("name: x\norigin: paper\nnotes: [\n", "dataset.yaml, line 4"),
    ("name: x\norigin: paper\ndate: 2026-99-99\n", "holds a value that cannot be read"),
    ("name: x\norigin: paper\nn: !!int ''\n", "holds a value that cannot be read"),
    ("name: x\norigin: paper\nn: !!python/object/apply:os.getcwd []\n", "dataset.yaml, line 3"),
    (b"name: \xff\n", "cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), DESCRIPTIONS)
def test_a_broken_description_is_refused(tmp_path: Path, content: str | bytes, reason: str) -> None:
    said = refusal(tmp_path, dataset=content)
    assert "dataset.yaml" in said
    assert reason in said


def test_a_description_nested_without_end_is_refused(tmp_path: Path) -> None:
    gc.collect()  # finalizers of what other tests left would fail in the depth of this recursion
    said = refusal(tmp_path, dataset="[" * 1000 + "]" * 1000)
    assert "dataset.yaml" in said
    assert "holds a value that cannot be read" in said


def test_a_missing_description_and_missing_platforms_are_named(tmp_path: Path) -> None:
    assert "has no dataset.yaml" in refusal(tmp_path, dataset=None)
    assert "has no platforms.csv or platforms.parquet" in refusal(tmp_path, platforms=None)


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "nowhere"):
        with pytest.raises(DatasetError, match="is not a dataset directory"):
            load_dataset(path)


def test_a_table_that_is_a_directory_or_a_dead_link_is_not_taken_for_no_table(tmp_path: Path) -> None:
    write(tmp_path, colocations=None)
    (tmp_path / "colocations.csv").mkdir()
    with pytest.raises(DatasetError, match=r"colocations\.csv of .* is not a file"):
        load_dataset(tmp_path)
    (tmp_path / "colocations.csv").rmdir()
    (tmp_path / "colocations.csv").symlink_to("nowhere")
    with pytest.raises(DatasetError, match="is not a file"):
        load_dataset(tmp_path)


def test_a_table_in_both_formats_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "profiles.parquet").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"has both profiles\.csv and profiles\.parquet"):
        load_dataset(tmp_path)


# Parquet


def as_parquet(path: Path, target: Path, numbers: dict[str, type]) -> Path:
    """The same dataset with its tables as Parquet, the columns `numbers` with numbers in them."""
    target.mkdir()
    (target / "dataset.yaml").write_bytes((path / "dataset.yaml").read_bytes())
    for name in ("platforms", "profiles", "colocations"):
        header, *lines = (path / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        cells = list(zip(*(line.split(",") for line in lines), strict=True))
        columns = {
            key: [None if not cell else numbers.get(key, str)(cell) for cell in column]
            for key, column in zip(header.split(","), cells, strict=True)
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), target / f"{name}.parquet")
    return target


def contents(data: Dataset) -> dict[str, object]:
    """Everything but where it lies and what its bytes are."""
    return {one.name: getattr(data, one.name) for one in fields(data) if one.name not in {"path", "fingerprint"}}


def test_csv_and_parquet_versions_load_equal(tmp_path: Path) -> None:
    source = World(workloads=3, latency=True).write(tmp_path / "world")
    floats = ("solo", "colocated", "value", "load", "pcpus", "memory_mb", "cpu_mhz", "nic_mbit")
    numbers: dict[str, type] = dict.fromkeys(floats, float)
    plain = load_dataset(source)
    assert contents(load_dataset(as_parquet(source, tmp_path / "texts", {}))) == contents(plain)
    assert contents(load_dataset(as_parquet(source, tmp_path / "numbers", numbers))) == contents(plain)
    assert contents(load_dataset(as_parquet(source, tmp_path / "ints", {**numbers, "vcpus": int}))) == contents(plain)


def test_a_broken_parquet_cell_is_named_by_row_and_column(tmp_path: Path) -> None:
    write(tmp_path, profiles=None)
    rows = [{**PROFILE, "value": 1.0}, {**PROFILE, "value": float("nan")}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "profiles.parquet")
    with pytest.raises(DatasetError, match=r"profiles\.parquet, line 3, column value: 'nan' is not a finite number"):
        load_dataset(tmp_path)


def test_a_parquet_column_that_stands_twice_or_is_missing_is_refused(tmp_path: Path) -> None:
    write(tmp_path, profiles=None)
    file = tmp_path / "profiles.parquet"
    one = pyarrow.array(["x"])
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([one, one], names=["metric", "metric"]), file)
    with pytest.raises(DatasetError, match=r"profiles\.parquet, line 1: column metric stands twice"):
        load_dataset(tmp_path)
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([one], names=["metric"]), file)
    with pytest.raises(DatasetError, match="column platform is missing"):
        load_dataset(tmp_path)


def test_a_parquet_file_cut_or_altered_anywhere_loads_or_is_refused(tmp_path: Path) -> None:
    write(tmp_path, profiles=None)
    file = tmp_path / "profiles.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([PROFILE] * 3), file)
    whole = file.read_bytes()
    broken = 0
    for at in range(0, len(whole), max(len(whole) // 60, 1)):
        for content in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            file.write_bytes(content)
            try:
                load_dataset(tmp_path)
            except DatasetError:
                broken += 1
    assert broken >= 60


# fingerprints


def test_the_fingerprint_changes_with_any_byte_and_with_nothing_else(tmp_path: Path) -> None:
    one, other = load_dataset(write(tmp_path / "one")), load_dataset(write(tmp_path / "other"))
    assert one.fingerprint == other.fingerprint
    assert re.fullmatch(r"[0-9a-f]{64}", one.fingerprint)
    (tmp_path / "other" / "README.md").write_text("hello", encoding="utf-8")
    assert load_dataset(tmp_path / "other").fingerprint == one.fingerprint
    changed = load_dataset(write(tmp_path / "other", profiles=[{**PROFILE, "value": "50.0"}]))
    assert changed.fingerprint != one.fingerprint
    assert changed.profiles == one.profiles


# anything


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_a_table_load_or_are_refused(tmp_path: Path, content: bytes) -> None:
    for table in ("colocations", "profiles"):
        _loads_or_refuses(write(tmp_path, **{table: content}))


CELL = st.sampled_from(["", "0", "1", "-1", "nan", "1e308", "0:0", "0:1-0", "throughput", "p", "w", '"', '""',
                        "\n", "\r",
                        "a\tb", "dedicated", "9" * 40, "٣", "\ufeff", "'", ";"]) | st.text(max_size=5)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(COLOCATION_COLUMNS), CELL), max_size=4), st.integers(0, 3))
def test_any_cells_in_a_good_row_load_or_are_refused(tmp_path: Path, cells: list[tuple[str, str]], copies: int) -> None:
    rows = [{**COLOCATION, "repeat": str(copy)} for copy in range(copies)]
    content = text(COLOCATION_COLUMNS, [*rows, {**COLOCATION, "repeat": "9", **dict(cells)}])
    data = _loads_or_refuses(write(tmp_path, colocations=content.encode("utf-8", "replace")))
    if data is not None:
        examples = build_examples([data], further_metrics([data]))
        assert all(1e-3 <= ratio <= 1e3 for ratio in examples.ratio)


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text_: ("name: x\norigin: paper\n" + text_).encode()))
def test_any_description_loads_or_is_refused(tmp_path: Path, content: bytes) -> None:
    _loads_or_refuses(write(tmp_path, dataset=content))


def _loads_or_refuses(path: Path) -> Dataset | None:
    try:
        data = load_dataset(path)
    except DatasetError as error:
        assert str(error)
        return None
    assert all(isinstance(one, Host) for one in data.platforms.values())
    return data


PROBE = "platform,workload,probe,name,value,unit\n"


def test_what_probes_found_is_read_as_medians_of_host_and_workload(tmp_path: Path) -> None:
    table = PROBE + "p,,rtt,median,0.2,ms\np,,rtt,median,0.4,ms\np,,rtt,median,0.3,ms\np,w,disk,read_small_mean,5,ms\n"
    data = load_dataset(write(tmp_path / "with", probes=table))
    assert data.probes == {("p", ""): {"rtt.median": 0.3}, ("p", "w"): {"disk.read_small_mean": 5.0}}
    without = load_dataset(write(tmp_path / "without"))
    assert without.probes == {}
    assert without.fingerprint != data.fingerprint


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("q,,rtt,median,1,ms", "line 2, column platform: 'q' is not in the platforms table"),
        ("p,,joy,median,1,ms", "line 2, column probe: 'joy' is none of cpu-share,"),
        ("p,,rtt,median,,ms", "line 2, column value: is empty"),
        ("p,,rtt,,1,ms", "line 2, column name: is empty"),
    ],
)
def test_a_broken_row_of_probes_is_named(tmp_path: Path, row: str, reason: str) -> None:
    assert reason in refusal(tmp_path, probes=PROBE + row + "\n")
