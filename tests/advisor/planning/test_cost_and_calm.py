"""What a migration costs counts against its gain, and instances and hosts that had a move lately rest."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain import Instance, MoveSeen, Plan, PlanRequest
from advisor.planning.assignment.move_value import MoveCosts, copying_cpus
from advisor.planning.assignment.packing_problem import Goal, Kinds, build_problem
from advisor.planning.repair import MOST_S, Rest, occasions
from tests.advisor.planning.planning_asked import HOSTS, carried_out, plan
from tests.advisor.planning.planning_cases import NOW, cloud, host, snapshot, vm
from tests.advisor.planning.test_assign import SMALL_CLOUD

HOUR_S, DAY_S = 3600.0, 86_400.0
CROWD = [vm(f"p{at}", on="h1", min_throughput_ratio=0.9 if at == 0 else None) for at in range(9)]  # on four CPUs
REBALANCE = PlanRequest(kind="rebalance")


def cost(mover: Instance, *others: Instance, pcpus: int = 8, mbit: float | None = None) -> tuple[float, float, float]:
    """Harm in seconds: what a move of one instance from h1 to h2 costs where it must pay within a second."""
    there = snapshot((host("h1", 1e6, pcpus), host("h2", 1e6, pcpus)), replace(mover, host="h1"), *others)
    problem = build_problem(there, Goal("rebalance"), 60.0)

    def kinds(at: int) -> Kinds:
        return (*problem.fixed[at], *problem.initial[at])

    kind = next(at for at, ids in enumerate(problem.ids_of_kind) if mover.id in ids)
    band = MoveCosts(problem, 1.0, mbit).of(kind, 0, 1, (kinds(0), kinds(1)))
    return band.expected, band.lower, band.upper


@pytest.mark.parametrize(("memory_mb", "dirty", "mbit"), [(4000, 0, 1000), (64_000, 20, 1000), (8000, 50, 500)])
def test_a_move_costs_a_tenth_of_its_copys_time_and_its_pause(memory_mb: float, dirty: float, mbit: float) -> None:
    speed, left, seconds = mbit / 8, memory_mb, 0.0
    while left / speed > 0.3:  # pass by pass, from the definition of pre-copy
        seconds += left / speed
        left = dirty * left / speed
    seconds += left / speed
    alone = vm("m", memory_mb=memory_mb, labels={"dirty_mb_s": f"{dirty}"})
    assert cost(alone, mbit=mbit) == pytest.approx(3 * (0.1 * seconds + 0.3,))


def test_copying_costs_others_what_it_takes_of_busy_cpus() -> None:
    mover = vm("m", "bulk", memory_mb=8000, labels={"dirty_mb_s": "0"})
    busy = [vm(f"o{at}", on="h2", min_throughput_ratio=None) for at in range(4)]  # each demands a whole CPU
    quiet, crowded = cost(mover, *busy, pcpus=8)[0], cost(mover, *busy, pcpus=4)[0]
    copied_s, takes = 8000 / 125, copying_cpus(1000)
    assert quiet == pytest.approx(0.1 * copied_s + 0.3)
    assert crowded - quiet == pytest.approx(0.3 * copied_s * 4 * takes / (4 + takes))


def test_a_host_copies_with_as_many_cpus_as_its_network_asks_for() -> None:
    assert [copying_cpus(mbit) for mbit in (0.0, 500.0, 1000.0, 10_000.0)] == pytest.approx([0.0, 0.15, 0.3, 1.0])


def moved(found: Plan) -> dict[str, str | None]:
    return {step.instance: step.host for step in found.steps}


def test_a_move_that_costs_more_than_it_gains_within_its_rest_is_not_made() -> None:
    large = tuple(replace(one, memory_mb=1e6) for one in HOSTS)

    def found(dirty: str, **more: object) -> dict[str, str | None]:
        heavy = [replace(one, memory_mb=64_000.0, labels={"dirty_mb_s": dirty}) for one in CROWD]
        return moved(plan(cloud(*heavy, hosts=large), replace(REBALANCE, **more)))  # type: ignore[arg-type]

    assert found("0")
    assert not found("200")  # over 1 Gbit/s nothing copies memory that is written so fast
    assert not found("0", migration_mbit=1.0)
    assert found("0", migration_mbit=1.0, rest_h=168.0)


def at(hours: float, name: str = "p0", source: str | None = "h2", target: str = "h1") -> MoveSeen:
    return MoveSeen(name, source, target, NOW.timestamp() - hours * HOUR_S)


def test_a_host_and_its_instances_rest_after_a_move_and_the_plan_says_until_when() -> None:
    there = cloud(*CROWD, hosts=HOSTS)
    found = plan(there, REBALANCE, moved=lambda: (at(0.1),))
    assert not found.steps
    assert found.search is not None
    assert found.search.ended == "not now"
    assert any("2026-03-01 17:54 UTC" in note and "p0" in note for note in found.notes)
    assert any("2026-03-01 12:09 UTC" in note and "h1" in note for note in found.notes)
    later = plan(there, REBALANCE, moved=lambda: (at(1.0),))
    assert moved(later)
    assert "p0" not in moved(later)
    assert moved(plan(there, REBALANCE, moved=lambda: (at(6.1),))) == moved(plan(there, REBALANCE))
    assert moved(plan(there, replace(REBALANCE, rest_h=0.0), moved=lambda: (at(0.1),)))


def test_a_host_that_rests_can_still_be_emptied() -> None:
    asked = PlanRequest(kind="evacuate", empty=("h1",))
    found = plan(cloud(*CROWD, hosts=HOSTS), asked, moved=lambda: (at(0.1),))
    assert moved(found) == moved(plan(cloud(*CROWD, hosts=HOSTS), asked))
    assert len(moved(found)) == len(CROWD)


def test_the_label_of_an_instance_shows_moves_that_were_not_observed() -> None:
    reported = (NOW - timedelta(hours=1)).isoformat()
    labelled = [replace(one, labels={"moved_at": f"{reported}, nonsense"}) for one in CROWD]
    found = plan(cloud(*labelled, hosts=HOSTS), REBALANCE)
    assert not found.steps
    assert found.search is not None
    assert found.search.ended == "not now"
    nothing = [replace(one, labels={"moved_at": "nonsense"}) for one in CROWD]
    assert plan(cloud(*nothing, hosts=HOSTS), REBALANCE).steps


def test_whoever_was_moved_by_a_plan_is_not_moved_by_the_next_one() -> None:
    there = cloud(*CROWD, hosts=HOSTS)
    first = plan(there, REBALANCE)
    done = [MoveSeen(step.instance, step.source, step.host or "", NOW.timestamp()) for step in first.steps]
    other = carried_out(there, first)
    crowded = replace(other, instances=tuple(replace(one, host="h3") for one in other.instances))
    for hours in (0.0, 1.0, 5.9):
        again = plan(crowded, REBALANCE, now=NOW + timedelta(hours=hours), moved=lambda: tuple(done))
        assert not moved(again).keys() & {move.instance for move in done}


@SMALL_CLOUD
@given(st.lists(st.integers(0, 8 * 86_400), max_size=6), st.integers(0, 4 * 168))
def test_a_rest_is_twice_as_long_after_each_move_more_within_a_week(ago: list[int], quarters: int) -> None:
    now_s, rest_h = NOW.timestamp(), quarters / 4
    there = snapshot((host("h1"), host("h2")), vm("a", on="h1"))
    rest = Rest.of(there, [MoveSeen("a", "h2", "h1", now_s - each) for each in ago], NOW, rest_h)
    lately = sorted(each for each in ago if each < MOST_S)
    until = []
    if lately:
        events = occasions([now_s - each for each in lately])
        assert 1 <= events <= len(lately)
        until = [now_s - lately[0] + min(3600 * rest_h * 2.0 ** (events - 1), MOST_S)]
    assert [one.until_s for one in rest.instances.values()] == pytest.approx([each for each in until if each > now_s])
    host_until = [one.until_s - now_s for one in rest.hosts.values()]
    assert all(0 < left <= 3600 * rest_h for left in host_until)
    assert not (rest_h == 0 and (rest.instances or rest.hosts))


@SMALL_CLOUD
@given(st.lists(st.floats(0.0, DAY_S), max_size=8))
def test_moves_close_together_are_one_occasion(moments: list[float]) -> None:
    counted, left = 0, sorted(moments)
    while left:
        counted += 1
        left = [each for each in left if each >= left[0] + 900.0]
    assert occasions(moments) == counted
    assert occasions([*moments, math.inf]) == counted + 1
