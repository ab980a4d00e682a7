"""How long moves take: passes over memory that is written meanwhile, and networks that moves of a stage share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import Band, Instance, PlanRequest, PlanStep
from advisor.planning.migration_time import MigrationLimits, MoveTimes, copy_time, whole_time
from tests.advisor.planning.planning_asked import HOSTS, plan
from tests.advisor.planning.planning_cases import cloud, host, snapshot, vm

LIMITS = MigrationLimits(8, per_host=4)


def writes(mb_s: float | str, memory_mb: float = 8000) -> Instance:
    return Instance("a", 1, memory_mb, labels={"dirty_mb_s": str(mb_s)})


def test_each_pass_copies_what_was_written_during_the_one_before() -> None:
    """8 s for all, 4 s for what was written in them, 2, 1 and half a second; a quarter of one is in the pause."""
    assert copy_time(writes(500), 1000) == Band(15.75, 15.75, 15.75)
    assert copy_time(writes(0), 1000) == Band(8.0, 8.0, 8.0)
    assert copy_time(writes(1000), 1000) is None, "it writes as fast as it is copied"


@pytest.mark.parametrize("said", ["", "much", "-1", "nan"])
def test_who_does_not_say_how_fast_it_writes_has_a_range(said: str) -> None:
    found = copy_time(writes(said), 1000)
    assert found and (found.lower, found.upper) == (8.0, pytest.approx(15.75))
    assert found.lower < found.expected < found.upper


def _timed(*steps: PlanStep, limits: MigrationLimits = LIMITS, dirty: str = "0") -> list[float | None]:
    hosts = [replace(host(f"h{at}"), kind="kvm", labels={"rack": f"r{at // 2}"}) for at in range(5)]
    hosts[4] = replace(hosts[4], nic_mbit=None)
    there = [replace(vm(f"i{at}", on="h0", memory_mb=1000), labels={"dirty_mb_s": dirty}) for at in range(4)]
    found = MoveTimes(snapshot(tuple(hosts), *there), limits).of(steps)
    return [None if step.duration_s is None else step.duration_s.expected for step in found]


def move(at: int, to: str, stage: int = 0) -> PlanStep:
    return PlanStep(f"i{at}", to, action="move", source="h0", stage=stage)


def test_moves_of_one_stage_share_the_network_of_the_host_that_they_leave() -> None:
    """A Gbit/s carries a gigabyte in eight seconds; two at once have half of it each."""
    assert _timed(move(0, "h1")) == [8.0]
    assert _timed(move(0, "h1"), move(1, "h2"), move(2, "h3", stage=1)) == [16.0, 16.0, 8.0]


def test_less_network_makes_moves_slower_and_an_unknown_one_tells_nothing() -> None:
    assert _timed(move(0, "h1"), limits=replace(LIMITS, host_mbit=500)) == [16.0]
    within, beyond = move(0, "h1"), move(1, "h2")
    assert _timed(within, replace(beyond, stage=1), limits=replace(LIMITS, rack_mbit=100)) == [8.0, 80.0]
    assert _timed(move(0, "h4")) == [None]
    assert _timed(PlanStep("i0", "h0", action="settings", source="h0")) == [None]


def test_a_plan_takes_the_slowest_of_each_stage_and_a_move_that_never_ends_is_reported() -> None:
    slow, fast = (replace(move(0, "h1"), duration_s=Band(s, s, 2 * s)) for s in (8.0, 3.0))
    assert whole_time([slow, fast, replace(fast, stage=1)]) == Band(11.0, 11.0, 22.0)
    assert whole_time([slow, move(1, "h2")]) is None
    assert whole_time([]) is None
    busy = replace(vm("a", on="h1"), labels={"dirty_mb_s": "500"})
    (step,) = plan(cloud(busy, hosts=HOSTS), PlanRequest("evacuate", empty=("h1",))).steps
    assert step.duration_s is None
    assert "a writes its memory faster than 1,000 Mbit/s carry it: it has to be slowed down" in step.notes


def test_an_evacuation_runs_several_moves_together_and_says_how_long_that_and_the_way_back_take() -> None:
    some = [vm(f"i{at}", on="h1", memory_mb=1000) for at in range(6)]
    answer = plan(cloud(*some, hosts=HOSTS), PlanRequest("evacuate", empty=("h1",), keep_ratio=0.1))
    assert [step.stage for step in answer.steps] == [0, 0, 0, 0, 1, 1]
    assert [step.stage for step in answer.undo] == [0, 0, 1, 1, 1, 1]
    assert answer.duration_s
    assert answer.duration_s.lower == pytest.approx(4 * 8 + 2 * 8), "a Gbit/s for four gigabytes, then for two"
    assert all(step.duration_s for step in answer.undo)
