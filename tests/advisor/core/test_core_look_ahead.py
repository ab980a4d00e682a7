"""Last places: what they are worth to others, when answers look ahead, and what is said of it."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest
from scipy.optimize import linprog

from advisor.domain import Candidate, WorkloadProfile
from advisor.scheduling.pinning import SOFT, prices
from models.data.scene import SceneBatch
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from tests.advisor.core.core_clouds import ask, cloud, host, request, vm

# What each keeps beside the other: a db does badly beside a cache, a web server nearly as well as beside a batch job.
KEPT = {("db", "batch"): 0.99, ("db", "cache"): 0.5, ("web", "batch"): 0.99, ("web", "cache"): 0.97}


class ByPairs:
    """A model that knows what each keeps beside one other, and predicts no latency."""

    version, origin = "pairs", "measured"
    metrics = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        del targets
        kept = np.ones(scenes.present.shape)
        for scene in range(len(scenes)):
            slots = np.flatnonzero(scenes.present[scene]).tolist()
            names = {slot: scenes.table.names[scenes.profile[scene, slot]] for slot in slots}
            for slot in slots:
                others = [KEPT.get((names[slot], names[other]), 1.0) for other in slots if other != slot]
                kept[scene, slot] = np.prod(others)
        band, alone = (BandArrays(*(values,) * 3) for values in (kept, np.ones_like(kept)))
        return InterferencePrediction(band, alone, alone, np.zeros(kept.shape, dtype=bool))


def asked(*full: tuple[str, str], empty: int = 0, workload: str | None = "web") -> tuple[Candidate, ...]:
    """Of hosts with two places one has a batch job, one a cache; others are full, or empty."""
    there = [("batch",), ("cache",), *full, *((),) * empty]
    hosts = [host(f"h{at:02}", kind="lxc", pcpus=2, memory_mb=2.0, nic_mbit=None) for at in range(len(there))]
    instances = [
        vm(f"{name}-{at}-{seat}", name, on=hosts[at].id, memory_mb=1.0)
        for at, names in enumerate(there)
        for seat, name in enumerate(names)
    ]
    profiles = [WorkloadProfile(name, {"cpu": 50.0}, origin="measured") for name in ("web", "db", "batch", "cache")]
    new_vm = vm("new", workload, memory_mb=1.0)
    return ask(cloud(hosts, instances, workloads=profiles), request(new_vm, limit=5), ByPairs()).candidates


def test_a_place_is_kept_for_those_who_usually_come_and_need_it_more() -> None:
    first, second = asked(*[("db", "db")] * 6)
    assert (first.host, second.host) == ("h01", "h00")
    assert second.reserved > first.reserved + 0.01
    assert first.score > second.score
    assert first.new_vm.throughput_ratio.expected < second.new_vm.throughput_ratio.expected
    text = next(reason.text for reason in first.reasons if reason.kind == "comparison")
    assert "instances that usually arrive need the one on h00 more" in text


def test_where_those_who_need_it_do_not_come_the_best_place_is_taken() -> None:
    first, second = asked(*[("web", "web")] * 6)
    assert (first.host, second.host) == ("h00", "h01")
    assert second.reserved == pytest.approx(first.reserved, abs=0.01)


@pytest.mark.parametrize(
    ("full", "empty", "workload"),
    [([("db", "db")] * 6, 8, "web"), ([("db", "db")] * 6, 0, "unheard-of"), ([("db", "db")] * 6, 0, None)],
    ids=["much room is left", "the new VM is unknown", "nothing is said of the new VM"],
)
def test_no_place_is_kept_where_there_is_room_or_the_new_vm_is_unknown(
    full: list[tuple[str, str]], empty: int, workload: str | None
) -> None:
    assert {candidate.reserved for candidate in asked(*full, empty=empty, workload=workload)} == {0.0}


@pytest.mark.parametrize("seed", range(5))
def test_prices_are_what_a_place_adds_to_the_best_assignment(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores, places = random.uniform(0.3, 1.0, (6, 4)), random.integers(2, 9, 6).astype(float)
    arrivals = random.dirichlet(np.ones(4)) * places.sum() * 0.8

    def best(places: np.ndarray) -> float:
        takes = np.kron(np.eye(6), np.ones(4))
        comes = np.kron(np.ones(6), np.eye(4))
        return float(-linprog(-scores.ravel(), takes, places, comes, arrivals).fun)

    more = np.array([(best(places + 0.01 * one) - best(places)) / 0.01 for one in np.eye(6)])
    assert prices(scores, places, arrivals) == pytest.approx(more, abs=4 * SOFT)


def test_places_that_are_left_over_have_no_price() -> None:
    found = prices(np.array([[1.0, 1.0], [0.5, 0.6]]), np.array([50.0, 3.0]), np.array([5.0, 5.0]))
    assert found == pytest.approx([0.0, 0.0], abs=1e-6)
