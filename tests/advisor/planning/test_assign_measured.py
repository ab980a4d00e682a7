"""Plans of hosts whose outcomes were measured, beside the best of all plans and first fit."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from advisor.planning.assignment.packing_problem import Goal
from models.data.dataset import load_dataset
from research.arena import measured_plans
from research.arena.measured_clouds import arrivals
from research.arena.measured_hosts import MeasuredWorld, worlds
from research.arena.measured_plans import KEEP

LAB = Path(__file__).parents[3] / "datasets" / "lab-neighbours"
SLO = 0.9


@pytest.fixture(scope="module")
def world() -> MeasuredWorld:
    return next(one for one in worlds(load_dataset(LAB)) if one.name == "different CPUs")


def test_small_plans_are_within_two_percent_of_the_best_of_all(world: MeasuredWorld) -> None:
    for workloads in list(combinations_with_replacement(world.workloads, 4))[::18]:
        goal = Goal("admit", measured_plans.new_vms(world, workloads), objective="total", keep_ratio=KEEP)
        found = measured_plans.planned(world, measured_plans.cloud(world, 3), goal)
        count, value = measured_plans.total(world, measured_plans.situations(found.after))
        best_count, best = measured_plans.best_of_all(world, workloads, 3)
        assert count == best_count
        assert value >= 0.98 * best, workloads


def test_at_the_same_limit_no_more_hosts_are_used_than_by_first_fit(world: MeasuredWorld) -> None:
    workloads = arrivals(world.workloads, 20, seed=4)
    fitted = measured_plans.first_fit(world, workloads, SLO)
    goal = Goal("admit", measured_plans.new_vms(world, workloads), objective="pack", keep_ratio=SLO)
    found = measured_plans.planned(world, measured_plans.cloud(world, len(fitted)), goal)
    there = [one for one in measured_plans.situations(found.after) if one]
    assert sum(map(len, there)) == len(workloads)
    assert not measured_plans.below(world, there, SLO)
    assert len(there) <= len(fitted)


def test_who_first_fit_puts_below_a_limit_is_brought_within_it(world: MeasuredWorld) -> None:
    several = [measured_plans.first_fit(world, arrivals(world.workloads, 20, seed), 0.0) for seed in range(10)]
    packed = max(several, key=lambda hosts: measured_plans.below(world, hosts, SLO))
    before = measured_plans.below(world, packed, SLO)
    assert before
    found = measured_plans.planned(
        world, measured_plans.cloud(world, len(packed), packed), Goal("rebalance", keep_ratio=SLO)
    )
    assert measured_plans.below(world, measured_plans.situations(found.after), SLO) < before
