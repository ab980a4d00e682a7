"""Rollouts by REST and on pages: made of a stored plan, approved by an administrator, shown, and frozen."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from advisor.domain import Change, Rollout
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.api_client import Client

CHANGE = Change(
    0,
    "h1",
    "shop-1",
    "weight",
    "control-groups",
    "lxc.payload.shop-1",
    {"cpu.shares": "1024"},
    {"cpu.shares": "<2048>"},
)


@pytest.fixture
def client(advisor: Advisor, settings: Settings) -> Client:
    advisor.changes.store(Rollout("r1", datetime(2026, 1, 2, tzinfo=UTC), "token:ann", "p1", (CHANGE,)))
    return Client(create_app(advisor, settings))


def test_a_rollout_is_listed_shown_and_approved_once(client: Client) -> None:
    (item,) = client.get("/v1/changes").json()["items"]
    assert (item["id"], item["state"], item["source"], item["verdict"]) == ("r1", "planned", "p1", "unknown")
    assert client.get("/v1/changes?state=stopped").json()["items"] == []
    approved = client.ask("POST", "/v1/changes/r1/approve")
    assert (approved.status_code, approved.json()["state"]) == (200, "approved")
    assert client.ask("POST", "/v1/changes/r1/approve").status_code == 409
    assert [line["event"] for line in client.get("/v1/changes/r1").json()["lines"]] == ["planned", "approved"]
    assert client.get("/v1/changes/absent").status_code == 404


def test_a_plan_that_is_not_there_is_none_to_carry_out(client: Client) -> None:
    assert client.ask("POST", "/v1/changes", json={"source": "absent"}).status_code == 404


def test_a_freeze_is_seen_and_ended(client: Client) -> None:
    assert client.get("/v1/freeze").json()["frozen"] is False
    assert client.ask("PUT", "/v1/freeze", json={"reason": "release"}).json()["reason"] == "release"
    assert client.get("/v1/freeze").json()["frozen"] is True
    assert "cotenant_changes_frozen 1.0" in client.get("/metrics").text
    assert client.ask("DELETE", "/v1/freeze").status_code == 204
    assert client.get("/v1/freeze").json()["frozen"] is False
    assert 'cotenant_rollouts{state="planned"} 1.0' in client.get("/metrics").text


def test_pages_show_the_list_and_the_ledger_and_escape_what_is_in_them(client: Client) -> None:
    listed = client.get("/changes")
    assert listed.status_code == 200
    assert 'href="/changes/r1"' in listed.text
    shown = client.get("/changes/r1")
    assert "&lt;2048&gt;" in shown.text
    assert "<2048>" not in shown.text
    assert client.get("/changes/absent").status_code == 404


def test_approvals_and_the_end_of_a_freeze_need_an_administrator(client: Client, advisor: Advisor) -> None:
    _, secret = advisor.access.tokens.create("writer", "write", lasts=None)
    advisor.access.tokens.create("admin", "admin", lasts=None)
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.ask("PUT", "/v1/freeze", json={}, headers=bearer).status_code == 200
    assert client.ask("POST", "/v1/changes/r1/approve", headers=bearer).status_code == 403
    assert client.ask("DELETE", "/v1/freeze", headers=bearer).status_code == 403


def test_the_maintenance_of_a_host_is_planned_shown_and_ended_by_rest_and_on_pages(client: Client) -> None:
    host = "m1"
    client.ask("PUT", "/v1/hosts/m1", json={"kind": "kvm", "pcpus": 4, "memory_mb": 4096})
    assert client.get(f"/v1/hosts/{host}/maintenance").json()["state"] == "none"
    made = client.ask("POST", f"/v1/hosts/{host}/maintenance")
    assert made.status_code == 201, made.text
    assert (made.json()["steps"][0]["kind"], made.json()["keeps"]) == ("host", True)
    assert client.get(f"/v1/hosts/{host}/maintenance").json()["state"] == "planned"
    assert [one["host"] for one in client.get("/v1/maintenance").json()] == [host]
    assert "End its maintenance" not in client.get(f"/hosts/{host}").text
    assert f"/changes/{made.json()['id']}" in client.get(f"/hosts/{host}").text
    ended = client.ask("DELETE", f"/v1/hosts/{host}/maintenance")
    assert (ended.status_code, ended.json()["steps"][0]["after"]) == (200, {"open": "yes"})
    assert client.ask("POST", "/v1/hosts/absent/maintenance").status_code == 404
