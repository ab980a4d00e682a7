"""What plans say and do of instances under settings of their own, of overloaded hosts beside idle ones, and of which
nothing helps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Pinning, PlanRequest, Search
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.solver import SolverResult
from advisor.planning.cloud_evaluation import CloudEvaluation, required_ratios_of
from advisor.reports import plan_view
from models.data.scene import ProfileTable
from models.physics.prior import PriorPredictor
from tests.advisor.planning.planning_asked import plan
from tests.advisor.planning.planning_cases import WORKLOADS, snapshot
from tests.advisor.planning.test_assign import assigned, below, ratios, vm

HALF = IsolationSettings(cap_percent=50)
FIRST = IsolationSettings(pinning=Pinning(((0,),)))


def kvm(name: str, pcpus: int = 8, memory_mb: float = 65_536, overcommit: float = 8.0) -> Host:
    return Host(name, "kvm", pcpus, memory_mb, cpu_overcommit=overcommit)


def some(number: int, on: str, **more: Any) -> list[Instance]:
    return [vm(f"i{at}", on=on, **more) for at in range(number)]


def test_who_is_held_by_its_own_cap_is_judged_by_what_that_allows_it_alone() -> None:
    cloud = snapshot((kvm("a"), kvm("b")), vm("capped", on="b", settings=HALF))
    assert not CloudEvaluation.of(cloud, PriorPredictor()).below(0.8)
    assert assigned(cloud, "evacuate", emptied=frozenset({"b"}), keep_ratio=0.8).where == {"capped": "a"}
    assert assigned(cloud, "admit", vm("n", settings=HALF), keep_ratio=0.8).where["n"] in {"a", "b"}
    assert assigned(cloud, "rebalance", keep_ratio=0.8).search.ended == "already fine"
    crowded = snapshot((kvm("a", 1),), *some(4, "a", settings=HALF))
    assert len(CloudEvaluation.of(crowded, PriorPredictor()).below(0.8)) == 4


def test_a_limit_of_its_own_counts_as_it_is_whatever_the_cap() -> None:
    table = ProfileTable.build(WORKLOADS)
    several = [vm("a"), vm("b", settings=HALF), vm("c", settings=HALF, min_throughput_ratio=0.7), vm("d", load=0.3)]
    found = required_ratios_of([(kvm("h"), one) for one in several], table, 0.8)
    assert found.tolist() == pytest.approx([0.8, 0.4, 0.7, 0.8])
    beyond = vm("e", settings=IsolationSettings(pinning=Pinning(((7,),)), cap_percent=50))
    assert required_ratios_of([(kvm("h", 2), beyond)], table, 0.8).tolist() == pytest.approx([0.4])


def test_right_sizing_gives_no_cap_that_breaks_a_limit_kept_without_it() -> None:
    def caps(limit: float) -> list[float | None]:
        there = (*some(2, "a"), vm("poor", on="a", min_throughput_ratio=limit))
        used: dict[str, Sequence[float]] = {one.id: [1.0] * 60 for one in there}
        inventory = Inventory((kvm("a", 2),), there, WORKLOADS)
        answer = plan(inventory, PlanRequest(kind="right_size", keep_ratio=0.6), used)
        return [one.settings.cap_percent for one in answer.steps if one.settings]

    assert caps(0.7) == [60.0]
    assert not caps(0.75)  # 50 would do for the other


def test_instances_that_no_move_changes_hide_no_gain() -> None:
    held = vm("held", on="b", settings=HALF, min_throughput_ratio=0.9)
    cloud = snapshot((kvm("a", 2), kvm("b")), held, *some(3, "a"))
    found = assigned(cloud, "rebalance", keep_ratio=0.8)
    assert list(found.where.values()) == ["b"]
    assert below(found.after) == {"held"}


@pytest.mark.parametrize(("crowd", "empty", "left"), [(12, 3, 6), (6, 1, 4), (8, 1, 6), (12, 1, 10), (12, 5, 0)])
def test_relief_for_some_is_taken_where_there_is_none_for_all(crowd: int, empty: int, left: int) -> None:
    hosts = (kvm("a", 2), *(kvm(f"b{at}", 2) for at in range(empty)))
    found = assigned(snapshot(hosts, *some(crowd, "a")), "rebalance", keep_ratio=0.8)
    assert len(found.where) == crowd - max(left, 2)
    assert found.search.value == found.search.bound == left
    assert all(one.lower > 0.05 for one in found.gains.values())
    assert not assigned(found.after, "rebalance", keep_ratio=0.8).where


@pytest.mark.parametrize(
    ("host", "there"),
    [
        (kvm("a", 8, 8_192), some(3, "a", memory_mb=5_000.0)),
        (kvm("a", 2, overcommit=1.0), some(2, "a", vcpus=2, load=0.3)),
        (kvm("a"), [vm("x", on="a", exclusive=True), vm("y", on="a")]),
    ],
)
def test_a_rebalance_calls_no_cloud_fine_that_promises_more_than_it_has(host: Host, there: list[Instance]) -> None:
    found = assigned(snapshot((host, kvm("b")), *there), "rebalance")
    assert found.search.ended == "in the way"
    assert "not capacity or rules: a " in found.notes[-1]


def test_notes_name_the_true_cause() -> None:
    pinned = snapshot((kvm("a", 2), kvm("b", 2)), *some(2, "a", settings=FIRST))
    assert "no instance there may be moved" in assigned(pinned, "rebalance").notes[0]
    alone = vm("x", on="a", settings=HALF, min_throughput_ratio=0.9)
    assert "also alone there" in assigned(snapshot((kvm("a"), kvm("b")), alone), "rebalance").notes[0]
    late = assigned(snapshot((kvm("a", 2), kvm("b", 2)), *some(4, "a")), "rebalance", time_limit_s=1e-9)
    assert late.search.ended == "time"
    few = assigned(snapshot((kvm("a", 2), kvm("b", 8)), *some(6, "a")), "rebalance", max_moves=1)
    assert "no more than 1 move may be made" in few.notes[0]


def test_an_instance_evacuated_in_vain_has_reasons_for_other_hosts_only() -> None:
    cloud = snapshot((kvm("a", 4), kvm("b", 1, 512)), *some(3, "a"))
    found = assigned(cloud, "evacuate", emptied=frozenset({"a"}))
    (reason,) = (one.reason for one in found.refused["i0"] if one.host == "b")
    assert found.notes == (f"No host takes i0 and 2 more; on b: {reason}.",)


def test_nothing_is_called_fine_where_no_instance_may_move_or_all_suffer() -> None:
    apart = snapshot((kvm("a"), kvm("b")), vm("x", on="a", settings=FIRST), vm("y", on="b", settings=FIRST))
    found = assigned(apart, "consolidate")
    assert found.search.ended == "in the way"
    assert "2 instances on 2 hosts may not be moved" in found.notes[0]
    crowded = Inventory((kvm("a", 2),), tuple(some(12, "a")), WORKLOADS)
    for kind in ("consolidate", "right_size"):
        answer = plan(crowded, PlanRequest(kind=kind), {one.id: [1.0] * 60 for one in crowded.instances})
        assert answer.search is None or answer.search.ended != "already fine"
        assert any("12 instances stay below a limit" in note for note in answer.notes)
    assert assigned(snapshot(()), "rebalance").search.aim == "instances below a limit"


def test_a_distance_to_a_bound_of_nothing_is_no_share() -> None:
    assert Search("hosts in use", 5.0, 4.0, 0.25, "search").away == "25.0 %"
    assert Search("instances below a limit", 4.0, 0.0, 4.0, "time").away == "4"


def test_no_ratio_is_reported_below_its_limit_in_a_report_that_is_not_below_in_the_sums() -> None:
    inventory = Inventory((kvm("a"), kvm("b")), (vm("capped", on="b", settings=HALF),), WORKLOADS)
    answer = plan(inventory, PlanRequest(kind="evacuate", empty=("b",)))
    assert answer.sums_after and answer.sums_after.below == 0
    assert plan_view.limits(inventory, answer)("capped").throughput == pytest.approx(0.4)
    assert not any(row.below_limit for one in plan_view.hosts(inventory, answer) for row in one.rows)
    assert ratios(snapshot((kvm("a"),), vm("n", on="a")))["n"] == pytest.approx(1.0)


def test_a_solver_that_ended_without_any_bound_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(_patterns: object, levels: Sequence[object], start: Sequence[Kinds], **_: object) -> SolverResult:
        return SolverResult(tuple(start), (-math.inf,) * len(levels), False)

    monkeypatch.setattr("advisor.planning.assignment.strategies.solver.solve", at_once)
    found = assigned(snapshot((kvm("a", 2), kvm("b", 2)), *some(4, "a")), "rebalance")
    assert found.search.bound == 0.0
    assert found.search.value >= 0.0
