"""The service reports what it does: metrics that promtool accepts, of one worker or several; lines without secrets."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from advisor.deadline import STAGES, Stage
from advisor.errors import StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import ROUTES, create_app
from api.problems import KINDS
from api.telemetry import JsonLines, TextLines
from api.telemetry.logs import FIELDS
from tests.api.api_client import Client, bent_client, failing
from tests.servers.forked import Forked
from tests.servers.prometheus import promtool
from tests.servers.running import NotInstalled

ROOT = Path(__file__).resolve().parents[2]


def _metric(client: Client, line: str) -> str | None:
    return _value(client.get("/metrics").text, line)


def _value(text: str, line: str) -> str | None:
    return next((found.rpartition(" ")[2] for found in text.splitlines() if found.startswith(line + " ")), None)


def _check_with_promtool(text: str) -> None:
    try:
        checked = promtool("check", "metrics", text=text.encode())
    except NotInstalled as missing:
        pytest.skip(str(missing))
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_requests_are_counted_by_route_template_not_by_path(client: Client) -> None:
    for host in ("h1", "h2", "nope"):
        client.get(f"/v1/hosts/{host}")
    client.get("/v1/a-path-that-a-scanner-made-up")
    client.ask("BREW", "/v1/hosts")
    count = "cotenant_http_request_duration_seconds_count"
    assert _metric(client, f'{count}{{method="GET",route="/v1/hosts/{{host}}",status="200"}}') == "2.0"
    assert _metric(client, f'{count}{{method="GET",route="/v1/hosts/{{host}}",status="404"}}') == "1.0"
    assert _metric(client, f'{count}{{method="GET",route="unmatched",status="404"}}') == "1.0"
    assert "made-up" not in client.get("/metrics").text
    assert "BREW" not in client.get("/metrics").text


def test_the_stages_of_a_question_are_timed(client: Client) -> None:
    count = "cotenant_stage_duration_seconds_count"
    assert [_metric(client, f'{count}{{stage="{name}"}}') for name in STAGES] == ["0.0"] * len(STAGES)
    client.ask("POST", "/v1/placements", json={"instance": {"id": "n", "vcpus": 1}, "dry_run": True})
    passed = {name: _metric(client, f'{count}{{stage="{name}"}}') for name in STAGES}
    assert {name: float(times or 0) >= 1 for name, times in passed.items()} == dict.fromkeys(STAGES, True)
    assert passed["filters"] == passed["store"] == "1.0"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/placements", {"instance": {"id": "n", "vcpus": 1}, "dry_run": True}),
        ("/v1/placements", {"instance": {"id": "n", "vcpus": 1}}),
        ("/v1/placements", {"instance": {"id": "shop-3"}, "dry_run": True, "tune": True}),
        ("/v1/placements:batch", {"instances": [{"id": "n", "vcpus": 1}, {"id": "o", "vcpus": 2}], "dry_run": True}),
        ("/v1/placements:batch", {"instances": [{"id": "n", "vcpus": 1}, {"id": "o", "vcpus": 2}]}),
        ("/v1/placements:batch", {"instances": [{"id": "n", "vcpus": 1}], "order": "joint", "time_limit_s": 1}),
    ],
)
def test_stages_do_not_overlap_so_that_their_sum_is_part_of_the_time_of_the_request(
    client: Client, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    telemetry = client.app.state.telemetry
    stage = telemetry.stage
    passed: list[Stage] = []
    under_way: list[Stage] = []

    @contextmanager
    def watched(name: Stage) -> Iterator[None]:
        assert under_way == [], f"{name} within {under_way}"
        under_way.append(name)
        passed.append(name)
        with stage(name):
            yield
        under_way.remove(name)

    monkeypatch.setattr(type(telemetry), "stage", lambda _, name: watched(name))
    assert client.ask("POST", path, json=body).status_code == 200
    assert set(passed) >= {"snapshot", "filters", "predict", "store"}
    stages = [_metric(client, f'cotenant_stage_duration_seconds_sum{{stage="{name}"}}') for name in STAGES]
    route = f'{{method="POST",route="{path}",status="200"}}'
    whole = _metric(client, f"cotenant_http_request_duration_seconds_sum{route}")
    assert sum(float(each or 0) for each in stages) <= float(whole or 0)


def test_questions_and_samples_are_counted_by_what_came_of_them(client: Client) -> None:
    client.ask("POST", "/v1/placements", json={"instance": {"id": "n", "vcpus": 1}, "dry_run": True})
    client.ask("POST", "/v1/placements", json={"instance": {"id": "n", "vcpus": 1, "memory_mb": 1e9}, "dry_run": True})
    host = {"id": "x", "kind": "kvm", "pcpus": 2, "memory_mb": 1}
    client.ask(
        "POST", "/v1/predictions", json={"host": host, "instances": [{"id": "a", "vcpus": 1}, {"id": "b", "vcpus": 1}]}
    )
    sample = {"host": "h1", "metric": "event", "value": 1, "time": "2026-01-31T12:00:00Z"}
    client.ask("POST", "/v1/samples", json={"samples": [sample, {**sample, "host": "nope"}]})
    client.ask("POST", "/v1/samples", json={"samples": [sample]})
    assert _metric(client, 'cotenant_placements_total{degraded="false",outcome="placed"}') == "1.0"
    assert _metric(client, 'cotenant_placements_total{degraded="false",outcome="no_host"}') == "1.0"
    assert _metric(client, 'cotenant_predictions_total{degraded="false"}') == "2.0"
    assert _metric(client, 'cotenant_samples_total{result="accepted"}') == "1.0"
    assert _metric(client, 'cotenant_samples_total{result="duplicate"}') == "1.0"
    assert _metric(client, 'cotenant_samples_total{result="dropped"}') == "1.0"


def test_the_state_is_exported_at_every_scrape(client: Client) -> None:
    assert _metric(client, "cotenant_ready") == "1.0"
    assert _metric(client, "cotenant_hosts") == "6.0"
    assert _metric(client, 'cotenant_model_info{origin="analytic",version="analytic"}') == "1.0"
    assert float(_metric(client, "cotenant_snapshot_age_seconds") or "-1") >= 0
    assert _metric(client, "cotenant_hosts_without_data") == "0.0"
    client.ask("PUT", "/v1/hosts/silent", json={"kind": "kvm", "pcpus": 2, "memory_mb": 1})
    assert _metric(client, "cotenant_hosts") == "7.0"
    assert _metric(client, "cotenant_pending_answers") == "0.0"
    client.ask("POST", "/v1/placements", json={"instance": {"id": "n", "vcpus": 1}})
    assert _metric(client, "cotenant_pending_answers") == "1.0"


def test_hosts_that_fell_silent_are_counted(settings: Settings, client: Client) -> None:
    later = settings.model_copy(update={"fresh_s": 1e-6})
    with Advisor(later) as advisor:
        hosts = Client(create_app(advisor, later))
        assert _metric(hosts, "cotenant_hosts_without_data") == "0.0"  # no source promised to report them again
        dated = replace(advisor.cloud.inventory(), observed_at=datetime.now(UTC))
        advisor.inventory.put(dated, mode="merge", generation=None)
        assert _metric(hosts, "cotenant_hosts_without_data") == "6.0"


def test_what_is_remembered_is_counted_as_hits(client: Client) -> None:
    question = {"instance": {"id": "n", "vcpus": 1}, "dry_run": True}
    client.ask("POST", "/v1/placements", json=question)
    assert _metric(client, 'cotenant_remembered_answers_total{result="miss"}') == "1.0"
    missed = float(_metric(client, 'cotenant_remembered_lookups_total{result="miss"}') or 0)
    hits = float(_metric(client, 'cotenant_remembered_lookups_total{result="hit"}') or 0)
    client.ask("POST", "/v1/placements", json=question)
    assert _metric(client, 'cotenant_remembered_answers_total{result="hit"}') == "1.0"
    client.ask("POST", "/v1/placements", json=question | {"limit": 1})
    assert missed > 0
    assert float(_metric(client, 'cotenant_remembered_lookups_total{result="miss"}') or 0) == missed
    assert float(_metric(client, 'cotenant_remembered_lookups_total{result="hit"}') or 0) > hits


def test_problems_are_counted_by_their_code(client: Client) -> None:
    assert _metric(client, 'cotenant_problems_total{code="not_found"}') == "0.0", "there before the first one"
    client.get("/v1/hosts/nope")
    client.get("/v1/hosts?limit=-1")
    client.get("/v1/a-path-that-a-scanner-made-up")
    for code in ("not_found", "input.invalid", "route.unknown"):
        assert _metric(client, f'cotenant_problems_total{{code="{code}"}}') == "1.0", code


def test_what_is_under_way_is_reported_and_returns_to_nothing(client: Client) -> None:
    assert _metric(client, "cotenant_http_requests_in_progress") == "1.0", "the scrape itself"
    client.get("/v1/hosts/nope")
    assert _metric(client, "cotenant_http_requests_in_progress") == "1.0"
    for lane in ("question", "storage", "long"):
        assert float(_metric(client, f'cotenant_lane_threads{{lane="{lane}"}}') or 0) >= 1
        assert _metric(client, f'cotenant_lane_busy_threads{{lane="{lane}"}}') == "0.0"
        assert _metric(client, f'cotenant_lane_waiting_requests{{lane="{lane}"}}') == "0.0"


def test_promtool_accepts_every_name(client: Client) -> None:
    client.ask("POST", "/v1/placements", json={"instance": {"id": "n", "vcpus": 1}})
    client.get("/v1/hosts/nope")
    _check_with_promtool(client.get("/metrics").text)


def test_labels_stay_few_whatever_is_asked(client: Client) -> None:
    for number in range(50):
        client.get(f"/v1/hosts/made-up-{number}")
        client.get(f"/made-up-{number}")
        client.ask(f"M{number}", "/v1/hosts")
    allowed = {
        "route": {"unmatched", *(route.path for route in ROUTES)},
        "method": {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "other"},
        "code": {kind.code for kind in KINDS},
    }
    seen: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            for name, value in sample.labels.items():
                seen.setdefault(name, set()).add(value)
    assert {name: seen[name] - allowed[name] for name in allowed} == {name: set() for name in allowed}
    assert "made-up" not in str(seen)


def test_every_metric_is_on_the_page_of_monitoring(client: Client) -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    families = text_string_to_metric_families(client.get("/metrics").text)
    names = [f"{found.name}_total" if found.type == "counter" else found.name for found in families]
    names = [name for name in names if name.startswith("cotenant_")]
    assert len(names) >= 20
    assert [name for name in names if f"| `{name}` |" not in text] == []


WORKER = """
import os, sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from advisor.domain import Host
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.telemetry import counting
from tests.api.api_client import Client
shared, state = map(Path, sys.argv[1:3])
counting.share(shared)
settings = Settings(database=f"sqlite:///{state}/db.sqlite3", state_dir=state)
with Advisor(settings) as advisor:
    client = Client(create_app(advisor, settings))
    for name in sys.argv[3:]:
        if name.isdecimal():
            counting.worker_gone(int(name))
        elif name == "die":
            sys.stdout.flush()
            os._exit(1)
        elif name == "metrics":
            print(client.get("/metrics").text)
        else:
            client.ask("PUT", f"/v1/hosts/{name}", json={"kind": "kvm", "pcpus": 2, "memory_mb": 1})
            client.ask("POST", "/v1/placements", json={"instance": {"id": "n", "vcpus": 1}, "dry_run": True})
"""


def test_workers_are_added_up_and_the_dead_are_forgotten_but_for_what_they_counted(tmp_path: Path) -> None:
    """Two processes count in one folder as `cotenant serve --workers` makes them; the last one is scraped."""
    state, shared = tmp_path / "state", tmp_path / "shared"
    state.mkdir()
    shared.mkdir()
    program = tmp_path / "worker.py"
    program.write_text(WORKER, encoding="utf-8")

    def worker(*what: str) -> tuple[str, str]:
        """What it said, and its process id, with which the next one learns that it is gone."""
        started = Forked(program, shared, state, *what)
        return started.communicate(timeout=120), str(started.pid)

    _, first = worker("a", "b", "die")
    text, _ = worker(first, "c", "metrics")
    count = 'cotenant_http_request_duration_seconds_count{method="PUT",route="/v1/hosts/{host}",status="201"}'
    assert _value(text, count) == "3.0"
    assert _value(text, 'cotenant_placements_total{degraded="false",outcome="placed"}') == "3.0"
    assert _value(text, "cotenant_workers") == "1.0"
    assert _value(text, "cotenant_http_requests_in_progress") == "1.0", "those of the dead are under way no more"
    assert _value(text, "cotenant_hosts") == "3.0"
    assert float(_value(text, "process_resident_memory_bytes") or 0) > 1e7
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    assert len(names) == len(set(names))
    _check_with_promtool(text.strip() + "\n")


def test_metrics_go_on_without_the_database_and_only_the_log_says_which_it_is(
    advisor: Advisor, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    gone = failing(StorageUnavailable("database postgresql://operator@db.internal/x does not answer"))
    client = bent_client(advisor, settings, cloud={"vitals": gone, "ready": gone})
    assert _metric(client, "cotenant_ready") == "0.0"
    assert _metric(client, "cotenant_hosts") is None
    with caplog.at_level(logging.WARNING, "cotenant.errors"):
        ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["code"]) == (503, "storage.unavailable")
    assert "its database cannot be used" in ready.json()["detail"]
    assert "operator" not in ready.text
    assert "db.internal" not in ready.text
    assert "operator@db.internal" in caplog.text
    assert client.get("/healthz").status_code == 200


def test_a_database_file_that_was_deleted_is_reported_and_no_sample_is_taken(
    advisor: Advisor, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.get("/readyz").status_code == 200
    (tmp_path / "db.sqlite3").unlink()
    sample = {"host": "h1", "metric": "event", "value": 1.0, "time": datetime.now(UTC).isoformat()}
    with caplog.at_level(logging.WARNING, "cotenant.errors"):
        answers = [client.get("/readyz"), client.ask("POST", "/v1/samples", json={"samples": [sample]})]
    assert [(one.status_code, one.json()["code"]) for one in answers] == [(503, "storage.unavailable")] * 2
    assert "deleted or replaced" in caplog.text
    assert "deleted or replaced" in answers[1].json()["detail"]


def test_two_applications_count_apart(advisor: Advisor, settings: Settings, client: Client) -> None:
    client.get("/healthz")
    other = Client(create_app(advisor, settings))
    line = 'cotenant_http_request_duration_seconds_count{method="GET",route="/healthz",status="200"}'
    assert _metric(client, line) == "1.0"
    assert _metric(other, line) is None


def test_the_access_log_has_neither_query_nor_headers(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="cotenant.access"):
        client.get("/v1/hosts?cursor=secret-1", headers={"Authorization": "Bearer secret-2"})
    line = JsonLines().format(caplog.records[-1])
    reported = json.loads(line)
    assert (reported["method"], reported["route"], reported["path"], reported["status"]) == (
        "GET",
        "/v1/hosts",
        "/v1/hosts",
        422,
    )
    assert len(reported["request_id"]) == 32
    assert reported["duration_ms"] >= 0
    assert reported["bytes"] > 0
    assert "secret" not in line


def test_files_of_pages_and_probes_of_health_are_logged_only_where_they_fail(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="cotenant.access"):
        for path in ("/static/cotenant.css", "/healthz", "/readyz", "/static/nothing.css", "/cloud"):
            client.get(path)
    paths = [record.path for record in caplog.records if record.name == "cotenant.access"]  # type: ignore[attr-defined]
    assert paths == ["/static/nothing.css", "/cloud"]


def test_the_access_log_names_the_problem_and_who_asked(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="cotenant.access"):
        client.ask("POST", "/v1/placements", json={"instance": {"id": "secret-name", "vcpus": 0}})
    reported = json.loads(JsonLines().format(caplog.records[-1]))
    assert set(FIELDS) <= set(reported)
    assert (reported["code"], reported["actor"]) == ("input.invalid", "local")
    assert "secret-name" not in json.dumps(reported), "no body"


def test_lines_for_people_say_the_same(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="cotenant.access"):
        client.get("/v1/hosts/h1", headers={"X-Request-ID": "r-1"})
        client.get("/v1/hosts/a%20b=c%0A%1B[31m")
    plain, odd = (TextLines().format(record) for record in caplog.records[-2:])
    assert re.fullmatch(
        r"\S+ info cotenant\.access request request_id=r-1 method=GET route=/v1/hosts/\{host\} path=/v1/hosts/h1 "
        r"status=200 duration_ms=\S+ bytes=\d+ client=127\.0\.0\.1 actor=local",
        plain,
    )
    assert r'path="/v1/hosts/a b=c\n\u001b[31m"' in odd


@pytest.mark.parametrize("lines", [JsonLines(), TextLines()])
def test_a_log_line_is_one_line_whatever_is_in_it(lines: logging.Formatter) -> None:
    error = (ValueError, ValueError("broken\nhere"), None)
    line = lines.format(logging.LogRecord("x", logging.ERROR, "f", 1, "two\nlines\x1b[31m \u2028", (), error))
    assert line.isascii()
    assert line.isprintable()
    assert "broken" in line
    if isinstance(lines, JsonLines):  # nothing is lost
        assert json.loads(line)["message"] == "two\nlines\x1b[31m \u2028"
        assert "ValueError: broken\nhere" in json.loads(line)["traceback"]


def test_a_window_that_names_a_metric_twice_is_refused_for_one_of_its_values_would_be_lost(client: Client) -> None:
    window = {
        "host": "h1",
        "time": "2026-01-31T12:00:00Z",
        "metrics": ["cpu", "cpu"],
        "rows": [{"instance": "a", "values": [1, 2]}],
    }
    answer = client.ask("POST", "/v1/samples", json={"windows": [window]})
    assert answer.status_code == 422
    assert "windows.0: a metric stands twice" in answer.text
