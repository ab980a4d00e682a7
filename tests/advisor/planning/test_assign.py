"""The solver of plans on tiny clouds: every constraint holds afterwards, and no answer depends on chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, IsolationSettings, Objective, Pinning, PlacementRequest
from advisor.planning.assignment import search_state
from advisor.planning.assignment.assign import assign, place_in_turn
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.move_value import NOTICEABLE_CHANGE
from advisor.planning.assignment.packing_problem import Aim, Assignment, Goal
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.prediction.active import ActivePredictor
from advisor.scheduling import filters
from advisor.scheduling.scoring import CAUTION, OTHERS_COUNT, SHORT_COUNTS
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from tests.advisor.core.core_clouds import Invented
from tests.advisor.planning.planning_cases import NOW, snapshot
from tests.examples import examples

SMALL_CLOUD = settings(
    max_examples=examples(6), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
KEEP = 0.7


def host(name: str, pcpus: int = 4, memory_mb: float = 4096, **more: object) -> Host:
    return Host(name, "xen", pcpus, memory_mb, nic_mbit=1000, **more)  # type: ignore[arg-type]


def vm(name: str, workload: str = "cpu", on: str | None = None, **more: object) -> Instance:
    return Instance(name, **{"memory_mb": 1024.0, "host": on, "workload": workload, **more})  # type: ignore[arg-type]


def assigned(cloud: ClusterSnapshot, aim: Aim, *new_vms: Instance, fresh_s: float = 60.0, **more: object) -> Assignment:
    goal = Goal(aim, new_vms=new_vms, **{"keep_ratio": KEEP, "time_limit_s": 60.0, **more})  # type: ignore[arg-type]
    return assign(cloud, ActivePredictor(PriorPredictor()), goal, now=NOW, fresh_s=fresh_s)


def ratios(cloud: ClusterSnapshot) -> Mapping[str, float]:
    return {name: band.expected for name, band in CloudEvaluation.of(cloud, PriorPredictor()).ratios().items()}


def losses(cloud: ClusterSnapshot) -> Mapping[str, float]:
    """What each loses: of its speed, and of its time as far as it is short of CPU, where no profile is known."""
    scenes = cloud.scenes
    found = PriorPredictor().predict(scenes, ("throughput",))
    lost = 1 - np.minimum(found.throughput.expected, 1.0)
    lost = np.where(scenes.profiled, lost, (1 - SHORT_COUNTS) * lost + SHORT_COUNTS * found.time_short())
    return {
        one.id: float(lost[host, slot]) for host, there in enumerate(cloud.residents) for slot, one in enumerate(there)
    }


def limit(one: Instance) -> float:
    return KEEP if one.min_throughput_ratio is None else one.min_throughput_ratio


def below(cloud: ClusterSnapshot) -> set[str]:
    found = ratios(cloud)
    return {one.id for there in cloud.residents for one in there if found[one.id] < limit(one) - 1e-6}


instances: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    workload=st.sampled_from(["cpu", "web", "bulk"]),
    vcpus=st.sampled_from([1, 2]),
    memory_mb=st.sampled_from([512.0, 1500.0]),
    min_throughput_ratio=st.sampled_from([None, None, 0.9]),
    exclusive=st.sampled_from([False, False, False, True]),
    labels=st.sampled_from([{}, {}, {"anti_affinity": "g1"}, {"anti_affinity": "g2"}]),
)
HOSTS = (host("h1"), host("h2", 2), host("h3", 2, 2048))


@st.composite
def clouds(draw: st.DrawFn) -> tuple[ClusterSnapshot, tuple[Instance, ...]]:
    """A cloud of three hosts with residents, wherever these are, and new VMs."""
    residents = [
        vm(f"r{at}", on=draw(st.sampled_from(["h1", "h2", "h3"])), **{**one, "exclusive": False})
        for at, one in enumerate(draw(st.lists(instances, max_size=5)))
    ]
    coming = [vm(f"n{at}", **one) for at, one in enumerate(draw(st.lists(instances, min_size=1, max_size=4)))]
    return snapshot(HOSTS, *residents), tuple(coming)


Case = tuple[ClusterSnapshot, tuple[Instance, ...]]


@SMALL_CLOUD
@given(clouds(), st.sampled_from(["worst", "total", "limits", "pack"]))
def test_an_admitted_instance_passes_every_filter_and_pushes_no_other_below_a_limit(case: Case, objective: str) -> None:
    cloud, coming = case
    found = assigned(cloud, "admit", *coming, objective=objective)
    assert found.where.keys() == {one.id for one in coming}
    for one in coming:
        target = found.where[one.id]
        if target is None:
            assert {why.host for why in found.refused[one.id]} == {"h1", "h2", "h3"}
        else:
            free, _ = filters.apply(found.after, PlacementRequest(one), fresh_s=60.0)
            assert found.after.index(target) in free, one
    assert below(found.after) <= below(cloud)


@SMALL_CLOUD
@given(clouds())
def test_a_host_more_never_makes_a_plan_worse(case: Case) -> None:
    cloud, coming = case
    larger = snapshot((*HOSTS, host("h4")), *(one for residents in cloud.residents for one in residents))
    few, more = (assigned(one, "admit", *coming, objective="total") for one in (cloud, larger))

    def value(found: Assignment) -> tuple[int, float]:
        known = ratios(found.after)
        return sum(target is not None for target in found.where.values()), sum(known.values())

    assert value(more)[0] >= value(few)[0]
    if value(more)[0] == value(few)[0]:
        assert more.search.value >= few.search.value - 1e-5


@SMALL_CLOUD
@given(clouds(), st.sampled_from(["admit", "rebalance", "evacuate", "consolidate"]))
def test_the_same_question_has_the_same_answer(case: Case, aim: Aim) -> None:
    cloud, coming = case
    emptied = frozenset({"h1"}) if aim == "evacuate" else frozenset()
    new_vms = coming if aim == "admit" else ()
    one, other = (assigned(cloud, aim, *new_vms, emptied=emptied) for _ in range(2))
    assert (one.where, one.search, one.gains, one.notes) == (other.where, other.search, other.gains, other.notes)


@SMALL_CLOUD
@given(clouds())
def test_every_move_of_a_rebalance_is_worth_it_and_the_next_run_leaves_all_as_it_is(case: Case) -> None:
    cloud, _ = case
    found = assigned(cloud, "rebalance")
    assert below(found.after) <= below(cloud)
    assert together(found.after) <= together(cloud)
    assert found.where.keys() == found.gains.keys()
    by_id = {one.id: one for there in cloud.residents for one in there}
    for name, target in found.where.items():
        hosts = {by_id[name].host, target}
        back = found.after.changed(instances={name: by_id[name]}, seen={}, pending=(), taken_at=NOW)
        now, then = losses(back), losses(found.after)
        there = {one.id for there in found.after.residents for one in there if one.host in hosts}
        fewer = {one: now[one] - then[one] for one in there}
        affected = [one for one in there if abs(fewer[one]) > NOTICEABLE_CHANGE]
        most = max((now[one] for one in affected), default=0.0) - max((then[one] for one in affected), default=0.0)
        less_harm = most + OTHERS_COUNT * (sum(fewer.values()) - most)
        brought = [fewer[one] for one in there & (below(back) - below(found.after))]
        gained = found.gains[name].expected
        costs = [one - gained for one in (less_harm, *brought)]
        # A tenth of 4 s and more for half a GB, paid within six hours, and what that takes from others.
        assert any(0.1 * 4 / 21_600 < each < 1e-3 for each in costs), costs
        assert gained > 0.02
        assert found.gains[name].lower > 0
    again = assigned(found.after, "rebalance")
    assert not again.where
    assert again.search.ended == ("in the way" if below(found.after) else "already fine")


@SMALL_CLOUD
@given(clouds())
def test_consolidating_uses_no_more_hosts_and_breaks_no_limit(case: Case) -> None:
    cloud, _ = case
    found = assigned(cloud, "consolidate")
    hosts_in_use = [sum(bool(there) for there in one.residents) for one in (cloud, found.after)]
    assert hosts_in_use[1] <= hosts_in_use[0]
    assert found.search.bound <= hosts_in_use[1] == found.search.value
    assert below(found.after) <= below(cloud)
    assert together(found.after) <= together(cloud)
    if hosts_in_use[1] == hosts_in_use[0]:
        assert not found.where


@SMALL_CLOUD
@given(clouds())
def test_evacuated_instances_go_where_filters_let_them_and_no_other_moves(case: Case) -> None:
    cloud, _ = case
    found = assigned(cloud, "evacuate", emptied=frozenset({"h1"}))
    assert found.where.keys() == {one.id for one in cloud.residents[0]}
    assert "h1" not in found.where.values()
    left = {one.id for one in found.after.residents[0]}
    assert left == {name for name, target in found.where.items() if target is None}
    assert {one.host for there in found.after.residents[1:] for one in there} <= {"h2", "h3"}
    assert below(found.after) - left <= below(cloud)
    assert together(found.after) <= together(cloud)


def together(cloud: ClusterSnapshot) -> set[tuple[str, str, str]]:
    """Pairs of instances of one anti-affinity group on a host."""
    return {
        (cloud.hosts[at].id, first.id, second.id)
        for at, residents in enumerate(cloud.residents)
        for first, second in combinations(sorted(residents, key=lambda resident: resident.id), 2)
        if "anti_affinity" in first.labels and first.labels["anti_affinity"] == second.labels.get("anti_affinity")
    }


def test_members_of_an_anti_affinity_group_need_as_many_hosts_and_that_is_proven() -> None:
    apart: Mapping[str, Any] = {"labels": {"anti_affinity": "db"}, "memory_mb": 100.0, "load": 0.05}
    there = [vm(f"db-{at}", on=f"h{at}", **apart) for at in range(1, 4)]
    others = [vm(f"w-{at}", on=f"h{at}", memory_mb=100.0, load=0.05) for at in range(4, 6)]
    cloud = snapshot(tuple(host(f"h{at}") for at in range(1, 6)), *there, *others)
    found = assigned(cloud, "consolidate")
    assert (found.search.value, found.search.bound, found.search.ended) == (3, 3, "optimal")
    assert not together(found.after)
    full = assigned(snapshot(HOSTS, *there), "admit", vm("db-4", **apart))
    assert full.where == {"db-4": None}
    assert {why.code for why in full.refused["db-4"]} == {"constraint.anti_affinity"}


@SMALL_CLOUD
@given(clouds(), st.sampled_from(["worst", "total", "limits"]))
def test_a_plan_is_no_worse_than_placing_one_after_another(case: Case, objective: Objective) -> None:
    cloud, coming = case
    chosen, goal = ActivePredictor(PriorPredictor()), Goal("admit", coming, keep_ratio=KEEP, objective=objective)
    turns, whole = place_in_turn(cloud, chosen, goal, now=NOW, fresh_s=60.0, clock=SearchClock.of(60.0))
    assert whole
    after = cloud.changed(instances=turns, seen={}, pending=(), taken_at=NOW)
    found = assigned(cloud, "admit", *coming, objective=objective)
    assert sum(target is not None for target in found.where.values()) >= len(turns)
    if below(after) <= below(cloud) and None not in found.where.values() and len(turns) == len(coming):
        reported, theirs = (CloudEvaluation.of(one, PriorPredictor()).ratios().values() for one in (found.after, after))
        worth = sum if objective == "total" else min
        cautious = [
            worth(one.expected - CAUTION * (one.expected - one.lower) for one in all_of)
            for all_of in (reported, theirs)
        ]
        assert cautious[0] >= cautious[1] - 1e-6


def test_new_vms_get_the_settings_that_a_placement_advises_where_these_are_worth_it() -> None:
    """Who is pinned keeps 0.95 of its speed, anybody else 0.8."""
    pins_help = Invented(lambda scenes: np.where(scenes.affinity.sum(axis=2) < scenes.pcpus[:, None], 0.95, 0.8))
    cloud = snapshot((host("h1"), host("h2")), vm("r1", on="h1"))
    goal = Goal("admit", (vm("n1"), vm("n2")), keep_ratio=KEEP, objective="total")
    found = assign(cloud, ActivePredictor(pins_help), goal, now=NOW, fresh_s=60.0)
    assert found.settings.keys() == {"n1", "n2"}
    assert all(one.pinning for one in found.settings.values())
    after = {one.id: one for there in found.after.residents for one in there}
    assert {name: after[name].settings for name in found.settings} == found.settings
    assert found.search.value == pytest.approx(0.8 + 2 * 0.95)


def test_a_plan_for_limits_expects_as_few_instances_below_as_the_best_of_all_placements() -> None:
    cloud = snapshot((host("h1"), host("h2")), vm("r1", "bulk", on="h1"))
    coming = [vm(f"n{at}", ("cpu", "web", "bulk")[at % 3]) for at in range(4)]

    def below_limits(after: ClusterSnapshot) -> float:
        ratios = CloudEvaluation.of(after, PriorPredictor()).ratios().values()
        spreads = [NormalDist(0.0, max((one.expected - one.lower) / 1.645, 0.01)) for one in ratios]
        return sum(
            spread.cdf(KEEP - one.expected) - spread.cdf(KEEP - 1.0)
            for one, spread in zip(ratios, spreads, strict=True)
        )

    found = assigned(cloud, "admit", *coming, objective="limits")
    residents = [one for there in cloud.residents for one in there]
    every = [
        below_limits(
            snapshot(
                (host("h1"), host("h2")),
                *residents,
                *(replace(one, host=there) for one, there in zip(coming, hosts, strict=True)),
            )
        )
        for hosts in product(("h1", "h2"), repeat=len(coming))
    ]
    assert None not in found.where.values()
    assert found.search.value == pytest.approx(below_limits(found.after), abs=1e-9)
    assert found.search.value <= min(every) + 1e-9


def test_what_the_solver_proves_is_no_worse_than_the_search_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = snapshot((host("h1"), host("h2"), host("h3")))
    coming = [vm(f"n{at}", ("cpu", "web", "bulk")[at % 3]) for at in range(9)]
    solved = assigned(cloud, "admit", *coming, objective="total")
    monkeypatch.setattr(search_state, "MAX_PATTERNS", 0)
    searched = assigned(cloud, "admit", *coming, objective="total")
    assert (solved.search.ended, searched.search.ended) == ("optimal", "search")
    assert solved.search.gap == 0
    assert searched.search.value <= solved.search.value + 1e-6 <= searched.search.bound + 2e-6


def test_an_empty_cloud_takes_no_instance_and_says_so() -> None:
    found = assigned(snapshot(()), "admit", vm("n1"))
    assert (found.where, found.search.ended) == ({"n1": None}, "in the way")
    assert found.notes == ("The cloud has no hosts.",)


def test_who_is_larger_than_any_host_is_refused_with_the_filters_reason() -> None:
    found = assigned(snapshot((host("h1"), host("h2"))), "admit", vm("n1", memory_mb=99_999.0), vm("n2"))
    assert found.where["n1"] is None
    assert found.where["n2"] in {"h1", "h2"}
    assert {why.code for why in found.refused["n1"]} == {"capacity.memory"}
    assert "No host takes n1" in found.notes[0]
    assert found.search.ended == "in the way"


def test_a_limit_that_no_host_can_keep_is_the_reason_of_a_refusal() -> None:
    cloud = snapshot((host("h1", 1),), vm("r1", on="h1", min_throughput_ratio=1.0))
    (why,) = assigned(cloud, "admit", vm("n1")).refused["n1"]
    assert why.code in {"limit.new_vm", "limit.neighbour"}
    assert "of its uncontended speed" in why.reason


def test_hosts_without_fresh_data_and_disabled_ones_take_no_instance() -> None:
    stale, disabled = snapshot((host("h1"),), seen=False), snapshot((host("h1", enabled=False),))
    for cloud, code in ((stale, "host.no_data"), (disabled, "host.disabled")):
        assert assigned(cloud, "admit", vm("n1")).refused["n1"][0].code == code


def test_whoever_the_caller_pinned_stays_unless_its_host_is_emptied() -> None:
    pinned = IsolationSettings(pinning=Pinning(((0,),)))
    cloud = snapshot(
        (host("h1", 1), host("h2")), *(vm(f"r{at}", on="h1", settings=pinned, memory_mb=512.0) for at in range(2))
    )
    assert not assigned(cloud, "rebalance").where
    moved = assigned(cloud, "evacuate", emptied=frozenset({"h1"}), keep_ratio=0.3)
    assert set(moved.where.values()) == {"h2"}
    assert [one.settings.pinning for one in moved.after.residents[1]] == [None, None]  # it named CPUs of h1


def test_only_who_may_move_moves_only_to_the_hosts_that_may_be_used_and_only_for_the_gain_that_was_asked_for() -> None:
    crowded = tuple(vm(f"r{at}", on="h1", memory_mb=512.0) for at in range(4))
    cloud = snapshot((host("h1", 1), host("h2"), host("h3")), *crowded)
    assert below(cloud) == {"r0", "r1", "r2", "r3"}
    some = assigned(cloud, "rebalance", movable=frozenset({"r0", "r1", "r2"}), targets=frozenset({"h3"}))
    assert set(some.where) == {"r0", "r1", "r2"}
    assert set(some.where.values()) == {"h3"}
    assert not below(some.after)
    assert len(assigned(cloud, "rebalance", max_moves=1).where) <= 1
    assert assigned(cloud, "rebalance").where
    assert not assigned(cloud, "rebalance", move_gain=0.99).where


def test_when_the_time_is_over_what_was_found_is_answered() -> None:
    cloud = snapshot((host("h1"), host("h2")))
    found = assigned(cloud, "admit", *(vm(f"n{at}") for at in range(4)), time_limit_s=1e-9)
    assert found.search.ended == "time"
    assert set(found.where.values()) <= {None, "h1", "h2"}


def test_who_is_placed_anew_counts_once() -> None:
    cloud = snapshot((host("h1"), host("h2")), vm("r1", on="h1"))
    found = assigned(cloud, "admit", replace(vm("r1"), memory_mb=4096.0))
    assert found.where["r1"] in {"h1", "h2"}
    assert sum(len(there) for there in found.after.residents) == 1


def test_a_host_takes_all_that_its_overcommit_gives_in_decimals() -> None:
    """45 x 1.4 is 63, a little less in binary fractions."""
    hosts = (host("a", 45, cpu_overcommit=1.4), host("b", 45, cpu_overcommit=1.4))
    large = vm("large", on="a", vcpus=40, memory_mb=1.0, min_throughput_ratio=0.1)
    small = vm("small", on="b", vcpus=23, memory_mb=1.0, min_throughput_ratio=0.1)
    assert assigned(snapshot(hosts[:1], large), "admit", replace(small, host=None)).where == {"small": "a"}
    assert assigned(snapshot(hosts, large, small), "evacuate", emptied=frozenset({"b"})).where == {"small": "a"}
    closer = assigned(snapshot(hosts, large, small), "consolidate").search
    assert (closer.value, closer.bound) == (1, 1)
