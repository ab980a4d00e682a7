"""An alarm that stands is shown wherever the operator looks: REST, pages, metrics, `cotenant doctor`, and an answer."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import counters, windows
from advisor.store.engine import Database
from api.app import create_app
from tests.api import cli_runs
from tests.api.api_client import Client

SINCE = datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()
ALARM = {
    "before": {"batch-2": [0.2, 0.05], "files-1": [0.3, 0.05]},
    "wants": {"batch-2": 3.9, "files-1": 0.3},
    "instances": {
        "files-1": {
            "sum": 3.0, "since_s": SINCE, "raised_s": SINCE + 1200, "windows": 4, "got": 1.6, "expected": 0.9,
            "own": 0.7, "lower": 0.7, "factor": 1.0, "cause": "neighbour", "antagonist": "batch-2",
            "wanted_before": 0.2, "wanted": 3.9, "measured": False, "version": "analytic",
        }
    },
    "counts": {"batch-2": 3.9, "files-1": 0.3},
    "wide": 2.5,
    "off": [2.5],
    "version": "analytic",
}  # fmt: skip
TEXT = (
    "CPU delivered to files-1 on h3 was 40 % of its demand in 4 windows since 2026-11-02 09:00 UTC; 90 % was "
    "predicted, and at least 70 %. The likely cause is batch-2, whose demand rose from 0.20 to 3.90 CPUs."
)


@pytest.fixture
def alarmed(advisor: Advisor, settings: Settings) -> Client:
    """The cloud with one alarm, kept as the windows of agents leave it."""
    database = Database(settings.database)
    with database.write() as connection:
        counters.bump(connection, "demand")
        windows.put_alarm(connection, "h3", SINCE + 1200, ALARM)
    database.close()
    return Client(create_app(advisor, settings))


def test_rest_gives_an_alarm_with_the_likely_antagonist(alarmed: Client) -> None:
    (reported,) = alarmed.get("/v1/alarms").json()["alarms"]
    assert (reported["instance"], reported["host"], reported["cause"], reported["antagonist"]) == (
        "files-1", "h3", "neighbour", "batch-2",
    )  # fmt: skip
    assert (reported["since"], reported["raised"]) == ("2026-11-02T09:00:00Z", "2026-11-02T09:20:00Z")
    assert (reported["windows"], reported["observed"], reported["measured"], reported["text"]) == (4, 0.4, False, TEXT)


def test_an_alarm_is_on_the_pages_of_its_host_and_instances_and_on_no_other(alarmed: Client) -> None:
    for path in ("/", "/hosts/h3", "/instances/files-1"):
        assert TEXT in alarmed.get(path).text, path
    for path in ("/hosts/h1", "/instances/shop-3"):
        assert "CPU delivered to files-1" not in alarmed.get(path).text, path


def test_it_is_counted_by_its_cause(alarmed: Client) -> None:
    found = dict(re.findall(r'^cotenant_alarms\{cause="(\w+)"\} (\S+)$', alarmed.get("/metrics").text, re.MULTILINE))
    assert found == {"neighbour": "1.0", "itself": "0.0", "host": "0.0"}


def test_an_answer_about_its_host_says_so(alarmed: Client) -> None:
    asked = {"instance": {"id": "n", "vcpus": 1}, "hosts": ["h3"], "dry_run": True}
    notes = alarmed.ask("POST", "/v1/placements", json=asked).json()["notes"]
    assert any(note.startswith("Measured contention on h3 is above the predicted range (files-1)") for note in notes)
    assert any(note.startswith("Intervals on h3 are 2.5 times as wide") for note in notes)
    other = alarmed.ask("POST", "/v1/placements", json={**asked, "hosts": ["h1"]}).json()["notes"]
    assert not any("Measured contention" in note for note in other)


@pytest.mark.usefixtures("alarmed")
def test_doctor_says_it_and_fails(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = cli_runs.run("doctor", "--database", settings.database)
    assert found.exit_code == 1
    assert TEXT in " ".join(found.stdout.split())
    reported = json.loads(cli_runs.run("doctor", "--database", settings.database, "--json").stdout)
    assert reported["problems"][0] == TEXT and reported["alarms"][0]["antagonist"] == "batch-2"
