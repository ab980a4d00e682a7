"""Plans of hosts whose outcomes were measured, beside the best of all plans and first fit."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from advisor.planning.assignment.goal import Goal
from models.data.dataset import load_dataset
from research.benchmarks.clouds import planned
from research.benchmarks.clouds.planned import KEEP
from research.benchmarks.clouds.worlds import World, worlds

LAB = Path(__file__).parents[3] / "datasets" / "lab-neighbours"
SLO = 0.9


@pytest.fixture(scope="module")
def world() -> World:
    return next(one for one in worlds(load_dataset(LAB)) if one.name == "different CPUs")


def test_small_plans_are_within_two_percent_of_the_best_of_all(world: World) -> None:
    for workloads in list(combinations_with_replacement(world.workloads, 4))[::18]:
        goal = Goal("admit", planned.newcomers(world, workloads), objective="total", keep_ratio=KEEP)
        found = planned.planned(world, planned.cloud(world, 3), goal)
        count, value = planned.total(world, planned.situations(found.after))
        best_count, best = planned.best_of_all(world, workloads, 3)
        assert count == best_count
        assert value >= 0.98 * best, workloads


def test_at_the_same_limit_no_more_hosts_are_used_than_by_first_fit(world: World) -> None:
    workloads = planned.drawn(world, 20, seed=4)
    fitted = planned.first_fit(world, workloads, SLO)
    goal = Goal("admit", planned.newcomers(world, workloads), objective="pack", keep_ratio=SLO)
    found = planned.planned(world, planned.cloud(world, len(fitted)), goal)
    there = [one for one in planned.situations(found.after) if one]
    assert sum(map(len, there)) == len(workloads)
    assert not planned.below(world, there, SLO)
    assert len(there) <= len(fitted)


def test_who_first_fit_puts_below_a_limit_is_brought_within_it(world: World) -> None:
    several = [planned.first_fit(world, planned.drawn(world, 20, seed), None) for seed in range(10)]
    packed = max(several, key=lambda hosts: planned.below(world, hosts, SLO))
    before = planned.below(world, packed, SLO)
    assert before
    found = planned.planned(world, planned.cloud(world, len(packed), packed), Goal("rebalance", keep_ratio=SLO))
    assert planned.below(world, planned.situations(found.after), SLO) < before
