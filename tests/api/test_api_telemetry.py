"""The service tells what it does: metrics by route, log lines as JSON without secrets."""

from __future__ import annotations

import json
import logging

import pytest
from api_client import Bent, Client, failing

from advisor.errors import StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.telemetry import JsonLines


def _metric(client: Client, line: str) -> str | None:
    text = client.get("/metrics").text
    return next((found.rpartition(" ")[2] for found in text.splitlines() if found.startswith(line + " ")), None)


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


def test_questions_and_samples_are_counted_by_what_came_of_them(client: Client) -> None:
    client.ask("POST", "/v1/placements", json={"instance": {"name": "n"}, "dry_run": True})
    client.ask("POST", "/v1/placements", json={"instance": {"name": "n", "memory_mb": 1e9}, "dry_run": True})
    host = {"id": "x", "kind": "kvm", "pcpus": 2, "memory_mb": 1}
    client.ask("POST", "/v1/predictions", json={"host": host, "instances": [{"id": "a"}, {"id": "b"}]})
    sample = {"host": "h1", "metric": "event", "value": 1, "time": "2026-01-31T12:00:00Z"}
    client.ask("POST", "/v1/samples", json={"samples": [sample, {**sample, "host": "nope"}]})
    client.ask("POST", "/v1/samples", json={"samples": [sample]})
    assert _metric(client, 'cotenant_placements_total{degraded="false",outcome="placed"}') == "1.0"
    assert _metric(client, 'cotenant_placements_total{degraded="false",outcome="no_host"}') == "1.0"
    assert _metric(client, 'cotenant_predictions_total{degraded="false"}') == "2.0"
    assert _metric(client, 'cotenant_samples_total{result="accepted"}') == "1.0"
    assert _metric(client, 'cotenant_samples_total{result="duplicate"}') == "1.0"
    assert _metric(client, 'cotenant_samples_total{result="dropped"}') == "1.0"


def test_the_state_is_told_at_every_scrape(client: Client) -> None:
    assert _metric(client, "cotenant_ready") == "1.0"
    assert _metric(client, "cotenant_hosts") == "6.0"
    assert _metric(client, 'cotenant_model_info{version="prior"}') == "1.0"
    assert float(_metric(client, "cotenant_snapshot_age_seconds") or "-1") >= 0


def test_metrics_go_on_without_the_database(advisor: Advisor, settings: Settings) -> None:
    bent = Bent(advisor, ready=failing(StorageUnavailable("gone")))
    client = Client(create_app(bent, settings))  # type: ignore[arg-type]
    assert _metric(client, "cotenant_ready") == "0.0"
    assert _metric(client, "cotenant_hosts") is None
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200


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
    told = json.loads(line)
    assert (told["method"], told["route"], told["path"], told["status"]) == ("GET", "/v1/hosts", "/v1/hosts", 422)
    assert len(told["request_id"]) == 32
    assert told["duration_ms"] >= 0
    assert told["bytes"] > 0
    assert "secret" not in line


def test_a_log_line_is_one_line_whatever_is_in_it() -> None:
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "two\nlines\x1b[31m \u2028", (), None)
    error = ValueError("broken\nhere")
    record.exc_info = (ValueError, error, error.__traceback__)
    line = JsonLines().format(record)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == "two\nlines\x1b[31m \u2028"
    assert "ValueError: broken" in json.loads(line)["traceback"]
