"""Events as a stream over real sockets: they arrive, are resumed, and end with listener, token or service."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from advisor.access import audit, tokens
from advisor.errors import StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api.http import lanes
from api.routes import events
from tests.faults.http_server import Served, served
from tests.servers.fixtures import sqlite_with_tables

HOST = {"kind": "kvm", "pcpus": 8, "memory_mb": 65536}
Lines = Iterator[str]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event is sent once its second is over."""
    monkeypatch.setattr(audit, "HELD_BACK", timedelta(0))
    monkeypatch.setattr(lanes, "POLL_S", 0.05)
    monkeypatch.setattr(tokens, "CACHE_S", 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def service(folder: Any) -> Iterator[Served]:
    with served(folder) as found:
        yield found


@contextmanager
def listening(service: Served, query: str = "", **headers: str) -> Iterator[Lines]:
    """The lines of a stream, the first two of which were read: it has begun."""
    with httpx.stream("GET", f"{service.url}/v1/events{query}", headers=headers, timeout=120) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert [next(lines), next(lines)] == ["retry: 2000", ""]
        yield lines


def put(service: Served, name: str) -> None:
    httpx.put(f"{service.url}/v1/hosts/{name}", json=HOST, timeout=120).raise_for_status()


def next_of(lines: Lines) -> tuple[str, str, dict[str, Any]]:
    """Id, name and data of the next event."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if not line and "data" in found:
            return found["id"], found["event"], json.loads(found["data"])
        found[name] = value
    raise AssertionError("the stream has ended")


def test_events_reach_every_listener_once_and_in_order(service: Served) -> None:
    with listening(service) as one, listening(service) as other:
        put(service, "put-1")
        put(service, "put-2")
        for lines in (one, other):
            heard = [next_of(lines) for _ in range(2)]
            assert [(name, data["objects"]) for _, name, data in heard] == [
                ("inventory.changed", ["put-1"]),
                ("inventory.changed", ["put-2"]),
            ]
            assert heard[0][2]["generation"] + 1 == heard[1][2]["generation"]
            assert heard[0][0] < heard[1][0]


def test_who_lost_the_connection_hears_what_it_missed_first(service: Served) -> None:
    with listening(service) as lines:
        put(service, "heard")
        last, _, _ = next_of(lines)
    put(service, "missed-1")
    put(service, "missed-2")
    with listening(service, **{"Last-Event-ID": last}) as lines:
        assert [next_of(lines)[2]["objects"] for _ in range(2)] == [["missed-1"], ["missed-2"]]


def test_who_asks_for_some_kinds_hears_no_others(service: Served) -> None:
    with listening(service, "?kind=plan&kind=alarm") as lines:
        put(service, "unheard")
        plan = httpx.post(f"{service.url}/v1/plans", json={"kind": "evacuate", "empty": ["h2"]}, timeout=60).json()
        _, name, data = next_of(lines)
        assert (name, data["plan"], data["kind"], data["instances"]) == ("plan.made", plan["id"], "evacuate", 0)


def test_a_quiet_stream_has_comments(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUIET_S", 0.1)
    with listening(service) as lines:
        assert [next(lines) for _ in range(4)] == [": nothing new", ""] * 2


def test_the_stream_ends_in_good_order_when_the_service_stops(tmp_path: Any) -> None:
    with served(tmp_path) as service, listening(service) as lines:
        service.server.should_exit = True
        assert list(lines) == []  # httpx raises where the last chunk is missing


def test_who_comes_while_the_service_stops_is_sent_on(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state(service), "draining", True, raising=False)
    answer = service.get("/v1/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "service.stopping")


def state(service: Served) -> Any:
    app: Any = service.server.config.app
    return app.state


@pytest.mark.parametrize(("limit", "said"), [("MOST", "1 listen already"), ("EACH", "1 requests of yours")])
def test_there_is_room_for_so_many_and_for_another_when_one_leaves(
    service: Served, monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    monkeypatch.setattr(lanes, limit, 1)
    monkeypatch.setattr(lanes, "MANY", frozenset())
    with listening(service):
        refused = service.get("/v1/events")
        assert (refused.status_code, refused.json()["code"]) == (503, "service.busy")
        assert said in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
    eventually(lambda: not state(service).listeners._present.total())
    with listening(service):
        pass


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_all_who_listen_cost_one_look_at_the_database(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "POLL_S", 1.0)
    access, looks = state(service).listeners._access, []

    class Counted:
        def events(self, after: str | None) -> Any:
            looks.append(time.monotonic())
            return access.events(after)

    monkeypatch.setattr(state(service).listeners, "_access", Counted())
    with listening(service), listening(service), listening(service), listening(service):
        time.sleep(2.5)  # each begins at a moment of its own, and goes on from the same whole second
        before, began = len(looks), time.monotonic()
        time.sleep(4)
        seconds = time.monotonic() - began
    assert len(looks) - before <= 1.5 * (seconds + 1), "four who listen would look four times a second"


def test_the_stream_goes_on_when_the_database_comes_back(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    access, away = state(service).listeners._access, threading.Event()
    failed = threading.Event()

    class Away:
        def events(self, after: str | None) -> Any:
            if away.is_set():
                failed.set()
                raise StorageUnavailable("away")
            return access.events(after)

    monkeypatch.setattr(state(service).listeners, "_access", Away())
    with listening(service) as lines:
        away.set()
        assert failed.wait(30)
        put(service, "meanwhile")
        away.clear()
        assert next_of(lines)[2]["objects"] == ["meanwhile"]


def test_who_says_for_how_long_is_let_go_then_and_head_at_once(service: Served) -> None:
    began = time.monotonic()
    with listening(service, **{"X-Request-Timeout": "0.2"}) as lines:
        assert list(lines) == []
    assert time.monotonic() - began >= 0.2
    head = httpx.head(f"{service.url}/v1/events", timeout=120)
    assert (head.status_code, head.content) == (200, b"")


def test_what_is_no_id_of_an_event_is_refused_before_the_stream_begins(service: Served) -> None:
    answer = httpx.get(f"{service.url}/v1/events", headers={"Last-Event-ID": "yesterday"}, timeout=120)
    assert (answer.status_code, answer.json()["field"]) == (422, "last-event-id")
    assert service.get("/v1/events?kind=weather").status_code == 422


def test_who_listens_needs_a_token_and_is_let_go_when_it_is_revoked(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CHECK_S", 0.1)
    with served(tmp_path) as service:
        settings = Settings(database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path)
        with Advisor(settings) as advisor, listening(service) as unasked:
            made, text = advisor.access.tokens.create("listener", "read", lasts=None)
            _, agents = advisor.access.tokens.create("agent", "write", lasts=None, host="h1")
            assert list(unasked) == [], "there is a token now: who has none is let go"
            assert service.get("/v1/events").status_code == 401
            refused = httpx.get(f"{service.url}/v1/events", headers={"Authorization": f"Bearer {agents}"}, timeout=120)
            assert refused.status_code == 403
            with listening(service, Authorization=f"Bearer {text}") as lines:
                advisor.inventory.delete_instance("mystery")
                assert next_of(lines)[2]["operation"] == "instance.delete"
                advisor.access.tokens.revoke(made.id)
                assert list(lines) == []
