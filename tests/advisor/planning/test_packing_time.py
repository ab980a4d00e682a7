"""Packing ends when its time does, however slow predictions are: by a clock on which only predictions take time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.mix_packing import pack_mix
from advisor.planning.assignment.packing import pack
from advisor.planning.assignment.packing_problem import Goal, build_problem
from advisor.planning.assignment.search_state import PatternEvaluator, SearchState
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, InterferencePrediction
from tests.advisor.planning.planning_cases import host, snapshot, vm

STEP_S, HOSTS = 10.0, tuple(host(f"h{number}", 65_536, pcpus=16) for number in range(1, 4))


class Slow:
    """The prior, of which each prediction takes STEP_S of a clock that stands still otherwise."""

    version = origin = "slow"
    metrics = PriorPredictor.metrics

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        self.now_s += STEP_S
        return PriorPredictor().predict(scenes, targets)


def packed(state: SearchState, clock: SearchClock) -> None:
    pack(state, state.problem.waiting, clock)


def mixed(state: SearchState, clock: SearchClock) -> None:
    pack_mix(state, state.problem.waiting, 500, clock)


@pytest.mark.parametrize("limit_s", [0.0, 5.0, 25.0])
@pytest.mark.parametrize(("search", "steps"), [(packed, 1), (mixed, 2)])
def test_only_the_step_that_has_begun_is_ended_once_the_time_is_over(
    search: Callable[[SearchState, SearchClock], None], steps: int, limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second step of a mix checks the answer itself."""
    slow = Slow()
    monkeypatch.setattr(time, "monotonic", slow.monotonic)
    new_vms = [
        replace(vm(f"{workload}{number}", workload, memory_mb=64), load=0.05 + number % 3 / 100)
        for workload in ("cpu", "web", "bulk")
        for number in range(30)
    ]
    problem = build_problem(snapshot(HOSTS), Goal("admit", tuple(new_vms)), math.inf)
    state = SearchState.of(PatternEvaluator.of(problem, slow), "pack")
    begun_s = slow.now_s
    search(state, SearchClock.of(limit_s))
    assert slow.now_s - begun_s <= 1.1 * limit_s + steps * STEP_S
    assert limit_s < STEP_S or slow.now_s > begun_s, "there was something to predict"
