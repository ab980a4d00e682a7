"""The dataset made from finished runs: nothing half written, the contract's columns, everything that was reported."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lab.campaign import Campaign, read_campaign
from lab.dataset_writer import COLOCATIONS, OUTCOMES, PLATFORMS, PROFILES, RUNS, SERIES, write_dataset
from lab.environment import circumstances, read_machine
from lab.records import Record, RunConditions
from lab.schedule import expand
from models.data.dataset import load_dataset
from profiler.observed import Pinning
from tests.lab.lab_commands import TINY, table
from tests.lab.lab_records import one_round, record

CONTRACT = {  # contract.md, section 3
    "profiles": "platform, workload, load, scope, metric, value, unit, repeat",
    "colocations": "run, platform, instance, workload, load, vcpus, pinning, driver_cpus, cap_percent, weight,"
    " net_mode, net_rate_mbit, disk_limit_mb_s, outcome, solo, colocated, unit, repeat",
    "platforms": "platform, kind, pcpus, threads_per_core, cpu_mhz, l2_mb, l3_mb, memory_mb, nic_mbit, disk_kind,"
    " disk_mb_s, disk_iops, host_cap_percent",
}


def _write(directory: Path, campaign: Campaign, records: list[Record]) -> None:
    write_dataset(directory, campaign, records, read_machine(campaign), circumstances())


@pytest.fixture
def written(tmp_path: Path, campaign: Campaign) -> Path:
    """The dataset of one round."""
    _write(tmp_path, campaign, one_round(campaign, 1))
    return tmp_path


def test_tables_have_the_columns_of_the_contract(written: Path) -> None:
    for name, columns in (("profiles", PROFILES), ("colocations", COLOCATIONS), ("platforms", PLATFORMS)):
        wanted = CONTRACT[name].split(", ")
        assert list(columns) == wanted
        assert list(table(written, name)[0]) == wanted


def test_run_and_repeat_tell_who_was_there_at_the_same_time(tmp_path: Path, campaign: Campaign) -> None:
    _write(tmp_path, campaign, one_round(campaign, 1) + one_round(campaign, 2))
    together: dict[tuple[str, str], set[str]] = {}
    for row in table(tmp_path, "colocations"):
        together.setdefault((row["run"], row["repeat"]), set()).add(row["instance"])
    assert len(together) == 3 * 2
    assert all(len(instances) == 2 for instances in together.values())
    assert together["same:web-1k:cpu", "1"] == {"web-1k.1", "cpu.2"}


def test_solo_is_the_value_of_the_same_round(tmp_path: Path, campaign: Campaign) -> None:
    slower = [record(campaign, run, 2, factor=0.5) for run in expand(campaign)]
    _write(tmp_path, campaign, one_round(campaign, 1) + slower)
    rows = [row for row in table(tmp_path, "colocations") if row["outcome"] == "throughput"]
    assert {(row["repeat"], row["solo"], row["colocated"]) for row in rows} == {
        ("1", "1000", "500"),
        ("2", "500", "250"),
    }
    assert all(Pinning.parse(row["pinning"]) for row in rows)


def test_a_solo_run_that_is_not_there_yet_is_an_empty_cell(tmp_path: Path, campaign: Campaign) -> None:
    records = [finished for finished in one_round(campaign, 1) if finished.kind == "group"]
    _write(tmp_path, campaign, records)
    assert {row["solo"] for row in table(tmp_path, "colocations")} == {""}


def test_profiles_hold_every_scope_outcomes_and_the_load_generator(written: Path) -> None:
    profiled = {(row["workload"], row["scope"], row["metric"]) for row in table(written, "profiles")}
    assert ("web-1k", "instance", "throughput") in profiled
    assert ("web-1k", "driver_domain", "cpu") in profiled
    assert ("cpu", "host", "event") in profiled
    assert ("web-1k", "host", "load_generator_cpu") in profiled


def test_the_description_says_where_the_figures_come_from(written: Path) -> None:
    document = yaml.safe_load((written / "dataset.yaml").read_text(encoding="utf-8"))
    assert (document["origin"], document["licence"]) == ("measured", "CC-BY-4.0")
    assert {"name", "machine", "kernel", "date", "notes", "circumstances"} <= set(document)
    assert "CPU 1" in document["circumstances"]["load_generators"]["same"]


def test_a_table_is_whole_or_not_there(written: Path, campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (written / "profiles.csv").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        _write(written, campaign, one_round(campaign, 1) + one_round(campaign, 2))
    assert (written / "profiles.csv").read_bytes() == before
    assert not list(written.glob("*.tmp"))


def test_outcomes_hold_everything_that_a_workload_reported(written: Path) -> None:
    rows = table(written, "outcomes")
    assert list(rows[0]) == list(OUTCOMES)
    outcomes = {(row["outcome"], row["unit"]) for row in rows if row["run"] == "solo:cpu:0"}
    assert outcomes == {
        ("throughput", "events/s"), ("latency_mean_ms", "ms"), ("latency_p95_ms", "ms"), ("retransmits", "1/s"),
    }  # fmt: skip
    assert "retransmits" not in {row["outcome"] for row in table(written, "colocations")}


def test_windows_are_a_table_that_is_the_same_bytes_for_the_same_runs(tmp_path: Path, campaign: Campaign) -> None:
    records = [record(campaign, run, 1, windows=[10.0, 20.5]) for run in expand(campaign)]
    _write(tmp_path, campaign, records)
    rows = table(tmp_path, "series")
    assert list(rows[0]) == list(SERIES)
    windows = [
        (row["at_s"], row["value"]) for row in rows if (row["run"], row["instance"]) == ("same:web-1k:cpu", "cpu.2")
    ]
    assert windows == [("0.5", "10"), ("1", "20.5")]
    before = (tmp_path / "series.csv.gz").read_bytes()
    _write(tmp_path, campaign, records)
    assert (tmp_path / "series.csv.gz").read_bytes() == before


def test_runs_tell_what_they_were_done_under(tmp_path: Path, campaign: Campaign) -> None:
    around = RunConditions("2026-01-01T00:00:00.000+00:00", 0.5, "abc", 3)
    (run,) = [run for run in expand(campaign) if run.run == "same:web-1k:cpu"]
    _write(tmp_path, campaign, [record(campaign, run, 1, unsteady=("cpu.2",), around=around)])
    rows = {row["instance"]: row for row in table(tmp_path, "runs")}
    assert list(rows["cpu.2"]) == list(RUNS)
    assert [rows[name]["unsteady"] for name in ("web-1k.1", "cpu.2")] == ["0", "1"]
    assert [rows[name]["cpu_speed"] for name in ("web-1k.1", "cpu.2")] == ["2", "2"]  # of the CPU that both are on
    row = rows["cpu.2"]
    assert (row["warmup_s"], row["round_started"], row["net_dropped"], row["qdisc"]) == (
        "1.25", "2026-01-01T00:00:00.000+00:00", "3", "abc",
    )  # fmt: skip


def test_driver_cpus_stand_in_colocations_and_the_dataset_reads_back(tmp_path: Path) -> None:
    text = TINY.read_text(encoding="utf-8").replace('clients: ["1"]', 'clients: ["1"], driver: "1"')
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    campaign = read_campaign(tmp_path / "c.yaml")
    _write(tmp_path, campaign, one_round(campaign, 1))
    assert {row["driver_cpus"] for row in table(tmp_path, "colocations")} == {"1"}
    dataset = load_dataset(tmp_path)
    assert len(dataset.colocations) == 3
    assert {colocation.driver_cpus for colocation in dataset.colocations} == {(1,)}
    assert all(outcome.solo for colocation in dataset.colocations for outcome in colocation.outcomes)
