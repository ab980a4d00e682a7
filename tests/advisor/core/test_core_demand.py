"""Demand over time in snapshots and answers: what demands other amounts is not alike, and a neighbour helps none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.placement.decision import recommend
from advisor.placement.host_classes import PlacementQuestion, host_classes
from advisor.prediction.active import PredictionCache
from advisor.scheduling.pinning import profile_row
from advisor.serving.snapshot_cache import News
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from profiler.demand import Demand, Resource
from tests.advisor.core.core_clouds import NOW, Invented, ask, cloud, context, host, only, request, vm


def _snapshot(first: Demand | None, second: Demand | None) -> ClusterSnapshot:
    hosts = tuple(Host(name, "kvm", 8, 16_384) for name in ("h1", "h2"))
    instances = tuple(
        Instance(f"i-{host.id}", host=host.id, demand={} if demand is None else {"cpu": demand})
        for host, demand in zip(hosts, (first, second), strict=True)
    )
    return ClusterSnapshot.build(Inventory(hosts, instances), seen={}, pending=(), taken_at=NOW)


@pytest.mark.parametrize("other", [Demand(0.4), None, Demand(0.5), Demand(0.4, spread=0.1)])
def test_hosts_are_alike_where_residents_want_the_same(other: Demand | None) -> None:
    first, second = _snapshot(Demand(0.4), other).fingerprints
    assert (first == second) == (other == Demand(0.4))


def test_a_changed_demand_gives_the_snapshot_that_building_anew_gives() -> None:
    before, wanted = _snapshot(Demand(0.4), Demand(0.4)), _snapshot(Demand(0.4), Demand(0.9))
    changed = Instance("i-h2", host="h2", demand={"cpu": Demand(0.9)})
    found = before.changed(seen={}, pending=(), taken_at=NOW, instances={"i-h2": changed})
    assert found.fingerprints.tolist() == wanted.fingerprints.tolist()
    assert found.residents == wanted.residents


def wants(cpus: float, **more: float) -> Mapping[Resource, Demand]:
    return {"cpu": Demand(cpus, **more)}  # type: ignore[arg-type]


def crowd(on: str, cpus: float) -> list[Instance]:
    """Six instances of one vCPU on a host of four, alike but for what they want."""
    return [vm(f"{on}-{at}", None, on=on, demand=wants(cpus)) for at in range(6)]


def test_two_hosts_that_differ_only_in_what_residents_want_are_two_classes_with_answers_of_their_own() -> None:
    snapshot = cloud([host("h1"), host("h2"), host("h3")], crowd("h1", 0.2) + crowd("h2", 0.9) + crowd("h3", 0.2))
    question = request(vm("n", None, demand=wants(0.5)))
    table, row, _ = profile_row(snapshot, question)
    asked = PlacementQuestion(snapshot, question, PriorPredictor(), table, row)
    assert host_classes(asked, np.arange(3)).of.tolist() == [0, 1, 0]
    kept = {one.host: one.new_vm.throughput_ratio.expected for one in ask(snapshot, question).candidates}
    assert kept["h1"] == kept["h3"] > kept["h2"] + 0.1


def test_an_answer_is_not_remembered_for_other_demands_of_new_vm_or_residents() -> None:
    remembered = PredictionCache()

    def kept(resident: Mapping[Resource, Demand], new_vm: Mapping[Resource, Demand]) -> float:
        there = [vm(f"r{at}", None, on="h1", vcpus=2, demand=resident) for at in range(3)]
        question = request(vm("n", None, vcpus=2, demand=new_vm))
        answer = recommend(cloud([host()], there), context(remembered=remembered), question)
        return only(answer).new_vm.throughput_ratio.expected

    pairs = [(wants(1.2), wants(1.0)), (wants(1.2), wants(1.9)), (wants(1.9), wants(1.9)), ({}, {})]
    first, again = ([kept(*pair) for pair in pairs] for _ in range(2))
    assert first == again
    assert len(set(first)) == 4


def test_news_of_a_demand_alone_change_the_inventory() -> None:
    before = Inventory((host(),), (vm("a", None, on="h1", demand=wants(0.2)), vm("b", None, on="h1")))
    louder = replace(before.instances[0], demand=wants(0.9))
    assert News(instances={"a": louder}).applied(before).instances == (louder, before.instances[1])
    assert louder != before.instances[0]


def test_who_has_a_demand_is_not_said_to_count_as_a_tenth_of_its_vcpus() -> None:
    said = ask(cloud([host()]), request(vm("n", None, demand=wants(0.7)))).notes
    assert said == ("Of n only its demand for CPUs is known: it counts as using nothing else.",)


def company(scenes: SceneBatch) -> Floats:
    """Every instance is the better off the more there are."""
    return np.where(scenes.present, 0.5 + 0.1 * scenes.present.sum(axis=1, keepdims=True), np.nan)


HELPFUL = Invented(company, half=0.1)


@pytest.mark.parametrize("limit", [None, 3.0])
def test_no_resident_is_predicted_to_gain_from_a_new_vm(limit: float | None) -> None:
    snapshot = cloud([host()], [vm("r", on="h1", max_latency_ratio=limit)])
    candidate = only(ask(snapshot, request(vm("n")), HELPFUL))
    (resident,) = candidate.neighbours
    assert resident.before and resident.latency_ratio and resident.jitter_ratio
    reported, was = resident.throughput_ratio, resident.before
    assert (reported.expected, reported.lower) == (was.expected, was.lower) == pytest.approx((0.6, 0.5))
    assert reported.upper == pytest.approx(0.8), "the interval becomes no narrower"
    assert resident.latency_ratio.expected == pytest.approx(1 / 0.6)
    assert resident.jitter_ratio.upper == pytest.approx(1 / 0.6)
    assert candidate.new_vm.throughput_ratio.expected == pytest.approx(0.7), "it was not there before"
    assert candidate.combined_score == pytest.approx(0.6 + 0.7)


def test_a_gain_of_residents_ranks_no_host_higher() -> None:
    one, many = [vm("a", on="h1")], [vm(f"b{at}", on="h2") for at in range(2)]
    answer = ask(cloud([host("h1"), host("h2")], one + many), request(vm("n"), objective="total"), HELPFUL)
    by_host = {found.host: found.score for found in answer.candidates}
    alone = {found.host: found.new_vm.throughput_ratio.expected for found in answer.candidates}
    half = 0.25 * 0.1  # CAUTION of the half width of the new VM's; those of residents are as wide as before
    assert by_host["h1"] == pytest.approx(alone["h1"] - half)
    assert by_host["h2"] == pytest.approx(alone["h2"] - half)


def test_a_profile_and_a_demand_together_are_known() -> None:
    snapshot = cloud([host()], workloads=[WorkloadProfile("web", {"cpu": 60.0})])
    assert ask(snapshot, request(vm("n", "web", demand=wants(0.7)))).notes == ()
