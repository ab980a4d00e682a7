"""While another program holds SQLite's lock for writers, all that only reads is answered, and so is every dry run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from advisor.errors import NotFound, StorageLocked
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import transactions
from api.app import ROUTES, create_app
from tests.api.api_client import Client
from tests.servers.locking import locked

NEW = {"id": "new", "vcpus": 1, "memory_mb": 512}
POD = {"metadata": {"name": "new", "namespace": "a", "uid": "u-1"}, "spec": {"containers": [{"name": "a"}]}}
DRY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/placements", {"instance": NEW, "dry_run": True}),
    ("/v1/placements:batch", {"instances": [NEW], "dry_run": True}),
    ("/v1/placements:batch", {"instances": [NEW], "dry_run": True, "order": "joint", "time_limit_s": 1}),
    ("/v1/plans", {"kind": "rebalance", "time_limit_s": 1}),
    ("/v1/predictions", {"host": {"id": "h1", "kind": "xen", "pcpus": 4, "memory_mb": 1024}, "instances": [NEW]}),
    ("/kubernetes/filter", {"Pod": POD, "NodeNames": ["h1", "h2"]}),
    ("/kubernetes/preempt", {"Pod": POD, "NodeNameToMetaVictims": {"h1": {"Pods": []}}}),
    ("/kubernetes/prioritize", {"Pod": POD, "NodeNames": ["h1", "h2"]}),
)
SENT = {"{host}": "h1", "{instance}": "shop-3", "{workload}": "batch", "{version}": "analytic", "{cluster}": "c"}


@pytest.fixture
def asked_before(client: Client) -> dict[str, str]:
    """The ids of an answer and of a plan that are stored."""
    placement = client.ask("POST", "/v1/placements", json={"instance": NEW, "dry_run": True}).json()["id"]
    plan = client.ask("POST", "/v1/plans", json={"kind": "rebalance", "time_limit_s": 1}).json()["id"]
    return {**SENT, "{placement}": placement, "{plan}": plan, "{rollout}": "not-there"}


def test_every_get_route_is_answered(client: Client, settings: Settings, asked_before: dict[str, str]) -> None:
    unanswered = []
    with locked(settings):
        for route in ROUTES:
            if route.method != "GET":
                continue
            path = re.sub(r"\{\w+\}", lambda found: asked_before[found[0]], route.path)
            path += f"?a={asked_before['{plan}']}&b={asked_before['{plan}']}" if path == "/plans/compare" else ""
            headers = {"X-Request-Timeout": "1"} if path == "/v1/events" else {}
            answer = client.get(path, headers=headers)
            if answer.status_code >= 500:
                unanswered.append((path, answer.status_code, answer.text[:200]))
    assert unanswered == []


@pytest.mark.parametrize(("path", "body"), DRY, ids=[f"{path} {at}" for at, (path, _) in enumerate(DRY)])
def test_every_dry_run_is_answered_and_kept_once_the_lock_is_free(
    advisor: Advisor, client: Client, settings: Settings, path: str, body: dict[str, Any]
) -> None:
    with locked(settings):
        answer = client.ask("POST", path, json=body)
        assert answer.status_code == 200, answer.text
        if path in {"/v1/placements", "/v1/plans"}:
            assert client.get(f"{path}/{answer.json()['id']}").status_code == 200
    advisor.close()
    if path in {"/v1/placements", "/v1/plans"}:
        with Advisor(settings) as later:
            assert Client(create_app(later, settings)).get(f"{path}/{answer.json()['id']}").status_code == 200
            (entry, *_) = later.access.audit().items
            assert answer.json()["id"] in entry.objects
            assert entry.request_id == answer.headers["X-Request-ID"]


def test_a_dry_run_with_a_key_is_answered_too_and_what_holds_a_host_is_not(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.app.state.advisor._database, "_busy_s", 0.5)
    key = {"Idempotency-Key": "k-1"}
    with locked(settings):
        dry = client.ask("POST", "/v1/placements", json={"instance": NEW, "dry_run": True}, headers=key)
        held = client.ask("POST", "/v1/placements", json={"instance": NEW}, headers={"Idempotency-Key": "k-2"})
    assert (dry.status_code, held.status_code) == (200, 503)


def test_the_page_that_asks_is_answered(client: Client, settings: Settings) -> None:
    with locked(settings):
        assert client.page("/?ask=1+vCPU,+512+MB").status_code == 200
        assert client.page("/cloud").status_code == 200


def test_a_service_starts_and_commands_read(settings: Settings) -> None:
    with locked(settings), Advisor(settings) as advisor:
        assert len(advisor.inventory.hosts().items) == 6


def test_what_waits_is_bounded(advisor: Advisor, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST", 2)
    later = transactions.LaterWrites(advisor._transactions)
    with locked(settings):
        for number in range(2):
            later.write(lambda _: None, key=f"k{number}", value=number, synced=False)
        assert (later.find("k0"), later.find("k1"), later.find("k2")) == (0, 1, None)
        with pytest.raises(StorageLocked):
            later.write(lambda _: None, synced=False)
    later.close()
    assert later.find("k1") is None


def test_an_unknown_answer_is_not_found_while_the_database_is_locked(advisor: Advisor, settings: Settings) -> None:
    with locked(settings), pytest.raises(NotFound):
        advisor.placements.get("nope")
