"""A host with very many residents: what its page and its pairs cost is bounded, and the antagonist is still found."""

from __future__ import annotations

import tracemalloc
from collections.abc import Collection
from datetime import UTC, datetime

import numpy as np
import pytest

from advisor.domain import Host, Instance, Inventory
from advisor.explanation import comparison
from advisor.explanation.comparison import on_host
from advisor.service import Advisor
from advisor.serving import overview
from advisor.snapshot import ClusterSnapshot
from advisor.telemetry.antagonists import busiest
from models.arrays import Floats
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, InterferencePrediction
from profiler.demand import Demand, Resource
from profiler.observed import IsolationSettings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOST = Host("h1", "lxc", 8, 5_000_000, cpu_overcommit=10_000)
HEAVY = IsolationSettings(weight=10_000)
CROWD = 5_000


class Counted:
    """The analytic model, which counts the slots that it is asked for, and the most of one call."""

    version, origin, metrics = "analytic", "analytic", PriorPredictor.metrics

    def __init__(self) -> None:
        self.cells: list[int] = []

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        self.cells.append(len(scenes) * scenes.slots)
        return PriorPredictor().predict(scenes, targets)


def residents(count: int, *, all_want: float = 6.0) -> list[Instance]:
    """So many small instances, and one of a hundred times their weight that demands four CPUs."""
    small: dict[Resource, Demand] = {"cpu": Demand(mean=all_want / count)}
    return [
        Instance("antagonist", 8, 1, host="h1", settings=HEAVY, demand={"cpu": Demand(mean=4.0)}),
        *(Instance(f"i{at:05}", 1, 1, host="h1", demand=small) for at in range(count)),
    ]


def snapshot(there: list[Instance]) -> ClusterSnapshot:
    return ClusterSnapshot.build(Inventory((HOST,), tuple(there), ()), seen={"h1": NOW}, pending=(), taken_at=NOW)


def ratios(there: list[Instance]) -> dict[str, float]:
    """Predicted by the analytic model, built without any of the product's snapshots."""
    scene = build_batch([(HOST, there)], ProfileTable.build([]))
    expected = PriorPredictor().predict(scene, ()).throughput.expected[0].tolist()
    return {one.id: ratio for one, ratio in zip(there, expected, strict=True)}


def now_of(cloud: ClusterSnapshot) -> Floats:
    expected: Floats = PriorPredictor().predict(cloud.scenes, ()).throughput.expected[0]
    return expected


def test_on_a_small_host_every_pair_is_what_a_host_without_the_neighbour_says() -> None:
    there = residents(6)
    cloud = snapshot(there)
    found = {(one.victim, one.neighbour): one for one in on_host(cloud, PriorPredictor(), 0, now_of(cloud))}
    assert len(found) == len(there) * (len(there) - 1)
    with_all = ratios(there)
    for absent in there:
        without = ratios([one for one in there if one is not absent])
        for victim in without:
            pair = found[victim, absent.id]
            assert pair.ratio == pytest.approx(with_all[victim])
            assert pair.without == pytest.approx(without[victim])


def test_of_a_crowd_the_strongest_neighbour_is_tried_and_named_with_its_victims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "MOST_CELLS", 400)
    monkeypatch.setattr(comparison, "CELLS_AT_ONCE", 250)
    cloud, counted = snapshot(residents(120)), Counted()
    pairs = on_host(cloud, counted, 0, now_of(cloud))
    assert len({one.neighbour for one in pairs}) <= 400 // 121
    worst = max(pairs, key=lambda one: one.taken)
    assert worst.neighbour == "antagonist"
    assert {one.victim for one in pairs if one.neighbour == "antagonist"} == {f"i{at:05}" for at in range(120)}
    assert all(one.taken > comparison.LEAST_LOSS for one in pairs)
    assert sum(counted.cells) <= 400
    assert max(counted.cells) <= 250


def test_a_host_of_thousands_of_residents_is_shown_within_ten_kilobytes_each_and_few_predictions(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    advisor.inventory.put(Inventory((HOST,), tuple(residents(CROWD))), mode="replace", generation=None)
    cells: list[int] = []
    plain = PriorPredictor.predict

    def predict(self: PriorPredictor, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        cells.append(len(scenes) * scenes.slots)
        return plain(self, scenes, targets)

    monkeypatch.setattr(PriorPredictor, "predict", predict)
    advisor.cloud.now()
    assert sum(cells) == CROWD + 1
    cells.clear()
    tracemalloc.start()
    detail = advisor.cloud.host("h1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < CROWD * 10_000
    assert sum(cells) <= comparison.MOST_CELLS + CROWD + 1
    assert len(detail.effects) == CROWD + 1
    assert detail.slowing
    assert detail.slowing[0].neighbour == "antagonist"


def test_hosts_of_all_sizes_are_predicted_in_parts_and_each_as_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "CELLS_AT_ONCE", 40)
    hosts = tuple(Host(f"h{at}", "lxc", 4, 10_000) for at in range(6))
    there = tuple(
        Instance(f"i{at}-{number}", 1, 1, host=f"h{at}", demand={"cpu": Demand(mean=0.2 + 0.1 * at)})
        for at, count in enumerate((1, 30, 2, 0, 7, 12))
        for number in range(count)
    )
    cloud = ClusterSnapshot.build(Inventory(hosts, there, ()), seen={}, pending=(), taken_at=NOW)
    counted = Counted()
    found = overview.Overview(60.0)._expected(cloud, counted)
    assert max(counted.cells) <= 40
    whole = PriorPredictor().predict(cloud.scenes, ())
    for at, rows in enumerate(found):
        np.testing.assert_allclose(rows[:, 0], whole.throughput.expected[at, : len(rows)], rtol=1e-12)
    assert [len(rows) for rows in found] == [1, 30, 2, 0, 7, 12]


def test_of_many_residents_those_with_the_largest_demand_are_compared() -> None:
    there = [Instance(f"i{at}", 8, 1, demand={"cpu": Demand(mean=float(at % 7))} if at % 2 else {}) for at in range(40)]
    kept = busiest(there, 5)
    assert sorted(one.demand["cpu"].mean for one in kept) == [5.0, 5.0, 5.0, 6.0, 6.0]
    assert [one.id for one in kept] == [one.id for one in there if one in kept]
    assert busiest(there, 40) is there
