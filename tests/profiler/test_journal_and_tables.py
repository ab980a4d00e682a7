"""The journal on disk and the dataset made from it: nothing lost, nothing half written, the contract's columns."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from profiler.lab.campaign import Campaign, read_campaign
from profiler.lab.circumstances import circumstances, read_machine
from profiler.lab.errors import LabError
from profiler.lab.journal import Journal, Record
from profiler.lab.measure import Measured, Value
from profiler.lab.schedule import Run, expand
from profiler.lab.show import show
from profiler.lab.tables import COLOCATIONS, PLATFORMS, PROFILES, write_dataset
from profiler.lab.workloads import Reached
from profiler.observed import Pinning

TINY = Path(__file__).with_name("tiny.yaml")
CONTRACT = {  # contract.md, section 3
    "profiles": "platform, workload, load, scope, metric, value, unit, repeat",
    "colocations": "run, platform, instance, workload, load, vcpus, pinning, driver_cpus, cap_percent, weight,"
    " net_mode, net_rate_mbit, disk_limit_mb_s, outcome, solo, colocated, unit, repeat",
    "platforms": "platform, kind, pcpus, threads_per_core, cpu_mhz, l2_mb, l3_mb, memory_mb, nic_mbit, disk_kind",
}


@pytest.fixture
def campaign() -> Campaign:
    return read_campaign(TINY)


def _record(campaign: Campaign, run: Run, number: int, factor: float = 1.0) -> Record:
    """A record as a run would give it: solo reaches 1000, each member of a pair half of it, times `factor`."""
    share = factor / len(run.placed)
    reached = {entry.instance: Reached(1000 * share, 2.0 / share, 3.0 / share) for entry in run.placed}
    values = [Value(entry.instance, "instance", "cpu", 100 * share, "%") for entry in run.placed]
    values += [Value(None, "driver_domain", "cpu", 7.0, "%"), Value(None, "host", "event", 9.0, "1/s")]
    measured = Measured("2026-01-01T00:00:00.000+00:00", 1.0, reached, tuple(values), {"web-1k.1": 55.0}, 0.0, 0.5)
    units = {name: workload.unit for name, workload in campaign.workloads.items()}
    return Record.of(run, number, measured, {}, units, 1.5)


def _round(campaign: Campaign, number: int) -> list[Record]:
    return [_record(campaign, run, number) for run in expand(campaign)]


def _table(directory: Path, name: str) -> list[dict[str, str]]:
    with (directory / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(directory: Path, campaign: Campaign, records: list[Record]) -> None:
    write_dataset(directory, campaign, records, read_machine(), circumstances())


def test_finished_runs_come_back_as_they_were(tmp_path: Path, campaign: Campaign) -> None:
    journal = Journal(tmp_path, campaign)
    for record in _round(campaign, 1):
        journal.append(record)
    again = Journal(tmp_path, campaign)
    assert again.records == journal.records
    assert again.done() == {(run.run, 1) for run in expand(campaign)}


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_a_run_that_did_not_finish(tmp_path: Path, campaign: Campaign, cut: int) -> None:
    journal = Journal(tmp_path, campaign)
    first, second, *_ = _round(campaign, 1)
    journal.append(first)
    journal.append(second)
    journal.path.write_bytes(journal.path.read_bytes()[:-cut])
    again = Journal(tmp_path, campaign)
    assert again.records == [first]
    again.append(second)
    assert Journal(tmp_path, campaign).records == [first, second]


def test_runs_of_a_changed_campaign_are_not_mixed_in(tmp_path: Path, campaign: Campaign) -> None:
    Journal(tmp_path, campaign).append(_round(campaign, 1)[0])
    with pytest.raises(LabError, match=r"1 runs of another or a changed campaign: .*--out.*--fresh"):
        Journal(tmp_path, replace(campaign, fingerprint="other"))


def test_starting_anew_keeps_the_old_journal_under_another_name(tmp_path: Path, campaign: Campaign) -> None:
    Journal(tmp_path, campaign).append(_round(campaign, 1)[0])
    assert Journal(tmp_path, campaign, fresh=True).records == []
    assert len(list(tmp_path.glob("*.old"))) == 1


def test_tables_have_the_columns_of_the_contract(tmp_path: Path, campaign: Campaign) -> None:
    _write(tmp_path, campaign, _round(campaign, 1))
    for name, columns in (("profiles", PROFILES), ("colocations", COLOCATIONS), ("platforms", PLATFORMS)):
        wanted = CONTRACT[name].split(", ")
        assert list(columns) == wanted
        assert list(_table(tmp_path, name)[0]) == wanted


def test_run_and_repeat_tell_who_was_there_at_the_same_time(tmp_path: Path, campaign: Campaign) -> None:
    _write(tmp_path, campaign, _round(campaign, 1) + _round(campaign, 2))
    together: dict[tuple[str, str], set[str]] = {}
    for row in _table(tmp_path, "colocations"):
        together.setdefault((row["run"], row["repeat"]), set()).add(row["instance"])
    assert len(together) == 3 * 2
    assert all(len(instances) == 2 for instances in together.values())
    assert together["same:web-1k:cpu", "1"] == {"web-1k.1", "cpu.2"}


def test_solo_is_the_value_of_the_same_round(tmp_path: Path, campaign: Campaign) -> None:
    slower = [_record(campaign, run, 2, factor=0.5) for run in expand(campaign)]
    _write(tmp_path, campaign, _round(campaign, 1) + slower)
    rows = [row for row in _table(tmp_path, "colocations") if row["outcome"] == "throughput"]
    assert {(row["repeat"], row["solo"], row["colocated"]) for row in rows} == {
        ("1", "1000", "500"),
        ("2", "500", "250"),
    }
    assert all(Pinning.parse(row["pinning"]) for row in rows)


def test_a_solo_run_that_is_not_there_yet_is_an_empty_cell(tmp_path: Path, campaign: Campaign) -> None:
    records = [record for record in _round(campaign, 1) if record.kind == "group"]
    _write(tmp_path, campaign, records)
    assert {row["solo"] for row in _table(tmp_path, "colocations")} == {""}


def test_profiles_hold_every_scope_outcomes_and_the_load_generator(tmp_path: Path, campaign: Campaign) -> None:
    _write(tmp_path, campaign, _round(campaign, 1))
    found = {(row["workload"], row["scope"], row["metric"]) for row in _table(tmp_path, "profiles")}
    assert ("web-1k", "instance", "throughput") in found
    assert ("web-1k", "driver_domain", "cpu") in found
    assert ("cpu", "host", "event") in found
    assert ("web-1k", "host", "load_generator_cpu") in found


def test_the_description_says_where_the_figures_come_from(tmp_path: Path, campaign: Campaign) -> None:
    _write(tmp_path, campaign, _round(campaign, 1))
    document = yaml.safe_load((tmp_path / "dataset.yaml").read_text(encoding="utf-8"))
    assert (document["origin"], document["licence"]) == ("measured", "CC-BY-4.0")
    assert {"name", "machine", "kernel", "date", "notes", "circumstances"} <= set(document)
    assert "CPU 1" in document["circumstances"]["load_generators"]["same"]


def test_a_table_is_whole_or_not_there(tmp_path: Path, campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, campaign, _round(campaign, 1))
    before = (tmp_path / "profiles.csv").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("profiler.lab.tables.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        _write(tmp_path, campaign, _round(campaign, 1) + _round(campaign, 2))
    assert (tmp_path / "profiles.csv").read_bytes() == before
    assert not list(tmp_path.glob(".*.part"))


def test_show_gives_ratios_scores_and_noise(tmp_path: Path, campaign: Campaign) -> None:
    _write(tmp_path, campaign, _round(campaign, 1) + _round(campaign, 2))
    shown = show(tmp_path)
    form = shown.forms["same"]
    assert form.matrix["web-1k"]["cpu"].median == pytest.approx(0.5)
    assert {score.score.median for score in form.scores} == {1.0}
    assert shown.noise["cpu"]["same 0:0"].cv == pytest.approx(0)
    assert (shown.repeats, shown.disturbed) == (2, 0)
    json.dumps(shown.document(), allow_nan=False)


@pytest.mark.parametrize("value", ["nan", "abc", "-1", "inf"])
def test_show_names_file_line_and_column_of_a_bad_cell(tmp_path: Path, campaign: Campaign, value: str) -> None:
    _write(tmp_path, campaign, _round(campaign, 1))
    path = tmp_path / "colocations.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1].replace(",500,", f",{value},")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(LabError, match=r"colocations\.csv, line 2, column colocated: '.*' is not a number"):
        show(tmp_path)


def test_show_of_a_directory_without_tables_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="name a directory that lab run wrote"):
        show(tmp_path)


def test_only_disturbed_runs_are_forgotten_to_be_measured_again(tmp_path: Path, campaign: Campaign) -> None:
    journal = Journal(tmp_path, campaign)
    quiet, *noisy = _round(campaign, 1)
    journal.append(quiet)
    for record in noisy:
        journal.append(replace(record, disturbed=True))
    again = Journal(tmp_path, campaign, again=True)
    assert again.records == [quiet]
    assert again.measured_again == len(noisy)
    later = Journal(tmp_path, campaign)
    assert (later.records, later.measured_again) == ([quiet], len(noisy))
