"""Several processes of the service on one PostgreSQL: a place is given once, whichever replicas are asked for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor import deadline
from advisor.domain import Host, Instance, Inventory, PlacementRequest, Recommendation
from advisor.placement import decision
from advisor.prediction.active import QuestionContext
from advisor.service import Advisor
from advisor.serving import placements
from advisor.settings import Settings
from advisor.snapshot import ClusterSnapshot
from advisor.store.answers import recommendations
from advisor.store.engine import Database
from advisor.store.instances import pending
from tests.advisor.store.at_once import at_once
from tests.servers.fixtures import empty_url, kind, postgres_server
from tests.servers.postgres import Postgres
from tests.servers.races import PLACE_MB, places, winners
from tests.servers.service import Service

__all__ = ["empty_url", "kind", "postgres_server"]

RACES = 20  # and 200 in tests/faults


def new_vm(name: str) -> dict[str, object]:
    return {"id": name, "vcpus": 1, "memory_mb": PLACE_MB - 24}


@pytest.fixture
def replicas(request: pytest.FixtureRequest, postgres_server: Postgres, tmp_path: Path) -> Iterator[list[Service]]:
    """Processes on one database, as many as the parameter says."""
    url = postgres_server.url(postgres_server.new_database())
    with ExitStack() as opened:
        services = [Service(url, tmp_path, forked=True) for _ in range(request.param)]
        for service in services:
            opened.callback(service.kill)
            service.start()
        yield services


@pytest.mark.parametrize("replicas", [2], indirect=True)
def test_a_place_that_one_replica_holds_is_taken_for_the_other(replicas: list[Service]) -> None:
    one, other = replicas
    assert one.ask("PUT", "/v1/inventory", places(2)).status == 200
    question = {"instance": new_vm("first"), "hosts": ["h0"]}
    held = one.ask("POST", "/v1/placements", question).body
    assert [candidate["host"] for candidate in held["candidates"]] == ["h0"]
    seen = other.ask("POST", "/v1/placements", {"instance": new_vm("next"), "dry_run": True}).body
    assert [candidate["host"] for candidate in seen["candidates"]] == ["h1"]
    assert [(no["host"], no["code"]) for no in seen["rejected"]] == [("h0", "capacity.memory")]
    assert other.ask("GET", f"/v1/placements/{held['id']}").status == 200


@pytest.mark.parametrize("replicas", [2, 4], indirect=True)
def test_of_replicas_that_race_for_the_last_place_exactly_one_gives_it(replicas: list[Service]) -> None:
    assert replicas[0].ask("PUT", "/v1/inventory", places(RACES)).status == 200
    assert [len(won) for won in winners(replicas, RACES)] == [1] * RACES


@pytest.mark.parametrize("replicas", [2], indirect=True)
def test_a_replica_that_is_killed_at_work_loses_no_answer_and_leaves_no_hold_without_one(
    replicas: list[Service],
) -> None:
    killed, left = replicas
    url = killed.database
    assert left.ask("PUT", "/v1/inventory", places(400)).status == 200
    given: dict[str, str] = {}  # answer → host, as they were acknowledged
    enough = threading.Event()

    def place() -> None:
        with suppress(OSError):  # it was killed
            for number in range(400):
                body = {"instance": new_vm(f"vm-{number}"), "limit": 1, "explain": False}
                answer = killed.ask("POST", "/v1/placements", body)
                given[answer.body["id"]] = answer.body["candidates"][0]["host"]
                if number == 5:
                    enough.set()

    worker = threading.Thread(target=place)
    worker.start()
    try:
        assert enough.wait(120)
        killed.kill()
    finally:
        worker.join()
    for answer_id, host in given.items():
        stored = left.ask("GET", f"/v1/placements/{answer_id}")
        assert [candidate["host"] for candidate in stored.body["candidates"]] == [host]
    database = Database(url)
    with database.read() as connection:
        held = dict(connection.execute(sa.select(pending.c.recommendation, pending.c.host)).all())
        known = set(connection.scalars(sa.select(recommendations.c.id)))
    database.close()
    assert given.items() <= held.items()
    assert held.keys() <= known
    assert len(held) - len(given) <= 1  # the one that was held and not heard of
    more = left.ask("POST", "/v1/placements", {"instance": new_vm("after"), "limit": 400})
    free = {candidate["host"] for candidate in more.body["candidates"]}
    assert not free & set(held.values())
    assert len(free) + len(held) == 400


def test_where_others_always_come_first_an_answer_is_made_while_they_wait(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a single free attempt each answer is made alone: no place is given twice, and none is left."""
    monkeypatch.setattr(placements, "_ATTEMPTS", 0)
    settings, given = Settings(database=empty_url, state_dir=tmp_path), []

    def place(advisor: Advisor, name: str) -> None:
        for number in range(4):
            request = PlacementRequest(Instance(f"{name}{number}", memory_mb=1000.0))
            given.append(advisor.placements.place(request).recommendation.candidates[0].host)

    with Advisor(settings) as one, Advisor(settings) as other:
        hosts = tuple(Host(f"h{number}", "kvm", 4, PLACE_MB) for number in range(8))
        one.inventory.put(Inventory(hosts, ()), mode="merge", generation=None)
        at_once(lambda: place(one, "a"), lambda: place(other, "b"))
    assert sorted(given) == [f"h{number}" for number in range(8)]


def test_an_answer_that_takes_long_lets_other_replicas_hold_meanwhile(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is begun while the others wait, given up, and made beside them: here it ends only after theirs was held."""
    monkeypatch.setattr(placements, "_ATTEMPTS", 0)
    monkeypatch.setattr(placements, "_ALONE_S", 0.05)
    settings = Settings(database=empty_url, state_dir=tmp_path)
    begun, held = threading.Event(), threading.Event()
    recommend, given = decision.recommend, {}

    def slow(snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest) -> Recommendation:
        if request.limit == 1:
            begun.set()
            while not held.wait(0.01):
                deadline.check()
        return recommend(snapshot, context, request)

    def place(advisor: Advisor, name: str, limit: int) -> None:
        request = PlacementRequest(Instance(name, memory_mb=1000.0), limit=limit)
        with deadline.within(60):
            given[name] = advisor.placements.place(request).recommendation.candidates[0].host

    def other_replica() -> None:
        assert begun.wait(60)
        place(other, "quick", 2)
        held.set()

    monkeypatch.setattr(decision, "recommend", slow)
    with Advisor(settings) as one, Advisor(settings) as other:
        one.inventory.put(
            Inventory((Host("h0", "kvm", 4, PLACE_MB), Host("h1", "kvm", 4, PLACE_MB)), ()),
            mode="merge",
            generation=None,
        )
        at_once(lambda: place(one, "slow", 1), other_replica)
    assert sorted(given.values()) == ["h0", "h1"]
