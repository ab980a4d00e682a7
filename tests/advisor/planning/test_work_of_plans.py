"""A search is limited by its work, so that each machine gives the same answer; the wall clock only stops it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import pytest

from advisor import work
from advisor.domain import Instance, Plan, PlanRequest
from advisor.errors import InvalidInput
from advisor.planning.cpu_demand import MEMBERS, own_mix
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, InterferencePrediction
from profiler.demand import Demand
from tests.advisor.planning.planning_asked import HOSTS, PRESSED, plan
from tests.advisor.planning.planning_cases import cloud, host, snapshot, vm

MIX = (vm("small"), vm("web", "web", memory_mb=512.0), vm("bulk", "bulk"))


class Slow:
    """The analytic model on a machine that is slower by so many seconds for each prediction."""

    version, origin, metrics = PriorPredictor.version, PriorPredictor.origin, PriorPredictor.metrics

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        time.sleep(self.seconds)
        return PriorPredictor().predict(scenes, targets)


def reported(found: Plan) -> tuple[object, ...]:
    steps = [(step.instance, step.host, step.stage, step.gain) for step in found.steps]
    return steps, found.search, found.capacity, found.notes


@pytest.mark.parametrize("slots", [100.0, 400.0, 20_000.0])
@pytest.mark.parametrize("kind", ["rebalance", "consolidate", "capacity", "admit"])
def test_a_slower_machine_gives_the_same_answer(slots: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = cloud(*(replace(one, host="h2" if at == 4 else "h1") for at, one in enumerate(PRESSED)), hosts=HOSTS)
    mix = MIX if kind in {"capacity", "admit"} else ()
    asked = PlanRequest(kind=kind, instances=mix, time_limit_s=600.0)  # type: ignore[arg-type]
    monkeypatch.setattr(work, "SLOTS_PER_SECOND", slots / asked.time_limit_s)
    fast, slow = plan(there, asked, predictor=PriorPredictor()), plan(there, asked, predictor=Slow(0.002))
    assert reported(fast) == reported(slow)
    assert not any("clock" in note for note in fast.notes)


def test_what_the_clock_stops_says_that_another_run_may_answer_otherwise() -> None:
    asked = PlanRequest(kind="capacity", instances=MIX, time_limit_s=0.1)
    found = plan(cloud(*PRESSED, hosts=HOSTS), asked, predictor=Slow(0.05))
    assert any("clock stopped" in note for note in found.notes)
    assert found.search is not None
    assert found.search.ended == "time"


def test_a_number_at_the_worse_edge_is_given_where_it_is_proven_and_else_both_ends_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = PlanRequest(kind="capacity", instances=MIX)
    whole = plan(cloud(*PRESSED, hosts=HOSTS), asked).capacity
    assert whole is not None
    assert whole.fit_lower is not None
    monkeypatch.setattr(work, "SLOTS_PER_SECOND", 1.0)
    short = plan(cloud(*PRESSED, hosts=HOSTS), asked)
    assert short.capacity is not None
    assert short.capacity.fit_lower is None
    assert any("not proven" in note for note in short.notes)


def test_without_a_mix_capacity_takes_the_clouds_own() -> None:
    there = cloud(*PRESSED, vm("big", on="h2", memory_mb=4096.0), hosts=HOSTS)
    found = plan(there, PlanRequest(kind="capacity"))
    assert found.capacity is not None
    assert found.capacity.fit > 0
    assert any("the cloud's own" in note and "big" in note for note in found.notes)
    with pytest.raises(InvalidInput, match="no instances"):
        plan(cloud(hosts=HOSTS), PlanRequest(kind="capacity"))


def test_the_mix_of_a_cloud_has_its_sizes_in_their_shares() -> None:
    sizes = [1024.0] * 50 + [2048.0] * 25 + [4096.0] * 25
    there = [
        Instance(f"i{at}", 1, size, host="h1", demand={"cpu": Demand(at / 200)}, labels={"anti_affinity": "g"})
        for at, size in enumerate(sizes)
    ]
    mix = own_mix(snapshot((host("h1", 1e6, 64),), *there))
    assert len(mix) == MEMBERS
    assert Counter(one.memory_mb for one in mix) == {1024.0: 4, 2048.0: 2, 4096.0: 2}
    means = [one.demand["cpu"].mean for one in mix]
    assert means == sorted(means)
    assert not any(one.labels or one.host for one in mix)
    few = own_mix(snapshot((host("h1", 1e6, 64),), *there[:3]))
    assert [one.id for one in few] == ["i0", "i1", "i2"]
