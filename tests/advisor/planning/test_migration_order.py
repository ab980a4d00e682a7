"""Steps of a plan in stages: no limit breaks on the way, a free host breaks a circle, and back is the reverse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Instance
from advisor.planning.migration_order import (
    FeasibilityChecker,
    InstanceChange,
    MigrationOrder,
    ScheduledChange,
    schedule,
)
from advisor.planning.migration_time import MigrationLimits
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from tests.advisor.planning.planning_cases import host, snapshot, vm
from tests.examples import examples

PRIOR = PriorPredictor()
KEEP = 0.8
Cloud = dict[str, dict[str, Instance]]


def moved(one: Instance, to: str) -> InstanceChange:
    return InstanceChange(replace(one, host=to), one)


def ordered(start: ClusterSnapshot, *changes: InstanceChange, at_once: int = 2, **more: Any) -> MigrationOrder:
    return schedule(start, changes, PRIOR, keep_ratio=KEEP, limits=MigrationLimits(at_once, **more))


def reported(found: MigrationOrder) -> list[tuple[int, str, str | None]]:
    return [(one.stage, one.change.then.id, one.change.then.host) for one in found.scheduled]


TWO = host("h1", 4096), host("h2", 4096)
THREE = (*TWO, host("h3", 4096))
A, B = vm("a", on="h1", memory_mb=3000), vm("b", on="h2", memory_mb=2500)
SWAP = moved(A, "h2"), moved(B, "h1")


def test_who_makes_room_goes_before_who_needs_it() -> None:
    a, b = A, replace(B, memory_mb=3000)
    start = snapshot(THREE, a, b)
    assert reported(ordered(start, moved(a, "h2"), moved(b, "h3"))) == [(0, "b", "h3"), (1, "a", "h2")]


def test_two_that_change_places_go_by_a_free_host_and_the_smaller_one_goes_round() -> None:
    found = ordered(snapshot(THREE, A, B), *SWAP)
    assert reported(found) == [(0, "b", "h3"), (1, "a", "h2"), (2, "b", "h1")]
    assert [one.between for one in found.scheduled] == ["a", "", ""]
    assert not found.stuck


def test_two_of_an_anti_affinity_group_that_change_places_are_never_together_on_the_way() -> None:
    a, b = (vm(name, on=at, memory_mb=100, labels={"anti_affinity": "db"}) for name, at in (("a", "h1"), ("b", "h2")))
    found = ordered(snapshot(TWO, a, b), moved(a, "h2"), moved(b, "h1"), at_once=9, per_host=4)
    assert found.scheduled == ()
    assert found.stuck["a"] == "h2 hosts another instance of the anti-affinity group db"
    found = ordered(snapshot(THREE, a, b), moved(a, "h2"), moved(b, "h1"), at_once=9, per_host=4)
    assert reported(found) == [(0, "a", "h3"), (1, "b", "h1"), (2, "a", "h2")]


def test_no_move_goes_round_by_a_host_of_another_kind_or_takes_more_steps_than_allowed() -> None:
    assert ordered(snapshot((*TWO, replace(THREE[2], kind="kvm")), A, B), *SWAP).scheduled == ()
    for most, count in ((2, 0), (3, 3)):
        limits = MigrationLimits(2)
        found = schedule(snapshot(THREE, A, B), SWAP, PRIOR, keep_ratio=KEEP, limits=limits, most_moves=most)
        assert len(found.scheduled) == count


def test_without_a_host_in_between_both_stay_and_it_is_said_what_is_in_the_way() -> None:
    start = snapshot(TWO, A, B)
    found = ordered(start, *SWAP)
    assert found.scheduled == ()
    assert found.after is start
    why = "{} has no room for its memory beside the other instances".format
    assert found.stuck == {"a": why("h2"), "b": why("h1")}


def test_a_stage_has_as_many_moves_as_allowed_and_one_for_each_host() -> None:
    some = [vm(f"m{number}", on=f"h{number}", memory_mb=100) for number in range(4)]
    start = snapshot(tuple(host(f"h{number}") for number in range(8)), *some)
    changes = [moved(one, f"h{number + 4}") for number, one in enumerate(some)]
    assert [stage for stage, *_ in reported(ordered(start, *changes, at_once=3))] == [0, 0, 0, 1]
    together = [moved(one, "h7") for one in some[:2]]
    assert [stage for stage, *_ in reported(ordered(start, *together, at_once=3))] == [0, 1]


def test_no_instance_falls_below_its_limit_on_the_way() -> None:
    """Both ends are fine; to bring b before a has gone would take the three of them below what they must keep."""
    a, b, c = vm("a", on="h1"), vm("b", on="h2"), vm("c", on="h1")
    start = snapshot((host("h1"), host("h2"), host("h3")), a, b, c)
    assert reported(ordered(start, moved(b, "h1"), moved(a, "h3"))) == [(0, "a", "h3"), (1, "b", "h1")]


HOSTS = tuple(host(f"h{number}", 4096) for number in range(4))
PLACES = st.sampled_from([one.id for one in HOSTS])


@st.composite
def transitions(draw: st.DrawFn) -> tuple[list[Instance], list[InstanceChange]]:
    """A cloud in which sizes hold before and after, and what is to change in it."""
    now: list[Instance] = []
    changes = []
    for number in range(draw(st.integers(1, 7))):
        one = vm(
            f"i{number}",
            draw(st.sampled_from(["cpu", "web", "bulk"])),
            memory_mb=draw(st.sampled_from([900, 1900])),
            min_throughput_ratio=draw(st.sampled_from([None, 0.5, 0.9])),
            labels=draw(st.sampled_from([{}, {}, {"anti_affinity": "g"}])),
        )
        here = replace(one, host=draw(PLACES))
        if draw(st.booleans()):
            now.append(here)
            changes.append(InstanceChange(replace(one, host=draw(PLACES)), here))
        else:
            changes.append(InstanceChange(here))
    changes = [one for one in changes if one.former != one.then]
    then = [one for one in now if one.id not in {change.then.id for change in changes}]
    for cloud in (now, [*then, *(change.then for change in changes)]):
        used = Counter[str]()
        for one in cloud:
            used[one.host or ""] += int(one.memory_mb)
        if any(amount > 4096 for amount in used.values()):
            now, changes = [], []
    return now, changes


def together(cloud: Cloud) -> set[str]:
    """Hosts with several instances of the anti-affinity group g."""
    grouped = {name: sum("anti_affinity" in one.labels for one in there.values()) for name, there in cloud.items()}
    return {f"{name}, g" for name, count in grouped.items() if count > 1}


def test_several_leave_one_host_together_within_the_limits_of_hosts_and_racks() -> None:
    some = [vm(f"m{number}", on="h0", memory_mb=100) for number in range(6)]
    racks = {"h0": "r0", "h1": "r1", "h2": "r1", "h3": "r2"}
    hosts = tuple(replace(host(name), labels={"rack": rack}) for name, rack in racks.items())
    start = snapshot(hosts, *some)
    changes = [moved(one, f"h{1 + number % 3}") for number, one in enumerate(some)]
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"per_host": 6}, [6]),
        ({"per_host": 4}, [4, 2]),
        ({"per_host": 6, "at_once": 5}, [5, 1]),
        ({"per_host": 6, "per_rack": 2}, [2, 2, 2]),  # all of them leave r0
        ({"per_host": 6, "per_rack": 2, "rack_label": "row"}, [6]),  # no host has that label
    ]
    for limits, stages in cases:
        found = ordered(start, *changes, **{"at_once": 9, **limits})
        assert list(Counter(stage for stage, *_ in reported(found)).values()) == stages, limits
        assert not found.stuck


def test_those_of_one_stage_break_nothing_whichever_of_them_ends_first() -> None:
    """Each of a and b fits beside c by itself; both do only when c has gone, which may take longest."""
    a, b, c = (
        vm(name, on=at, memory_mb=size) for name, at, size in (("a", "h1", 1500), ("b", "h2", 1500), ("c", "h3", 2000))
    )
    start = snapshot(tuple(host(f"h{number}", 4096) for number in range(1, 5)), a, b, c)
    found = ordered(start, moved(a, "h3"), moved(b, "h3"), moved(c, "h4"), at_once=9, per_host=4)
    assert reported(found) == [(0, "a", "h3"), (0, "c", "h4"), (1, "b", "h3")]


@given(transitions(), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_at_no_moment_of_a_stage_or_of_the_way_back_is_broken_what_holds_before_and_after(
    case: tuple[list[Instance], list[InstanceChange]], per_host: int, random: Random
) -> None:
    now, changes = case
    start = snapshot(HOSTS, *now)
    found = ordered(start, *changes, at_once=9, per_host=per_host)
    judge = FeasibilityChecker(start, PRIOR, KEEP)

    def broken(there: Cloud) -> set[str]:
        verdicts = judge.of([(number, tuple(there[one.id].values())) for number, one in enumerate(start.hosts)])
        sizes = {f"{at}:{what}" for at, one in enumerate(verdicts) for what in range(4) if one.overcommitted[what] > 0}
        return sizes.union(together(there), *(one.below for one in verdicts))

    there: Cloud = {one.id: {} for one in HOSTS}
    for one in now:
        there[one.host or ""][one.id] = one
    end: Cloud = {name: dict(residents) for name, residents in there.items()}
    for change in changes:
        if change.former:
            end[change.former.host or ""].pop(change.then.id)
        end[change.then.host or ""][change.then.id] = change.then
    allowed, first = broken(there) | broken(end), {name: dict(residents) for name, residents in there.items()}

    def carried_out(steps: Sequence[ScheduledChange], *, back: bool) -> None:
        for _, together in groupby(steps, key=lambda step: step.stage):
            moves = [(step.change.then, step.change.former) for step in together]
            pairs = [(old, new) if back else (new, old) for new, old in moves]  # what comes, what goes
            events = [*range(len(pairs)), *range(len(pairs))]
            random.shuffle(events)
            begun: set[int] = set()
            for at in events:  # an instance is on both hosts between its two events
                came, went = pairs[at]
                if at not in begun and came is not None:
                    there[came.host or ""][came.id] = came
                if at in begun and went is not None and (came is None or went.host != came.host):
                    del there[went.host or ""][went.id]
                begun.add(at)
                assert broken(there) <= allowed

    carried_out(found.scheduled, back=False)
    after = zip(found.after.hosts, found.after.residents, strict=True)
    assert {at.id: {one.id: one for one in residents} for at, residents in after} == there
    if not found.stuck:
        assert there == end
    carried_out(found.back(), back=True)
    assert there == first
