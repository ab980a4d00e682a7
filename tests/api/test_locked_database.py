"""While another program holds SQLite's lock for writers, all that only reads is answered, and so is every dry run."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from advisor.domain import Host, Instance, PlacementRequest
from advisor.errors import NotFound, StorageLocked
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import counters, transactions
from advisor.store.engine import Database
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


@pytest.mark.parametrize("spoilt", [None, 0, 3, 5])
def test_what_waited_is_stored_together_and_what_cannot_be_stored_spoils_nothing_else(
    advisor: Advisor, settings: Settings, spoilt: int | None
) -> None:
    later, turns = transactions.LaterWrites(advisor._transactions), []

    def store(number: int, connection: Connection) -> None:
        turns.append(connection)
        if number == spoilt:
            raise ValueError(number)
        counters.bump(connection, "series")

    with locked(settings):
        for number in range(6):
            later.write(partial(store, number), synced=False)
    later.close()
    with advisor._transactions.read() as connection:
        assert counters.read(connection).series == (6 if spoilt is None else 5)
    if spoilt is None:
        assert len({id(connection) for connection in turns}) == 1


def test_an_answer_that_another_process_is_about_to_store_is_found(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "SOON_S", 60.0)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    got: list[object] = []
    with Advisor(settings, clock=lambda: now) as first, Advisor(settings, clock=lambda: now) as second:
        with locked(settings):
            answer = first.placements.place(PlacementRequest(Instance("new", vcpus=1, memory_mb=512), dry_run=True))
            readers = [
                threading.Thread(target=lambda: got.append(second.placements.get(answer.head.id).id)),
                threading.Thread(target=lambda: got.append(second.outcomes.get(answer.head.id).recommendation.id)),
            ]
            for reader in readers:
                reader.start()
        for reader in readers:
            reader.join(60)
        with pytest.raises(NotFound):  # of another second: it is not waited for
            second.placements.get(f"{1:012x}-{answer.head.id[-10:]}")
    assert got == [answer.head.id] * 2


def test_an_unknown_answer_is_not_found_while_the_database_is_locked(advisor: Advisor, settings: Settings) -> None:
    with locked(settings), pytest.raises(NotFound):
        advisor.placements.get("nope")


def test_writers_of_a_process_take_turns_and_no_dry_run_or_reader_is_turned_away(
    client: Client, advisor: Advisor
) -> None:
    """Two that write without a pause, beside 40 dry runs and as many reads; turns are counted."""
    ended, turns = threading.Event(), [0, 0]
    begun = threading.Barrier(3)

    def write(number: int) -> None:
        begun.wait(60)
        while not ended.is_set():
            advisor.inventory.put_host(Host(f"w{number}", "kvm", 4, 1024 + turns[number]))
            turns[number] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    begun.wait(60)
    statuses: Counter[int] = Counter()
    for at in range(40):
        dry = {"instance": {**NEW, "id": f"new{at}"}, "dry_run": True}
        statuses[client.ask("POST", "/v1/placements", json=dry).status_code] += 1
        statuses[client.get("/v1/hosts").status_code] += 1
    ended.set()
    for writer in writers:
        writer.join(60)
    assert statuses == {200: 80}
    assert min(turns) > 0


def test_who_waits_for_the_turn_to_write_comes_next(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/c.sqlite3", busy_s=60)
    order: list[int] = []
    waiting = database._turn._waiting

    def write(number: int) -> None:
        with database.write():
            order.append(number)
            while len(waiting) < 3 and len(order) < 30:  # the others have come
                time.sleep(0.001)

    def writes(number: int) -> None:
        for _ in range(10):
            write(number)

    writers = [threading.Thread(target=writes, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    database.close()
    assert sorted(order) == sorted([*range(4)] * 10)
    assert all(len(set(order[at : at + 4])) == 4 for at in range(24))  # no one twice before each other one
