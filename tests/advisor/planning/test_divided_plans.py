"""Plans of clouds with more hosts than one search is given: divided into groups of hosts, answered as one plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor import background
from advisor.domain import Host, Instance, PlanKind, PlanRequest
from advisor.planning.assignment import divided
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.packing_problem import Goal
from advisor.planning.repair import every_violation
from advisor.prediction.active import ActivePredictor
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.core.core_clouds import NOW, cloud, host, vm
from tests.advisor.planning.test_assign import SMALL_CLOUD
from tests.advisor.planning.test_rules_of_instances import (
    EQUIPPED,
    Residents,
    check_rules_are_kept,
    made,
    planned,
    residents_of,
)

PRIOR = ActivePredictor(PriorPredictor())


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    """Groups are searched one after the other in this process, which gives the same plan."""
    with patch.object(background, "usable_cpus", lambda: 1):
        yield


def of(most: int) -> AbstractContextManager[object]:
    """With groups of at most so many hosts."""
    return patch.object(divided, "GROUP_HOSTS", most)


def rows(count: int, zones: Sequence[str] = ("",)) -> tuple[Host, ...]:
    """Hosts of four CPUs; zones in turn."""
    return tuple(host(f"h{at:02}", labels={"zone": zones[at % len(zones)]}) for at in range(count))


def busy(name: str, on: str, cpus: float, **more: object) -> Instance:
    return Instance(name, 3, 100.0, host=on, demand={"cpu": Demand(cpus)}, **more)  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=40), st.integers(1, 9))
def test_each_host_is_in_one_group_of_its_zone_where_zones_are_large(zones: list[str], most: int) -> None:
    there = cloud(host(f"h{at:02}", labels={"zone": zone}) for at, zone in enumerate(zones))
    with of(most):
        groups = divided.groups_of_hosts(there, Goal("rebalance"))
    assert sorted(at for group in groups for at in group) == list(range(len(zones)))
    assert max(map(len, groups)) <= most
    sizes = Counter(zones)
    for group in groups:
        found = {zones[at] for at in group}
        assert len(found) == 1 or sum(sizes[zone] for zone in found) <= most


def test_busy_and_idle_hosts_are_dealt_to_all_groups() -> None:
    hosts = rows(12)
    there = cloud(hosts, [busy(f"v{at}", hosts[at].id, 3.0) for at in range(4)])
    with of(3):
        groups = divided.groups_of_hosts(there, Goal("rebalance"))
    assert [sum(at < 4 for at in group) for group in groups] == [1, 1, 1, 1]


@SMALL_CLOUD
@given(residents_of, st.sampled_from(["rebalance", "consolidate", "evacuate", "repair"]), st.integers(1, 3))
def test_no_merged_plan_breaks_a_rule_that_holds(there: Residents, kind: PlanKind, most: int) -> None:
    before = cloud(EQUIPPED, made(there))
    asked = PlanRequest(kind=kind, empty=("a2",) if kind == "evacuate" else (), keep_ratio=0.5)
    with of(most):
        found = planned(before, asked)
    check_rules_are_kept(before, found)


def test_a_group_of_the_whole_cloud_has_the_plan_of_one_search() -> None:
    hosts = rows(6)
    residents = [busy(f"v{at}", hosts[at // 3].id, 1.5 + at / 1000) for at in range(6)]
    there = cloud(hosts, residents)
    for aim in ("rebalance", "consolidate", "evacuate"):
        goal = Goal(aim, emptied=frozenset({"h00"} if aim == "evacuate" else ()), time_limit_s=60.0)
        alone = assign(there, PRIOR, goal, now=NOW, fresh_s=60.0)
        merged = divided.assign_divided(there, PRIOR, goal, now=NOW, fresh_s=60.0)
        assert merged.where == alone.where
        assert merged.gains == alone.gains
        assert merged.after.residents == alone.after.residents


def test_a_divided_plan_is_one_plan_and_says_so() -> None:
    hosts = rows(8, ("a", "b"))
    crowded = [busy(f"{at}-{number}", hosts[at].id, 1.5 + number / 100) for at in (0, 1) for number in range(3)]
    there = cloud(hosts, crowded)
    with of(4):
        found = planned(there, PlanRequest(kind="rebalance", time_limit_s=60.0))
        again = planned(there, PlanRequest(kind="rebalance", time_limit_s=60.0))
    assert found == again
    assert found.notes[0].startswith("The cloud was planned in 2 groups of up to 4 hosts by zone")
    assert found.sums_before is not None
    assert found.sums_after is not None
    assert found.search is not None
    assert found.sums_before.below > found.sums_after.below == found.search.value == 0
    assert found.sums_after.instances == 6
    zones = {one.id: one.labels["zone"] for one in hosts}
    for step in found.steps:
        assert zones[step.host or ""] == zones[step.source or ""]
    changed = {name for step in found.steps for name in (step.host, step.source)}
    assert found.before.keys() == found.after.keys() == changed


def test_processes_find_what_one_process_finds() -> None:
    hosts = rows(6, ("a", "b"))
    there = cloud(hosts, [busy(f"v{at}", hosts[at % 2].id, 1.5 + at / 1000) for at in range(6)])
    goal = Goal("rebalance", time_limit_s=60.0)
    with of(3):
        here = divided.assign_divided(there, PRIOR, goal, now=NOW, fresh_s=60.0)
        with patch.object(background, "usable_cpus", lambda: 2):
            apart = divided.assign_divided(there, PRIOR, goal, now=NOW, fresh_s=60.0)
    assert here.where
    assert (apart.where, apart.gains, apart.search, apart.notes) == (here.where, here.gains, here.search, here.notes)


def test_groups_together_make_no_more_moves_than_are_allowed() -> None:
    hosts = rows(8, ("a", "b"))
    crowded = [busy(f"{at}-{number}", hosts[at].id, 1.5 + number / 100) for at in (0, 1, 2, 3) for number in range(3)]
    for most in (0, 1, 3):
        with of(4):
            found = planned(cloud(hosts, crowded), PlanRequest(kind="rebalance", max_moves=most, time_limit_s=60.0))
        assert len(found.steps) == most


def test_what_finds_no_host_in_its_group_goes_to_another_one() -> None:
    hosts = rows(4, ("a", "b"))
    full = [vm(f"full{at}", on="h02", memory_mb=16_000.0, load=0.05) for at in range(1)]
    leaving = vm("leaving", on="h00", memory_mb=8_000.0, load=0.05)
    with of(2):
        found = planned(cloud(hosts, [*full, leaving]), PlanRequest(kind="evacuate", empty=("h00",), time_limit_s=60.0))
    assert [(step.instance, step.host) for step in found.steps] in ([("leaving", "h01")], [("leaving", "h03")])
    assert found.search is not None
    assert (found.search.value, found.search.bound) == (1, 1)


def test_what_finds_no_host_is_refused_by_those_that_were_tried() -> None:
    hosts = rows(4, ("a", "b"))
    others = [vm(f"full{one.id}", on=one.id, memory_mb=16_000.0, load=0.05) for one in hosts[1:]]
    leaving = vm("leaving", on="h00", memory_mb=8_000.0, load=0.05)
    with of(2):
        found = planned(
            cloud(hosts, [*others, leaving]), PlanRequest(kind="evacuate", empty=("h00",), time_limit_s=60.0)
        )
    (step,) = found.steps
    assert (step.instance, step.host) == ("leaving", None)
    assert {one.host for one in step.rejected} > {"h01"}
    assert any(note.startswith("No host was found for leaving") for note in found.notes)
    assert found.search is not None
    assert found.search.ended == "in the way"


def test_a_repair_brings_members_of_an_affinity_group_together_from_several_zones() -> None:
    hosts = rows(6, ("a", "b", "c"))
    near: dict[str, Any] = {"labels": {"affinity": "g"}, "load": 0.05, "memory_mb": 100.0}
    there = cloud(hosts, [vm(f"near{at}", on=on, **near) for at, on in enumerate(("h00", "h01", "h01"))])
    with of(2):
        found = planned(there, PlanRequest(kind="repair", time_limit_s=60.0))
    assert [(step.instance, step.host) for step in found.steps] == [("near0", "h01")]
    moves = {step.instance: step.host for step in found.steps}
    after = cloud(hosts, [replace(one, host=moves.get(name, one.host)) for name, one in there.names.placed.items()])
    assert not list(every_violation(after))
