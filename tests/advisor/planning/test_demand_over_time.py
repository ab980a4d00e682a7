"""Plans for instances of different demand over time: kinds, filters, sizes, growth and imagined clouds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from advisor.domain import Growth, Host, Instance, Inventory, PlanRequest, WhatIf
from advisor.planning.assignment.packing import Refusals, demand_classes
from advisor.planning.assignment.packing_problem import Goal, PackingProblem, build_problem
from advisor.planning.failover import imagine
from advisor.reports.plan_view import of_plan
from advisor.snapshot import ClusterSnapshot
from models.data.demand_classes import day_one
from models.physics.prior import PriorPredictor
from profiler.demand import Demand, Resource
from tests.advisor.planning.planning_asked import HOSTS, capacity, plan
from tests.advisor.planning.planning_cases import cloud, host, snapshot, vm

LARGE = Host("h1", "kvm", 8, 65_536)


def wants(cpus: float, **more: float) -> Mapping[Resource, Demand]:
    return {"cpu": Demand(cpus, **more)}  # type: ignore[arg-type]


def dark(name: str, cpus: float | None = None, on: str | None = None, vcpus: int = 1, **more: float) -> Instance:
    """An instance of which nothing is known but its size and, perhaps, what it demands."""
    return Instance(name, vcpus, 1024, host=on, demand={} if cpus is None else wants(cpus, **more))


def large(*instances: Instance) -> ClusterSnapshot:
    return snapshot((LARGE, replace(LARGE, id="h2")), *instances)


def problem(*new_vms: Instance, at: ClusterSnapshot | None = None) -> PackingProblem:
    return build_problem(at or large(), Goal("admit", new_vms), math.inf)


def test_instances_that_differ_only_in_what_they_want_are_kinds_and_classes_of_their_own() -> None:
    found = problem(dark("a", 0.2), dark("b", 0.2), dark("c", 0.9), dark("d"))
    assert [sorted(ids) for ids in found.ids_of_kind if ids] == [["a", "b"], ["c"], ["d"]]
    assert [one.count for one in demand_classes(found, Counter(found.waiting))] == [(2,), (1,), (1,)]
    assert len(set(Refusals.none(found).sort.tolist())) == 3


def test_filters_are_asked_for_kinds_of_which_one_wants_more_than_another_has_vcpus() -> None:
    small, large = replace(dark("a", 3.0, vcpus=4), memory_mb=512), dark("b", 0.5)
    found = problem(small, large)
    assert found.allowed[[found.waiting[0], found.waiting[1]]].all()


def test_the_load_of_a_driver_domain_is_attributed_by_demand() -> None:
    """A VM with more demand, with its driver's, than the host has CPUs is slowed and asks its driver domain less."""
    narrow = Host("h1", "xen", 1, 65_536, driver_overcommit=0.3)
    calm, keen = (replace(vm(name, "web"), demand=wants(cpus)) for name, cpus in (("a", 0.1), ("b", 1.0)))
    found = problem(calm, keen, at=snapshot((narrow,)))
    assert found.allowed[list(found.waiting)].ravel().tolist() == [False, True]


def test_hosts_are_filled_by_what_instances_want() -> None:
    small = Inventory((Host("h1", "kvm", 2, 65_536, cpu_overcommit=16),))
    little, much = (
        capacity(small, PlanRequest("capacity", (dark("n", cpus),), keep_ratio=0.9)).fit for cpus in (0.05, 0.9)
    )
    assert little > 3 * much


@pytest.mark.parametrize("known", [True, False])
def test_growth_fills_a_cloud_of_which_only_demand_or_sizes_are_known(known: bool) -> None:
    there = [dark(f"i{at}", 0.1 if known else None, on="h1") for at in range(32)]
    request = PlanRequest("capacity", (replace(dark("n"), memory_mb=99_999),), growth=Growth(0, 50, 12))
    answer = plan(Inventory((replace(LARGE, pcpus=16),), tuple(there)), request)
    assert answer.capacity and answer.capacity.runs_out_month in range(2, 9)
    assert not any("is above 10" in note for note in answer.notes)


def test_what_is_assumed_of_an_unknown_instance_grows_from_what_is_assumed_now() -> None:
    """Said or assumed, the same demand has the same prediction, so that growth begins where the cloud is."""
    there = [dark(f"i{at}", on="h1", vcpus=2) for at in range(6)]
    said = [replace(one, demand={"cpu": day_one(2)}) for one in there]
    assumed, given = (
        PriorPredictor().predict(snapshot((replace(LARGE, pcpus=2),), *some).scenes).throughput
        for some in (there, said)
    )
    for edge in ("expected", "lower"):
        np.testing.assert_allclose(getattr(assumed, edge), getattr(given, edge), atol=1e-9)


def test_demand_that_outgrows_its_vcpus_is_reported_with_its_month() -> None:
    request = PlanRequest("capacity", (replace(dark("n", 0.4), memory_mb=99_999),), growth=Growth(0, 100, 4))
    notes = plan(Inventory((replace(LARGE, pcpus=64),), (dark("a", 0.4, on="h1"),)), request).notes
    assert [one.partition(":")[0] for one in notes if one.startswith("From")] == [
        "From month 2 on the load of some instances is above 1"
    ]


def test_a_size_follows_the_peaks_that_are_given_and_leaves_more_to_a_mean_alone() -> None:
    big = dark("big", 0.3, on="h1", vcpus=4, p95=0.5)
    answer = plan(cloud(big, dark("mean", 0.3, on="h1", vcpus=4), hosts=HOSTS), PlanRequest(kind="right_size"))
    sizes = {one.instance: one.vcpus or 0 for one in answer.steps}
    assert sizes["big"] == 1 < sizes["mean"] < 4
    assert "up to 0.50 CPUs in 95 % of the time" in answer.steps[0].why
    assert any(note.startswith("1 instance is known by a mean only") for note in answer.notes)


def test_who_is_measured_to_use_less_than_was_given_may_be_made_smaller_than_that() -> None:
    inventory = cloud(dark("big", 3.0, on="h1", vcpus=4, p95=3.5), hosts=HOSTS)
    answer = plan(inventory, PlanRequest(kind="right_size"), {"big": [40.0] * 400})
    assert [(one.instance, one.vcpus) for one in answer.steps] == [("big", 1)]
    assert "used up to 0.40 CPUs" in answer.steps[0].why
    assert of_plan(inventory, answer, None).after["h1"]["cpu"] == pytest.approx(0.25), "on a host of four CPUs"


def test_an_imagined_cloud_keeps_all_demands() -> None:
    now = large(dark("a", 0.4, on="h1"), dark("b", 0.7, on="h2"))
    imagined, homeless, _ = imagine(now, WhatIf(hosts=(host("h3"),), remove=("h2",), pinning="own"))
    assert imagined.residents[0][0].demand == wants(0.4)
    assert homeless[0].demand == wants(0.7)


def test_a_plan_says_what_is_assumed_only_where_neither_profile_nor_demand_is_known() -> None:
    asked = PlanRequest(instances=(dark("a", 0.4), dark("b"), vm("c")))
    assert [note.partition(":")[0] for note in plan(cloud(hosts=HOSTS), asked).notes] == [
        "Nothing is known about what b would run"
    ]
    assert plan(cloud(hosts=HOSTS), replace(asked, instances=(dark("a", 0.4),))).notes == ()
