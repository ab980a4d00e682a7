"""The clock of the service was wrong and is set right: what it noted meanwhile counts for no longer than it should."""

from __future__ import annotations

from datetime import timedelta

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, Recommendation, WorkloadProfile
from advisor.inventories.reading import Reading
from advisor.service import Advisor
from advisor.serving.recommendations import FORMER, RecommendationCache
from advisor.snapshot import ClusterSnapshot
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

HOUR, DAY = 3600.0, 86_400.0
HOSTS = tuple(Host(name, "kvm", 2, 4096, labels={"source": "test"}) for name in ("h1", "h2"))


def ask(name: str, *, dry_run: bool = True) -> PlacementRequest:
    return PlacementRequest(Instance(name, memory_mb=1024.0, workload="busy"), dry_run=dry_run)


def rejected(answer: Recommendation) -> dict[str, str]:
    return {one.host: one.code for one in answer.rejected}


def sample(host: str, clock: Clock) -> MetricSample:
    return MetricSample(host, None, "host", "event", 1.0, clock.now.timestamp())


@pytest.fixture(autouse=True)
def _cloud(advisor: Advisor) -> None:
    cloud = Inventory(HOSTS, workloads=(WorkloadProfile("busy", {"cpu": 100.0}),))
    advisor.inventory.put(cloud, mode="replace", generation=None)


@pytest.mark.parametrize("asked_meanwhile", [False, True])
def test_a_host_heard_of_while_the_clock_was_ahead_is_without_data_until_it_is_heard_of_again(
    advisor: Advisor, clock: Clock, asked_meanwhile: bool
) -> None:
    clock.turn(30 * DAY)
    assert advisor.telemetry.ingest([sample("h1", clock), sample("h2", clock)])["accepted"] == 2
    if asked_meanwhile:
        assert rejected(advisor.placements.place(ask("a")).recommendation) == {}
    clock.turn(2 * HOUR - 30 * DAY)
    assert rejected(advisor.placements.place(ask("b")).recommendation) == {"h1": "host.no_data", "h2": "host.no_data"}
    assert advisor.telemetry.ingest([sample("h2", clock)])["accepted"] == 1
    assert rejected(advisor.placements.place(ask("c")).recommendation) == {"h1": "host.no_data"}


def test_a_host_read_from_another_system_while_the_clock_was_ahead_is_heard_of_anew(
    advisor: Advisor, clock: Clock
) -> None:
    reading = Reading("test", (), hosts=tuple({"id": host.id, "kind": "kvm"} for host in HOSTS))
    clock.turn(30 * DAY)
    advisor.inventory.follow(reading)
    clock.turn(2 * HOUR - 30 * DAY)
    assert set(rejected(advisor.placements.place(ask("a")).recommendation)) == {"h1", "h2"}
    advisor.inventory.follow(reading)
    assert rejected(advisor.placements.place(ask("b")).recommendation) == {}


def test_a_little_skew_between_clocks_keeps_hosts_fresh_and_answers_held(advisor: Advisor, clock: Clock) -> None:
    clock.turn(120)
    assert advisor.telemetry.ingest([sample("h1", clock), sample("h2", clock)])["accepted"] == 2
    taken = advisor.placements.place(ask("a", dry_run=False)).recommendation.candidates[0].host
    clock.turn(-120)
    answer = advisor.placements.place(ask("b")).recommendation
    assert rejected(answer) == {}
    assert answer.candidates[0].host != taken


@pytest.mark.parametrize("asked_meanwhile", [False, True])
def test_an_answer_held_while_the_clock_was_ahead_holds_nothing_once_it_is_right(
    advisor: Advisor, clock: Clock, asked_meanwhile: bool
) -> None:
    clock.turn(HOUR)
    taken = advisor.placements.place(ask("a", dry_run=False)).recommendation.candidates[0].host
    if asked_meanwhile:
        assert advisor.placements.place(ask("b")).recommendation.candidates[0].host != taken
    clock.turn(-HOUR)
    assert advisor.placements.place(ask("c")).recommendation.candidates[0].host == taken
    assert advisor.cloud.vitals().pending == 0


def test_what_was_answered_before_the_clock_was_set_back_is_not_what_was_true_a_moment_ago(
    advisor: Advisor, clock: Clock
) -> None:
    cloud = ClusterSnapshot.build(Inventory(HOSTS), seen={}, pending=(), taken_at=clock.now)
    answers = RecommendationCache.on(cloud)
    answers.keep("question", advisor.placements.place(ask("a")))
    changed = answers.after(cloud)
    assert changed.former("question", clock.now + FORMER) is not None
    assert changed.former("question", clock.now - timedelta(minutes=1)) is None
