"""Several replicas on one database: what one writes all see at once, nothing is lost, and models change everywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest
from advisor.errors import StaleGeneration
from advisor.offline import train
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.observed import MetricSample
from tests.advisor.store.at_once import at_once
from tests.servers.fixtures import empty_url, kind, postgres_server
from tests.servers.postgres import Postgres
from tests.servers.races import places, winners
from tests.servers.service import Service

__all__ = ["empty_url", "kind", "postgres_server"]

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 20
RACES = 200


@pytest.fixture
def settings(empty_url: str, tmp_path: Path) -> Settings:
    return Settings(database=empty_url, state_dir=tmp_path)


@pytest.fixture
def two(settings: Settings) -> Iterator[tuple[Advisor, Advisor]]:
    with Advisor(settings) as one, Advisor(settings) as other:
        yield one, other


def test_what_one_replica_writes_the_other_answers_with_at_once(two: tuple[Advisor, Advisor]) -> None:
    one, other = two
    for number in range(5):
        one.inventory.put_host(Host(f"h{number}", "kvm", 4, 8192))
        began = time.monotonic()
        assert other.cloud.ready()["hosts"] == number + 1
        request = PlacementRequest(Instance("new"), hosts=(f"h{number}",), dry_run=True)
        answer = other.placements.place(request).recommendation
        assert [candidate.host for candidate in answer.candidates] == [f"h{number}"]
        assert time.monotonic() - began < 1.0


def test_of_writers_that_read_the_same_generation_one_wins_and_no_update_is_lost(two: tuple[Advisor, Advisor]) -> None:
    written: list[int] = []
    stale: list[str] = []

    def write(advisor: Advisor, name: str) -> None:
        for number in range(ROUNDS):
            while True:
                generation = advisor.inventory.generation()
                cloud = Inventory((Host(f"{name}{number}", "kvm", 4, 1024),), ())
                try:
                    written.append(advisor.inventory.put(cloud, mode="merge", generation=generation))
                    break
                except StaleGeneration:
                    stale.append(name)

    at_once(lambda: write(two[0], "a"), lambda: write(two[1], "b"))
    assert sorted(written) == list(range(1, 2 * ROUNDS + 1))  # each got a generation of its own
    assert {host.id for host in two[0].inventory.hosts(limit=1000).items} == {
        f"{name}{number}" for name in "ab" for number in range(ROUNDS)
    }
    with pytest.raises(StaleGeneration):
        two[0].inventory.put(Inventory((), ()), mode="replace", generation=written[0])


def test_answers_of_two_replicas_do_not_fill_the_same_place(two: tuple[Advisor, Advisor]) -> None:
    """Each host has memory for one: two replicas that do not see each other's answers would give it twice."""
    cloud = Inventory(tuple(Host(f"h{number}", "kvm", 4, 1024.0) for number in range(8)), ())
    two[0].inventory.put(cloud, mode="merge", generation=None)
    given: list[str] = []

    def place(advisor: Advisor, name: str) -> None:
        for number in range(4):
            request = PlacementRequest(Instance(f"{name}{number}", memory_mb=1000.0))
            given.append(advisor.placements.place(request).recommendation.candidates[0].host)

    at_once(lambda: place(two[0], "a"), lambda: place(two[1], "b"))
    assert sorted(given) == [f"h{number}" for number in range(8)]


@pytest.mark.parametrize("count", [2, 4])
def test_of_200_races_for_the_last_place_each_is_won_once(
    count: int, postgres_server: Postgres, tmp_path: Path
) -> None:
    url = postgres_server.url(postgres_server.new_database())
    with ExitStack() as opened:
        replicas = [Service(url, tmp_path, forked=True) for _ in range(count)]
        for replica in replicas:
            opened.callback(replica.kill)
            replica.start()
        assert replicas[0].ask("PUT", "/v1/inventory", places(RACES)).status == 200
        won = winners(replicas, RACES)
    assert [len(each) for each in won] == [1] * RACES
    assert {at for each in won for at in each} == set(range(count)), "a replica never wins: it was no race"


def test_samples_that_two_replicas_get_at_once_are_stored_once(two: tuple[Advisor, Advisor]) -> None:
    cloud = Inventory((Host("h1", "kvm", 4, 1024), Host("h2", "kvm", 4, 1024)), ())
    two[0].inventory.put(cloud, mode="merge", generation=None)
    begin = datetime.now(UTC).timestamp() - 5000
    batches = [
        [
            MetricSample(host, None, "host", f"m{number}", 1.0, begin + 100 * batch + number)
            for number in range(50)
            for host in ("h1", "h2")
        ]
        for batch in range(10)
    ]
    accepted: list[int] = []

    def send(advisor: Advisor, turned: bool) -> None:
        # the other way round: the order in which rows come must not matter
        accepted.extend(advisor.telemetry.ingest(batch[::-1] if turned else batch)["accepted"] for batch in batches)

    at_once(lambda: send(two[0], False), lambda: send(two[1], True))
    assert sum(accepted) == sum(map(len, batches))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real artifact."""
    return train([ROOT / "datasets" / "papers"], settings=Settings(state_dir=tmp_path_factory.mktemp("training")))


def test_a_model_that_one_replica_activates_answers_on_all(two: tuple[Advisor, Advisor], trained: Path) -> None:
    assert [advisor.cloud.ready()["model"] for advisor in two] == ["analytic", "analytic"]
    version = two[0].models.register(trained).version
    two[0].models.activate(version, force=True)
    answers = [advisor.cloud.ready() for advisor in two]
    assert [(answer["model"], answer["degraded"]) for answer in answers] == [(version, False)] * 2
    two[1].models.roll_back()
    assert [advisor.cloud.ready()["model"] for advisor in two] == ["analytic", "analytic"]


def test_replicas_that_start_at_once_on_an_empty_database_make_its_tables_once(settings: Settings) -> None:
    def start() -> int:
        with Advisor(settings) as advisor:
            return advisor.inventory.generation()

    assert at_once(*[start] * 4) == [0] * 4
