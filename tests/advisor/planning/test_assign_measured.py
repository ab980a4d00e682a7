"""Plans of hosts whose outcomes were measured, beside the best of all plans and first fit."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from advisor.planning.assignment.goal import Goal
from models.data.dataset import load_dataset
from research.benchmarks.clouds import plan_quality
from research.benchmarks.clouds.plan_quality import KEEP
from research.benchmarks.clouds.worlds import MeasuredWorld, worlds

LAB = Path(__file__).parents[3] / "datasets" / "lab-neighbours"
SLO = 0.9


@pytest.fixture(scope="module")
def world() -> MeasuredWorld:
    return next(one for one in worlds(load_dataset(LAB)) if one.name == "different CPUs")


def test_small_plans_are_within_two_percent_of_the_best_of_all(world: MeasuredWorld) -> None:
    for workloads in list(combinations_with_replacement(world.workloads, 4))[::18]:
        goal = Goal("admit", plan_quality.newcomers(world, workloads), objective="total", keep_ratio=KEEP)
        found = plan_quality.planned(world, plan_quality.cloud(world, 3), goal)
        count, value = plan_quality.total(world, plan_quality.situations(found.after))
        best_count, best = plan_quality.best_of_all(world, workloads, 3)
        assert count == best_count
        assert value >= 0.98 * best, workloads


def test_at_the_same_limit_no_more_hosts_are_used_than_by_first_fit(world: MeasuredWorld) -> None:
    workloads = plan_quality.drawn(world, 20, seed=4)
    fitted = plan_quality.first_fit(world, workloads, SLO)
    goal = Goal("admit", plan_quality.newcomers(world, workloads), objective="pack", keep_ratio=SLO)
    found = plan_quality.planned(world, plan_quality.cloud(world, len(fitted)), goal)
    there = [one for one in plan_quality.situations(found.after) if one]
    assert sum(map(len, there)) == len(workloads)
    assert not plan_quality.below(world, there, SLO)
    assert len(there) <= len(fitted)


def test_who_first_fit_puts_below_a_limit_is_brought_within_it(world: MeasuredWorld) -> None:
    several = [plan_quality.first_fit(world, plan_quality.drawn(world, 20, seed), None) for seed in range(10)]
    packed = max(several, key=lambda hosts: plan_quality.below(world, hosts, SLO))
    before = plan_quality.below(world, packed, SLO)
    assert before
    found = plan_quality.planned(
        world, plan_quality.cloud(world, len(packed), packed), Goal("rebalance", keep_ratio=SLO)
    )
    assert plan_quality.below(world, plan_quality.situations(found.after), SLO) < before
