"""Threads of one service ask, write, hold and exchange the model at once: each answer is of one state, none is lost."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, Recommendation
from advisor.prediction.active import LRUCache
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import counters
from advisor.store import models as registry
from models.data.scene import ProfileTable, build_batch
from models.learning.artifact import load
from tests.advisor.service.service_clock import Clock
from tests.advisor.service.two_models import ASKED, CLOUD, WEB
from tests.advisor.store.at_once import at_once

SAYS = {"m-1": 0.8, "m-2": 0.6}


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual, so that they meet between any two steps."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(usual)


def test_each_answer_is_of_the_model_that_it_names_while_models_are_exchanged(advisor: Advisor, two: None) -> None:
    over = threading.Event()
    reported: list[Recommendation] = []

    def ask() -> None:
        while not over.is_set():
            reported.append(advisor.placements.place(ASKED).recommendation)

    def exchange() -> None:
        try:
            for version in ("m-2", "m-1") * 6:
                with advisor._database.write() as connection:
                    counters.bump(connection, "models")
                    registry.activate(connection, version)
                assert advisor.placements.place(ASKED).recommendation.model_version == version, "the former one answers"
        finally:
            over.set()

    at_once(ask, ask, ask, exchange)
    assert {one.model_version for one in reported} == {"m-1", "m-2"}
    for one in reported:
        effects = [effect for each in one.candidates for effect in (each.new_vm, *each.neighbours)]
        assert {round(effect.throughput_ratio.expected, 9) for effect in effects} == {SAYS[one.model_version]}
        assert not one.degraded


def test_of_all_who_ask_at_once_as_many_are_placed_as_fit_and_no_host_is_promised_twice(advisor: Advisor) -> None:
    hosts = tuple(Host(name, "kvm", 2, 4096, cpu_overcommit=8.0) for name in ("h1", "h2"))
    advisor.inventory.put(Inventory(hosts), mode="replace", generation=None)
    held: list[str] = []
    refused: list[set[str]] = []

    def place(name: str) -> None:
        for number in range(3):
            asked = PlacementRequest(Instance(f"{name}{number}", memory_mb=1024.0))
            answer = advisor.placements.place(asked).recommendation
            if answer.candidates:
                held.append(answer.candidates[0].host)
            else:
                refused.append({one.code for one in answer.rejected})

    def look() -> None:
        for _ in range(10):
            answer = advisor.placements.place(PlacementRequest(Instance("look", memory_mb=1024.0), dry_run=True))
            assert {one.host for one in answer.recommendation.candidates} <= {"h1", "h2"}

    at_once(*(partial(place, name) for name in "abcd"), look)
    assert Counter(held) == {"h1": 4, "h2": 4}
    assert refused == [{"capacity.memory"}] * 4


def test_each_thread_reads_what_it_wrote_and_all_is_there_in_the_end(
    advisor: Advisor, settings: Settings, clock: Clock
) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)

    def write(name: str) -> None:
        for number in range(5):
            host = f"{name}{number}"
            advisor.inventory.put_host(Host(host, "kvm", 2, 8192))
            asked = PlacementRequest(Instance("n", memory_mb=float(number + 1)), hosts=(host,), dry_run=True)
            answer = advisor.placements.place(asked).recommendation
            assert [one.host for one in answer.candidates] == [host]
            if number % 2:
                advisor.inventory.delete_host(host)
                asked = PlacementRequest(Instance("gone", memory_mb=float(number)), hosts=(host,), dry_run=True)
                answer = advisor.placements.place(asked).recommendation
                assert [(one.host, one.code) for one in answer.rejected] == [(host, "host.unknown")]

    at_once(*(partial(write, name) for name in "abc"))
    last = PlacementRequest(Instance("last", memory_mb=512.0), dry_run=True, limit=20)
    followed = advisor.placements.place(last).recommendation
    with Advisor(settings, clock=clock) as anew:
        read = anew.placements.place(last).recommendation
    assert followed.candidates == read.candidates
    staying = {f"{name}{at}" for name in "abc" for at in (0, 2, 4)}
    assert {one.host for one in read.candidates} == {"h1", "h2", "x1", *staying}


def test_a_cache_keeps_to_its_room_and_tells_no_value_of_another_key() -> None:
    cache: LRUCache[int, tuple[int, int]] = LRUCache(50, lambda value: value[1])

    def work(seed: int) -> None:
        for step in range(400):
            key = (seed * 7 + step) % 23
            found = cache.find(key)
            assert found is None or found[0] == key
            cache.keep(key, (key, 1 + (seed + step) % 9))
            if step % 50 == 0:
                cache.drop(lambda value: value[0] % 5 == 0)

    at_once(*(partial(work, seed) for seed in range(4)))
    assert cache._there == sum(value[1] for value in cache._values.values()) <= 50


def test_threads_that_share_a_model_get_the_answers_that_each_would_get_alone(trained: Path) -> None:
    model = load(trained)
    host = Host("h", "kvm", 4, 8192)
    tables = [ProfileTable.build((WEB,)), ProfileTable.build(CLOUD.workloads)]
    batches = [
        build_batch([(host, [Instance(f"i{at}", workload="web") for at in range(count)])], table)
        for count in (1, 2, 4)
        for table in tables
    ]
    alone = [load(trained).predict(batch).throughput.expected.tobytes() for batch in batches]

    def ask(first: int) -> None:
        for step in range(12):
            at = (first + step) % len(batches)
            assert model.predict(batches[at]).throughput.expected.tobytes() == alone[at]

    at_once(*(partial(ask, first) for first in range(4)))
