"""`profile`: tables, JSON, picture and what is stored, from files and from the database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Host, Instance
from advisor.errors import NotFound
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.observed import MetricSample
from tests.api.cli_runs import run
from tests.servers.fixtures import sqlite_with_tables

PERIOD_S = 10.0


def measured() -> list[MetricSample]:
    """Five minutes at 40 % and five at 98.5 % CPU beside an instance that is nearly idle; made up, and recent."""
    begin_s = datetime.now(UTC).timestamp() - 60 * PERIOD_S
    found = []
    for number in range(60):
        cpu = (40.0 if number < 30 else 98.5) + (-0.3, 0.1, 0.4)[number % 3]
        values = {"cpu": cpu, "waiting": 0.0, "block": 100 - cpu, "pages_exchanged": 50 * cpu}
        time_s = begin_s + PERIOD_S * number
        found += [MetricSample("h1", "i1", "instance", name, value, time_s) for name, value in values.items()]
        found.append(MetricSample("h1", "i2", "instance", "cpu", 1.0, time_s))
        found.append(MetricSample("h1", None, "host", "event", 900.0, time_s))
    return found


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The samples as a file, and as the database of the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "var").mkdir()
    sqlite_with_tables(tmp_path / "var" / "cotenant.sqlite3")
    samples = measured()
    with Advisor(Settings()) as advisor:
        advisor.inventory.put_host(Host("h1", "xen", 4, 8192, platform="p1"))
        for name in ("i1", "i2"):
            advisor.inventory.put_instance(Instance(name, host="h1"))
        advisor.telemetry.ingest(samples)
    fields = ("host", "instance", "scope", "metric", "value", "time_s")
    lines = [json.dumps({name: getattr(sample, name) for name in fields}) for sample in samples]
    Path("samples.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "samples.jsonl"


def document(*arguments: str) -> dict[str, Any]:
    result = run("profile", "i1", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_table_shows_phases_with_intervals_load_and_verdict() -> None:
    result = run("profile", "i1")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "i1 on h1: 60 windows of 10 s."
    assert lines[2].split() == ["phase", "time", "windows", "worth", "solo", "load", "verdict"]
    assert lines[3].split()[:3] == ["1", "50%", "30"]
    assert lines[3].endswith("enough")
    assert not lines[3].endswith("not enough")
    assert "1.00 (0.95-1.00) saturated" in lines[4]
    cpu = next(line for line in lines if line.startswith("cpu"))
    assert "40.1 (40-40.1)" in cpu
    assert "event" in result.stdout
    assert "Phase 1: load relative, confidence: fair; against phase 2" in result.stdout


def test_json_has_the_same_from_a_file_and_from_the_database(file: str) -> None:
    stored, read = document(), document("--samples", file)
    assert stored == read
    part, full = stored["phases"]
    assert part["load"]["value"] == pytest.approx(0.406, abs=0.005)
    assert part["metrics"]["cpu"]["lower"] < part["metrics"]["cpu"]["value"] < part["metrics"]["cpu"]["upper"]
    assert part["metrics_at_full_load"]["cpu"] == pytest.approx(98.6, abs=0.3)
    assert full["metrics_at_full_load"] is None
    assert part["spans"][0]["end"].endswith("Z")


def test_a_file_needs_no_database(file: str) -> None:
    assert run("profile", "i1", "--samples", file, "--database", "sqlite:///other.sqlite3").exit_code == 0
    assert not Path("other.sqlite3").exists()


def test_one_phase_can_be_shown() -> None:
    assert [one["number"] for one in document("--phase", "2")["phases"]] == [2]
    assert "Phase 1:" not in run("profile", "i1", "--phase", "2").stdout


def test_a_phase_is_stored_as_a_workload(file: str) -> None:
    result = run("profile", "i1", "--phase", "2", "--save", "batch")
    assert (
        "Stored as workload batch on platform p1, origin measured; the workload of no instance was changed."
        in result.stdout
    )
    saved = document("--samples", file, "--phase", "1", "--save", "whole", "--full-load")["saved"]
    assert saved == {"workload": "whole", "platform": "p1", "origin": "extrapolated"}
    with Advisor(Settings()) as advisor:
        assert advisor.inventory.workload("batch").metrics["cpu"] == pytest.approx(98.6, abs=0.1)
        assert advisor.inventory.instance("i1").workload is None


def test_a_picture_is_written() -> None:
    assert "Picture written to out.svg." in run("profile", "i1", "--picture", "out.svg").stdout
    assert "phase 2" in Path("out.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("ghost",), 1, "there is no instance ghost"),
        (("",), 2, "instance '' is not 1-255 letters, digits or ._:- characters"),
        (("", "--samples", "samples.jsonl"), 2, "instance '' is not 1-255 letters"),
        (("a b",), 2, "instance 'a b' is not 1-255 letters"),
        (("i1", "--since", "soon"), 2, "is not a time such as 90m, 24h or 7d"),
        (("i1", "--phase", "3"), 2, "i1 has phases 1-2, not 3"),
        (("i1", "--save", "web"), 2, "choose with --phase"),
        (("i1", "--picture", "out.gif"), 2, "is to be a .png or an .svg file"),
        (("ghost", "--picture", "out"), 2, "the picture out is to be a .png or an .svg file"),
        (("i9", "--samples", "samples.jsonl"), 1, "there are no samples of instance i9; there are i1, i2"),
    ],
)
def test_refusals_are_one_sentence(arguments: tuple[str, ...], code: int, words: str) -> None:
    result = run("profile", *arguments)
    assert result.exit_code == code
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_read_or_stored() -> None:
    refused = run("profile", "i1", "--phase", "2", "--save", "batch", "--picture", "out.pdf")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "the picture out.pdf is to be a .png or an .svg file" in refused.stderr
    with Advisor(Settings()) as advisor, pytest.raises(NotFound):
        advisor.inventory.workload("batch")
    assert run("profile", "i1", "--database", "sqlite:///other.sqlite3", "--picture", "out.pdf").exit_code == 2
    assert not Path("other.sqlite3").exists()


def test_a_profile_of_too_few_windows_is_stored_only_with_force() -> None:
    short = ("i2", "--since", "1m", "--save", "web", "--phase", "1")
    assert "phase 1 is not enough for a workload" in run("profile", *short).stderr
    assert run("profile", *short, "--force").exit_code == 0
