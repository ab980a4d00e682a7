"""What is shipped for Prometheus and Grafana: rules that fire and keep silent, a board whose metrics there are."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from advisor.domain import Host, Instance
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from profiler.agent.exporter import page
from profiler.agent.loop import BUCKETS_S, REASONS, WINDOW_REASONS, AgentView
from profiler.agent.push import PushStatus
from profiler.agent.spool import SpoolStatus
from profiler.collectors.windows import Key, MetricWindow, Statistic
from profiler.metrics import ADDITIONAL_UNITS, EIGHT
from profiler.observed import Colocation, Outcome
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.prometheus import Prometheus, prometheus, promtool
from tests.servers.running import NotInstalled

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "integrations" / "prometheus"
RULES = yaml.load((SHIPPED / "cotenant.rules.yml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
TESTS = yaml.load((SHIPPED / "cotenant.rules.test.yml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["tests"]
BOARD = json.loads((ROOT / "integrations" / "grafana" / "cotenant.json").read_text(encoding="utf-8"))
PANELS = {panel["id"]: panel for panel in BOARD["panels"] if panel["type"] != "row"}
NAME = re.compile(r"\b(?:cotenant|process)_[a-z0-9_]+\b|\bup\b")


def tool(*arguments: str, cwd: Path) -> tuple[int, str]:
    try:
        done = promtool(*arguments, cwd=cwd)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The name of every series that the service and the agent show, and `up`, which Prometheus makes."""
    folder = tmp_path_factory.mktemp("state")
    settings = Settings(database=sqlite_with_tables(folder / "db.sqlite3"), state_dir=folder)
    with Advisor(settings) as advisor:
        advisor.inventory.put_host(Host("h1", "kvm", 4, 8192))
        advisor.inventory.put_instance(Instance("a", host="h1"))  # without a VM there are no scores
        advisor.outcomes.record_colocation(_outcome())
        service = create_app(advisor, settings).state.telemetry.exposition("")[0].decode()
    found = {"up"}
    for text in (
        service,
        page(agent_view(), SpoolStatus(*[0] * 8), PushStatus(0, 0, {"x": 0}, 0, {"x": 0}, 1.0), "1").decode(),
    ):
        found |= {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    # No request was answered, so that the histogram has no series yet; its names follow from its own.
    return found | {f"cotenant_http_request_duration_seconds_{end}" for end in ("bucket", "count", "sum")}


def _outcome() -> Colocation:
    """What two instances reached on h1, so that the model in use is judged by something."""
    pair = (Instance("a", host="h1"), Instance("b", host="h1"))
    outcomes = tuple(Outcome(one, "throughput", 100.0, 90.0, "req/s") for one in pair)
    return Colocation("run-1", "h1", "1", outcomes)


def agent_view() -> AgentView:
    keys: list[Key] = [("i1", "instance", metric.name) for metric in EIGHT if "instance" in metric.scopes]
    keys += [("i1", "instance", name) for name in ADDITIONAL_UNITS]
    keys += [(None, scope, metric.name) for metric in EIGHT for scope in metric.scopes if scope != "instance"]
    keys += [(None, "host", "steal"), (None, "host", "busy")]
    series: dict[Any, Statistic] = {key: Statistic(1.0, 1.0, 10) for key in keys}
    window = MetricWindow("h1", 0.0, 10.0, series, 0)
    return AgentView(
        "h1", "lxc", dict.fromkeys(series, 1.0), window, 0, dict.fromkeys(REASONS, 0), 0,
        dict.fromkeys(WINDOW_REASONS, 0), tuple([0] * (len(BUCKETS_S) + 1)), 0.0,
    )  # fmt: skip


def test_the_rules_are_well_formed_and_every_alert_says_where_to_look() -> None:
    code, said = tool("check", "rules", "--lint-fatal", "cotenant.rules.yml", cwd=SHIPPED)
    assert code == 0, said
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{name.lower()}"
        assert f"\n### {name}\n" in guide
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_every_alert_fires_and_keeps_silent_where_it_should() -> None:
    code, said = tool("test", "rules", "cotenant.rules.test.yml", cwd=SHIPPED)
    assert code == 0, said


def test_every_alert_is_tested_both_ways() -> None:
    fires: dict[str, set[bool]] = {}
    for test in TESTS:
        for one in test["alert_rule_test"]:
            if one["eval_time"] != "0m":
                fires.setdefault(one["alertname"], set()).add(bool(one["exp_alerts"]))
    assert fires == {name: {True, False} for name in ALERTS}


def test_the_tests_of_an_alert_fail_without_it(tmp_path: Path) -> None:
    shutil.copy(SHIPPED / "cotenant.rules.test.yml", tmp_path)
    silent = [{**rule, "expr": "vector(0) > 1"} for rule in ALERTS.values()]
    (tmp_path / "cotenant.rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": silent}]}))
    code, said = tool("test", "rules", "cotenant.rules.test.yml", cwd=tmp_path)
    assert code != 0
    assert {name for name in ALERTS if re.search(rf"alertname: {name},", said)} == set(ALERTS)


def test_the_rules_name_only_metrics_that_there_are(names: set[str]) -> None:
    used = {metric for rule in ALERTS.values() for metric in NAME.findall(rule["expr"])}
    assert used - names == set()


@pytest.mark.parametrize("folder", [SHIPPED, ROOT / "packaging" / "container"], ids=["example", "container"])
def test_prometheus_accepts_the_scrape_configuration(folder: Path, tmp_path: Path) -> None:
    for file in (*SHIPPED.glob("*.rules.yml"), folder / "prometheus.yml"):
        shutil.copy(file, tmp_path)
    text = (tmp_path / "prometheus.yml").read_text(encoding="utf-8")
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/", ""), encoding="utf-8")
    (tmp_path / "cotenant.token").write_text("x", encoding="utf-8")
    (tmp_path / "targets").mkdir()
    for name in ("cotenant.yml", "agents.yml"):
        (tmp_path / "targets" / name).write_text("- targets: [127.0.0.1:1]\n", encoding="utf-8")
    code, said = tool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert code == 0, said
    assert "WARNING" not in said


@pytest.fixture(scope="module")
def parser() -> Iterator[Prometheus]:
    try:
        with prometheus({}) as running:
            yield running
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("number", sorted(PANELS), ids=lambda number: str(PANELS[number]["title"]))
def test_a_panel_asks_what_prometheus_understands_of_metrics_that_there_are(
    number: int, names: set[str], parser: Prometheus
) -> None:
    panel = PANELS[number]
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", "5m").replace("$job", ".+").replace("$host", "h1")
        assert "$" not in query
        used = set(NAME.findall(query))
        assert used
        assert used - names == set()
        assert parser.ask("format_query", query=query)


def test_the_board_has_one_place_for_every_panel_and_the_variables_it_uses() -> None:
    variables = {one["name"] for one in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)", json.dumps(BOARD["panels"]))) <= variables
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in BOARD["panels"])


# What a panel and a variable must and may say: https://github.com/grafana/grafana, kinds/dashboard/dashboard_kind.cue
# (schema 36 and later), and transformers and units of packages/grafana-data.
PANEL_TYPES = {"row", "stat", "table", "timeseries"}  # of those that Grafana brings along
UNITS = {"short", "percentunit", "s", "reqps", "cps", "bytes"}  # of its valueFormats/categories.ts
TRANSFORMATIONS = {"merge", "organize"}
VARIABLE_TYPES = {"query", "adhoc", "constant", "datasource", "interval", "textbox", "custom", "system"}


def test_the_board_says_what_grafana_requires_of_one() -> None:
    assert 8 <= len(BOARD["uid"]) <= 40
    assert BOARD["schemaVersion"] >= 36
    assert BOARD["graphTooltip"] in (0, 1, 2)
    assert isinstance(BOARD["editable"], bool)
    assert set(BOARD["time"]) == {"from", "to"}
    assert "id" not in BOARD, "it is of one Grafana alone"
    for variable in BOARD["templating"]["list"]:
        assert variable["type"] in VARIABLE_TYPES
        assert variable.get("hide", 0) in (0, 1, 2)
        assert variable["type"] != "query" or variable["refresh"] in (1, 2)


@pytest.mark.parametrize("panel", BOARD["panels"], ids=lambda panel: str(panel["title"]))
def test_a_panel_says_what_grafana_requires_of_one(panel: dict[str, Any]) -> None:
    place = panel["gridPos"]
    assert place["h"] > 0
    assert 0 < place["w"] <= 24
    assert 0 <= place["x"] < 24
    assert place["y"] >= 0
    assert panel["type"] in PANEL_TYPES
    if panel["type"] == "row":
        assert (panel["collapsed"], panel["panels"]) == (False, [])
        return
    defaults = panel["fieldConfig"]["defaults"]
    assert isinstance(panel["fieldConfig"]["overrides"], list)
    assert defaults["unit"] in UNITS
    steps = defaults.get("thresholds", {"mode": "absolute", "steps": [{"color": "green", "value": None}]})
    values = [step["value"] for step in steps["steps"]]
    assert steps["mode"] in {"absolute", "percentage"}
    assert values[0] is None, "the first step begins at minus infinity"
    assert values[1:] == sorted(values[1:])
    assert all(mapping["type"] in {"value", "range", "regex", "special"} for mapping in defaults.get("mappings", []))
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)
    assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    assert all(target["range"] != target["instant"] for target in panel["targets"])
    assert {one["id"] for one in panel.get("transformations", [])} <= TRANSFORMATIONS
    if panel["type"] == "table" and len(references) > 1:
        assert panel["transformations"][0]["id"] == "merge", "else only the first query's table is shown"


def test_no_two_panels_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
