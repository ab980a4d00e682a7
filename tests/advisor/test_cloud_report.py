"""`cotenant report`: the state of a cloud in dated folders, of which the newest stay."""

from __future__ import annotations

import errno
import json
import logging
import re
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InvalidInput, StorageUnavailable
from advisor.reports import files
from advisor.reports.cloud import MOST_WORST
from tests.api import cli_runs

CLOUD = Path(__file__).parents[2] / "examples" / "cloud.yaml"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(*options: object) -> Any:
    return cli_runs.run("report", *map(str, options))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("reports") / "of" / "cloud"
    answer = run(CLOUD, "--out", folder, "--json")
    assert answer.exit_code == 0, answer.output
    return folder, json.loads(answer.stdout)


def test_a_report_says_how_the_cloud_stands_and_what_a_rebalance_would_do(written: tuple[Path, dict[str, Any]]) -> None:
    folder, reported = written
    path = Path(reported["report"])
    assert path.parent == folder
    data = json.loads((path / "report.json").read_text(encoding="utf-8"))
    assert (data["report"], data["title"]) == ("cloud", "State of the cloud")
    assert reported["headline"].startswith("6 hosts with 8 instances: no instance is below its limit")
    assert "Rebalancing plan: Already fine: no change is needed." in data["sentences"]
    hosts = {row["host"]: row for row in data["tables"]["hosts"]}
    assert set(hosts) == {"h1", "h2", "h3", "h4", "h5", "h6"}
    assert sum(row["instances"] for row in hosts.values()) == 8
    assert {row["host"] for row in data["tables"]["pressure"]} == set(hosts)
    assert "harm" in data["tables"]
    assert hosts["h4"]["pressed_by"] == "memory bandwidth"  # as in the other tables
    page = (path / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<dd>\s*</dd>", page)  # no term without its words: nothing was searched here


CROWDED = """
hosts: [{id: h1, kind: kvm, pcpus: 2, memory_mb: 1000}]
workloads: [{name: busy, metrics: {cpu: 100}}]
instances:
  - {id: plain, host: h1, vcpus: 1, memory_mb: 512, workload: busy}
  - {id: patient, host: h1, vcpus: 1, memory_mb: 512, workload: busy, min_throughput_ratio: 0.4}
  - {id: prompt, host: h1, vcpus: 1, memory_mb: 512, workload: busy, min_throughput_ratio: 0.4, max_latency_ratio: 1.01}
"""


@pytest.mark.usefixtures("undrawn")
def test_who_is_called_below_its_limit_is_who_was_counted(tmp_path: Path) -> None:
    (tmp_path / "cloud.yaml").write_text(CROWDED)
    answer = run(tmp_path / "cloud.yaml", "--out", tmp_path / "to", "--json")
    path = Path(json.loads(answer.stdout)["report"])
    data = json.loads((path / "report.json").read_text(encoding="utf-8"))
    assert "2 below their limit" in data["headline"]
    assert data["tables"]["sums"][0]["below"] == 2
    assert {row["instance"]: (row["limit"], row["below"]) for row in data["tables"]["worst"]} == {
        "plain": (0.8, "below its limit"),  # the plan's, for it has none of its own
        "prompt": (0.4, "below its limit"),  # of latency
        "patient": (0.4, None),
    }
    happens = {row["instance"]: row["happens"] for row in data["tables"]["instances"]}
    assert happens == {"plain": "below its limit", "prompt": "below its limit", "patient": "may fall below"}
    assert "Predicted below their limit: plain and prompt." in " ".join(data["sentences"])
    page = (path / "index.html").read_text(encoding="utf-8")
    assert "A limit is the instance's own, or 80\u00a0% where it has none;" in page.replace("&#39;", "'")
    assert not re.search(r"<dd>\s*</dd>", page)  # no term without its words


@pytest.mark.usefixtures("undrawn")
def test_who_is_below_its_limit_and_not_on_the_page_is_counted_there_and_stands_in_the_data(tmp_path: Path) -> None:
    there = "".join(
        f"  - {{id: vm{number}, host: h1, vcpus: 1, memory_mb: 64, workload: busy}}\n"
        for number in range(MOST_WORST + 2)
    )
    (tmp_path / "cloud.yaml").write_text(CROWDED[: CROWDED.index("  - {id: plain")] + there)
    answer = run(tmp_path / "cloud.yaml", "--out", tmp_path / "to", "--json")
    path = Path(json.loads(answer.stdout)["report"])
    data = json.loads((path / "report.json").read_text(encoding="utf-8"))
    assert [row["below"] for row in data["tables"]["worst"]] == ["below its limit"] * (MOST_WORST + 2)
    assert "2 more rows stand in worst.csv" in (path / "index.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn")
def test_what_more_fits_is_reported_in_whole_sentences(tmp_path: Path) -> None:
    (tmp_path / "cloud.yaml").write_text("hosts: [{id: h1, kind: kvm, pcpus: 2, memory_mb: 1000}]\n")
    (tmp_path / "mix.yaml").write_text("{id: more, vcpus: 2, memory_mb: 512}\n")
    answer = run(
        tmp_path / "cloud.yaml",
        "--out",
        tmp_path / "to",
        "--kind",
        "capacity",
        "--add",
        tmp_path / "mix.yaml",
        "--json",
    )
    data = json.loads((Path(json.loads(answer.stdout)["report"]) / "report.json").read_text(encoding="utf-8"))
    assert "Capacity plan: 1 more of this mix fits with every instance within its limit." in data["sentences"]
    assert all(one.endswith(".") for one in data["sentences"])


@pytest.mark.usefixtures("undrawn")
def test_an_empty_database_is_reported_as_such_and_older_reports_go(
    written: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(written[1]["report"], tmp_path / "2020-01-01T000000Z")
    (tmp_path / "2020-01-02T000000Z").mkdir()  # dated like one, and no report
    answer = run("--database", f"sqlite:///{tmp_path}/cloud.sqlite3", "--out", tmp_path, "--keep", "1", "--json")
    reported = json.loads(answer.stdout)
    assert reported["headline"] == "0 hosts with 0 instances."
    assert reported["removed"] == ["2020-01-01T000000Z"]
    assert {one.name for one in tmp_path.iterdir() if one.is_dir()} == {
        "2020-01-02T000000Z",
        Path(reported["report"]).name,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((CLOUD, "--kind", "evacuate"), "--kind evacuate is none of"),
        ((CLOUD, "--database", "sqlite://"), "--database goes without a file"),
        (("missing.yaml",), "missing.yaml"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(
    options: tuple[object, ...], words: str, tmp_path: Path
) -> None:
    answer = run(*options, "--out", tmp_path / "to")
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert not list((tmp_path / "to").glob("*"))


def test_a_folder_that_is_a_file_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    (tmp_path / "to").write_text("")
    answer = run(CLOUD, "--out", tmp_path / "to")
    assert answer.exit_code == 2
    assert "--out" in answer.stderr


def test_two_reports_of_one_second_do_not_meet(tmp_path: Path) -> None:
    first = files.dated(tmp_path, NOW)
    first.mkdir()
    second = files.dated(tmp_path, NOW)
    assert (first.name, second.name) == ("2026-03-01T120000Z", "2026-03-01T120000Z-2")


def test_the_newest_reports_stay_also_within_one_second(tmp_path: Path) -> None:
    for number in range(11):
        path = files.dated(tmp_path, NOW)
        path.mkdir()
        for name in ("index.html", "report.json"):
            (path / name).write_text(str(number))
    (tmp_path / "2026-03-01T120000Z" / "notes.txt").write_text("mine")  # whose folder is left alone
    assert len(files.prune_folders(tmp_path, 2)) == 8
    assert {one.name for one in tmp_path.iterdir()} == {
        "2026-03-01T120000Z", "2026-03-01T120000Z-10", "2026-03-01T120000Z-11",
    }  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_the_report_just_written_stays_though_the_clock_was_put_back(
    written: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(written[1]["report"], tmp_path / "2999-01-01T000000Z")
    reported = json.loads(run(CLOUD, "--out", tmp_path, "--keep", "1", "--json").stdout)
    assert reported["removed"] == ["2999-01-01T000000Z"]
    assert [one.name for one in tmp_path.iterdir()] == [Path(reported["report"]).name]


def test_a_report_that_cannot_be_deleted_is_not_reported_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for day in (1, 2):
        (path := tmp_path / f"2026-03-0{day}T120000Z").mkdir()
        for name in ("index.html", "report.json"):
            (path / name).touch()

    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(shutil, "rmtree", busy)
    assert files.prune_folders(tmp_path, 1) == []
    assert "2026-03-01T120000Z cannot be deleted: Device or resource busy" in caplog.text


def test_a_schedule_goes_on_after_errors_and_stops_on_request(caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    turns: list[int] = []

    def work() -> None:
        turns.append(len(turns))
        if len(turns) == 1:
            raise StorageUnavailable("the database is not there")
        if len(turns) == 2:
            raise ZeroDivisionError
        stop.set()

    with caplog.at_level(logging.ERROR, logger="advisor.reports.files"):
        files.repeat(work, 0.01, stop, "report")
    assert turns == [0, 1, 2]
    assert [record.getMessage() for record in caplog.records] == [
        "no report this time: the database is not there",
        "no report this time",
    ]


def test_a_time_is_read_with_its_unit() -> None:
    assert files.every_s("24h") == 86_400
    with pytest.raises(InvalidInput, match="30s"):
        files.every_s("0h")
