"""However many different things a service was asked and sent, what it keeps of them in memory has a bound."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, WorkloadProfile
from advisor.prediction import active
from advisor.prediction.active import PredictionCache
from advisor.service import Advisor
from advisor.serving import snapshot_cache
from advisor.serving.recommendations import RecommendationCache
from advisor.store import counters
from models import figures
from profiler.observed import Colocation, MetricSample, Outcome
from tests.advisor.service.service_clock import Clock

TURN_S = 91  # what is held goes after a minute, and the first hour passes before memories count as full
TURNS_TO_FILL = 60
TURNS = 15
MOST_PER_TURN = 5  # objects: an answer, a candidate or a profile that is kept for each is more
HOSTS = tuple(Host(f"h{number}", "kvm", 4, 16_384) for number in range(3))
RESIDENTS = tuple(Instance(f"r{number}", memory_mb=512, host=f"h{number}", workload="busy") for number in range(3))

Turn = Callable[[Advisor, int], object]


def ask(advisor: Advisor, turn: int) -> None:
    """All of a question is new: the new VM, its profile, and names of hosts that are not there."""
    profile = WorkloadProfile(f"w{turn}", {"cpu": 50 + turn / 100})
    one = Instance(f"n{turn}", memory_mb=512 + turn, load=0.5 + turn / 10_000)
    hosts = tuple(f"elsewhere-{turn}-{number}" for number in range(200))
    advisor.placements.place(PlacementRequest(one, hosts=("h1", "h2", *hosts), profile=profile, dry_run=True))


def tell(advisor: Advisor, turn: int) -> None:
    advisor.telemetry.ingest([MetricSample("h1", f"gone-{turn}", "instance", f"metric-{turn}", 1.0, 1.7e9 + turn)])
    pair = [Instance(f"{name}{turn}", host="h1", workload="busy") for name in "ab"]
    outcomes = tuple(Outcome(one, "throughput", 100.0, 90.0, "1/s") for one in pair)
    advisor.outcomes.record_colocation(Colocation(f"run-{turn}", f"platform-{turn}", "1", outcomes))


def come_and_go(advisor: Advisor, turn: int) -> None:
    """A host, its guest and a new VM whose place is held; the cloud is another one each time."""
    load = 0.5 + turn / 10_000
    advisor.inventory.put_host(Host(f"passing-{turn}", "kvm", 4, 8192))
    advisor.inventory.put_instance(Instance(f"guest-{turn}", host=f"passing-{turn}", workload="busy", load=load))
    tell(advisor, turn)
    advisor.placements.place(PlacementRequest(Instance(f"n{turn}", memory_mb=512, workload="busy", load=load)))
    advisor.inventory.delete_instance(f"guest-{turn}")
    advisor.inventory.delete_host(f"passing-{turn}")


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch, advisor: Advisor) -> None:
    """Memories that are full after a few turns, that of rounded figures before them, on a cloud of three hosts."""
    for number in range(figures.REMEMBERED):
        figures.significant(-0.5 - number)
        figures.score_figure(-0.5 - number)
    monkeypatch.setattr(counters, "_CHECKED_EVERY", 32)  # a statement that is kept from then on: in the first turns
    monkeypatch.setattr(active, "MOST_PARTS", 30)
    monkeypatch.setattr(snapshot_cache, "MOST_POSTED", 30)
    monkeypatch.setattr(PredictionCache.__init__, "__defaults__", (20_000,))  # thirty questions
    monkeypatch.setattr(RecommendationCache.on.__func__, "__defaults__", (60_000,))  # type: ignore[attr-defined]
    for rounding in (figures.significant, figures.score_figure):
        for number in range(rounding.cache_info().maxsize or 0):
            rounding(number / 7)
    inventory = Inventory(HOSTS, RESIDENTS, (WorkloadProfile("busy", {"cpu": 100.0}),))
    advisor.inventory.put(inventory, mode="replace", generation=None)


@pytest.mark.parametrize("do", [ask, tell, come_and_go], ids=lambda do: do.__name__)
def test_memory_does_not_grow_with_what_was_never_seen_before(advisor: Advisor, clock: Clock, do: Turn) -> None:
    def held_after(turns: range) -> int:
        for turn in turns:
            do(advisor, turn)
            clock.turn(TURN_S)
        advisor._database.close()  # a connection of SQLite keeps references to its last 200 cursors
        gc.collect()
        return sys.getallocatedblocks()

    spans = [
        range(TURNS_TO_FILL),
        *(range(TURNS_TO_FILL + k * TURNS, TURNS_TO_FILL + (k + 1) * TURNS) for k in range(3)),
    ]
    held = [held_after(span) for span in spans]
    # what each turn leaves behind grows in every span; what Python itself fills once (caches of types) in one
    assert min(later - earlier for earlier, later in itertools.pairwise(held)) < MOST_PER_TURN * TURNS


def test_a_host_that_stays_keeps_no_predictions_of_those_that_went(advisor: Advisor) -> None:
    many = tuple(Host(f"p{number}", "kvm", 4 + number, 16_384) for number in range(50))
    guests = tuple(Instance(f"g{number}", host=f"p{number}", workload="busy") for number in range(50))
    busy = (WorkloadProfile("busy", {"cpu": 100.0}),)
    advisor.inventory.put(Inventory(many, guests, busy), mode="replace", generation=None)
    advisor.cloud.now()
    advisor.inventory.put(Inventory(many[:1], guests[:1], busy), mode="replace", generation=None)
    advisor.cloud.now()
    cloud: Any = advisor.cloud
    (row,) = cloud._overview._known.values()
    assert row.base is None, "a view would keep what was predicted of all of them"


def test_of_predictors_that_posted_results_moved_only_the_last_keeps_what_it_was_asked(advisor: Advisor) -> None:
    def filled() -> int:
        gc.collect()
        mine = [one for one in gc.get_objects() if isinstance(one, PredictionCache)]
        return sum(len(one.after) + len(one.before) > 0 for one in mine if one not in before)

    gc.collect()
    before = [one for one in gc.get_objects() if isinstance(one, PredictionCache)]
    predictors = set()
    for turn in range(4):
        ask(advisor, turn)
        advisor.cloud.now()
        cache: Any = advisor.placements
        predictors.add(id(cache._cache._chosen.active.predictor))
        assert filled() == 1
        pair = [RESIDENTS[1], Instance(f"b{turn}", host="h1", workload="busy")]
        outcomes = tuple(Outcome(one, "throughput", 100.0, 50.0, "1/s") for one in pair)
        advisor.outcomes.record_colocation(Colocation(f"run-{turn}", "h1", "1", outcomes))
    assert len(predictors) > 1, "nothing moved them"
