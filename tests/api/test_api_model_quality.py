"""A model's quality as people and Prometheus see it: the table, JSON, and the gauges."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from advisor.domain import Instance
from advisor.errors import StorageUnavailable
from advisor.offline import load_inventory
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import predictions
from advisor.store.engine import Database
from api.app import create_app
from models.evaluation.prediction_checks import WindowFigures, WindowKey
from profiler.observed import Colocation, Outcome
from tests.api import cli_runs
from tests.api.api_client import Client, bent_client, failing
from tests.servers.fixtures import sqlite_with_tables

CLOUD = Path(__file__).parent / "cloud.yaml"

GAUGES = ("cotenant_model_coverage", "cotenant_model_error", "cotenant_model_drift")


def observe(advisor: Advisor, ratio: float, count: int = 25) -> None:
    for number in range(count):
        batch = Outcome(Instance("b", vcpus=4, workload="batch"), "throughput", 50.0, 50.0 * ratio, "1/s")
        other = Outcome(Instance("c", vcpus=4, workload="batch"), "throughput", 50.0, None, "1/s")
        advisor.outcomes.record_colocation(Colocation(f"r{ratio}-{number}", "h1", "1", (batch, other)))


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "var").mkdir()
    sqlite_with_tables(tmp_path / "var" / "cotenant.sqlite3")
    with Advisor(Settings()) as advisor:
        advisor.inventory.put(load_inventory(CLOUD), mode="replace", generation=None)
    yield


def run(*arguments: str) -> Result:
    return cli_runs.run("models", "quality", *arguments)


@pytest.mark.usefixtures("_here")
def test_the_table_has_a_line_per_group_and_says_what_to_do() -> None:
    with Advisor(Settings()) as advisor:
        observe(advisor, 0.01)
    lines = run("analytic").stdout.splitlines()
    assert lines[0] == "Model analytic, the last 200 observations of each group:"
    assert "On platform h1: 0% of throughput lay in the 90 % intervals of analytic" in "\n".join(lines)
    assert any("`cotenant probe-plan`" in line for line in lines)
    header = next(number for number, line in enumerate(lines) if line.startswith("role"))
    cells = lines[header + 2].split()
    assert cells[:7] == ["active", "throughput", "platform", "h1", "25", "25", "0%"]
    assert "x 4.00  coverage since" in lines[header + 2]
    assert run().stdout == run("analytic").stdout


@pytest.mark.usefixtures("_here")
def test_json_is_the_answer_of_the_route() -> None:
    with Advisor(Settings()) as advisor:
        observe(advisor, 0.5)
        routed = Client(create_app(advisor, Settings())).get("/v1/models/analytic/quality?last=20").json()
    assert json.loads(run("analytic", "--last", "20", "--json").stdout) == routed
    assert routed["groups"][0]["figures"]["rows"] == 20


@pytest.mark.usefixtures("_here")
def test_measured_windows_stand_in_the_table_in_json_and_on_the_page() -> None:
    known = WindowFigures(rows=60, scenes=30, first_s=0, last_s=3600, error=-3, absolute=6, covered=48, bins={0: 60.0})
    settings = Settings()
    with Advisor(settings) as advisor:
        database = Database(settings.database)
        with database.write() as connection:
            predictions.put(connection, {WindowKey("analytic", "kvm", "measured", "forecast", contended=True): known})
        database.close()
        client = Client(create_app(advisor, settings))
        (reported,) = client.get("/v1/models/analytic/quality").json()["windows"]
        page = client.get("/models/analytic").text
    assert (reported["rows"], reported["scenes"], reported["coverage"], reported["error"]) == (60, 30, 0.8, 0.1)
    assert (reported["bias"], reported["widening"]) == (-0.05, None)
    lines = run("analytic").stdout
    assert "30 contended windows were held against analytic" in lines
    assert re.search(r"contended +before +kvm +measured +60 +30 +80% ", lines)
    assert "Predictions compared with measurements" in page and "contended, kvm, before" in page


@pytest.mark.usefixtures("_here")
def test_a_model_that_is_not_there_is_a_failure() -> None:
    result = run("nope")
    assert (result.exit_code, result.stderr) == (1, "cotenant: there is no model nope\n")


@pytest.mark.usefixtures("_here")
def test_nothing_observed_is_said_and_is_no_failure() -> None:
    result = run()
    assert result.exit_code == 0
    assert "Nothing was observed" in result.stdout


def metric(client: Client, name: str) -> float | None:
    line = f'{name}{{platform="h1",target="throughput",version="analytic"}} '
    found = [one for one in client.get("/metrics").text.splitlines() if one.startswith(line)]
    return float(found[0].removeprefix(line)) if found else None


def test_gauges_are_of_the_active_model_by_platform(client: Client, advisor: Advisor) -> None:
    assert [metric(client, name) for name in GAUGES] == [None, None, None]
    observe(advisor, 0.01)
    expected = advisor.outcomes.quality().groups[1].figures.error
    coverage, error, drift = (metric(client, name) for name in GAUGES)
    assert (coverage, drift) == (0.0, 1.0)
    assert error is not None
    assert math.isclose(error, expected)


def test_gauges_go_on_without_the_quality(advisor: Advisor, settings: Settings) -> None:
    gone = failing(StorageUnavailable("gone"))
    text = bent_client(advisor, settings, outcomes={"quality": gone}).get("/metrics").text
    assert "cotenant_ready 1.0" in text
    assert "cotenant_model_coverage" not in text
