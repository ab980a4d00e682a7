"""Plans with dedicated vCPUs: each has a CPU of the host's dedicated part, counted here by hand on random clouds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, Plan, PlanKind, PlanRequest, WhatIf
from profiler.demand import Demand, Resource
from tests.advisor.planning.planning_asked import plan
from tests.advisor.planning.planning_cases import host
from tests.examples import examples

Size = tuple[int, int]  # shared and dedicated vCPUs
Room = tuple[int, int, bool]  # shared and dedicated CPUs, and whether the latter are set apart

ROOMS: tuple[Room, ...] = ((2, 4, True), (0, 4, True), (1, 6, True), (4, 4, False), (6, 2, True))
SIZES: tuple[Size, ...] = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 0), (2, 0), (1, 1))
ROOMS_OF_A_CLOUD = st.lists(st.sampled_from(ROOMS), min_size=2, max_size=3)
SEVERAL = st.lists(st.sampled_from(SIZES), min_size=1, max_size=6)
MIX = st.lists(st.sampled_from(SIZES), min_size=1, max_size=2)


def made(at: int, room: Room) -> Host:
    shared, own, apart = room
    there = host(f"h{at}", memory_mb=1e5, pcpus=1 + shared + (own if apart else 0))
    there = replace(there, isolated_cpus=(0,), cpu_overcommit=1.0)
    return replace(there, dedicated_cpus=tuple(range(1 + shared, 1 + shared + own))) if apart else there


def using(cpus: float) -> dict[Resource, Demand]:
    return {"cpu": Demand(cpus, "cpu", p50=cpus, p95=cpus, p99=cpus)}


def idle(name: str, size: Size, on: str | None = None) -> Instance:
    """It asks for so little CPU that only its size may keep it out."""
    return Instance(name, sum(size), 10.0, host=on, demand=using(0.01), dedicated_vcpus=size[1])


def holds(room: Room, sizes: Iterable[Size]) -> bool:
    """Whether each dedicated vCPU of these has a CPU to itself, and shared ones are within what the host promises."""
    here = [(0, 0), *sizes]
    shared, own = sum(size[0] for size in here), sum(size[1] for size in here)
    if room[2]:
        return own <= room[1] and shared <= room[0]
    return own <= room[0] and shared + own <= room[0]


def seated(rooms: Sequence[Room], sizes: Iterable[Size]) -> list[tuple[Size, ...]]:
    """First fit; those that fit nowhere are left out."""
    here: list[tuple[Size, ...]] = [()] * len(rooms)
    for size in sizes:
        at = next((at for at, room in enumerate(rooms) if holds(room, (*here[at], size))), None)
        if at is not None:
            here[at] = (*here[at], size)
    return here


@cache
def all_fit(rooms: tuple[tuple[Room, tuple[Size, ...]], ...], waiting: tuple[Size, ...]) -> bool:
    """Whether any packing has all of these, by trying every host for each."""
    if not waiting:
        return True
    first, rest = waiting[0], waiting[1:]
    return any(
        holds(room, (*here, first)) and all_fit((*rooms[:at], (room, (*here, first)), *rooms[at + 1 :]), rest)
        for at, (room, here) in enumerate(rooms)
    )


def cloud(rooms: Sequence[Room], sizes: Sequence[Size]) -> Inventory:
    residents = [
        idle(f"r{at}-{number}", size, f"h{at}")
        for at, here in enumerate(seated(rooms, sizes))
        for number, size in enumerate(here)
    ]
    return Inventory(tuple(made(at, room) for at, room in enumerate(rooms)), tuple(residents))


def sizes_there(inventory: Inventory, places: Mapping[str, str], new: Sequence[Size]) -> dict[str, list[Size]]:
    """The sizes on each host by where each instance is; `new` are those of a mix in turn."""
    known = {one.id: (one.shared_vcpus, one.dedicated_vcpus) for one in inventory.instances}
    there: dict[str, list[Size]] = {}
    for name, where in places.items():
        number = int(name.partition(".more-")[2] or 0) or int(name[1:]) if name not in known else 0
        there.setdefault(where, []).append(known.get(name) or new[(number - 1) % len(new)])
    return there


def check(rooms: Sequence[Room], inventory: Inventory, found: Plan, new: Sequence[Size]) -> None:
    """The cloud after the plan, and after each of its stages, which begins with every moving instance on both hosts."""
    after = {effect.instance: name for name, effects in found.after.items() for effect in effects}
    for name, sizes in sizes_there(inventory, after, new).items():
        assert holds(rooms[int(name[1:])], sizes), (name, sizes)
    places = {one.id: one.host for one in inventory.instances if one.host}
    for stage in sorted({step.stage for step in found.steps}):
        steps = [step for step in found.steps if step.stage == stage and step.host]
        places |= {step.instance: step.host for step in steps if step.host}
        for name, sizes in sizes_there(inventory, places, new).items():
            assert holds(rooms[int(name[1:])], sizes), (stage, name, sizes)


@pytest.mark.parametrize("kind", ["admit", "consolidate", "evacuate", "rebalance", "what_if"])
@given(ROOMS_OF_A_CLOUD, SEVERAL, SEVERAL)
@settings(max_examples=examples(45), deadline=None)
def test_no_plan_gives_two_dedicated_vcpus_one_cpu(
    kind: PlanKind, rooms: list[Room], there: list[Size], new: list[Size]
) -> None:
    inventory = cloud(rooms, there)
    request = {
        "admit": PlanRequest(instances=tuple(idle(f"n{number}", size) for number, size in enumerate(new, start=1))),
        "evacuate": PlanRequest(kind="evacuate", empty=("h0",)),
        "what_if": PlanRequest(kind="what_if", what_if=WhatIf(remove=("h0",)), then="rebalance"),
    }.get(kind, PlanRequest(kind=kind))
    found = plan(inventory, replace(request, time_limit_s=5.0))
    check(rooms, inventory, found, new)
    if kind == "consolidate" and found.search:
        movable = [(one.shared_vcpus, one.dedicated_vcpus) for one in inventory.instances]
        fewest = min(
            chosen.bit_count()
            for chosen in range(1 << len(rooms))
            if all_fit(tuple((room, ()) for at, room in enumerate(rooms) if chosen >> at & 1), tuple(movable))
        )
        assert found.search.bound <= fewest <= found.search.value
    if kind == "admit":
        placed = {step.instance for step in found.steps if step.host}
        free = tuple(
            (
                room,
                tuple((one.shared_vcpus, one.dedicated_vcpus) for one in inventory.instances if one.host == f"h{at}"),
            )
            for at, room in enumerate(rooms)
        )
        out_of_time = found.search and found.search.ended == "time"
        assert out_of_time or not all_fit(free, tuple(sorted(new, reverse=True))) or len(placed) == len(new)


@given(ROOMS_OF_A_CLOUD, SEVERAL, MIX)
@settings(max_examples=examples(30), deadline=None)
def test_capacity_counts_a_cpu_for_each_dedicated_vcpu(rooms: list[Room], there: list[Size], mix: list[Size]) -> None:
    inventory = cloud(rooms, there)
    templates = tuple(idle(f"m{number}", size) for number, size in enumerate(mix))
    found = plan(inventory, PlanRequest(kind="capacity", instances=templates, spare_hosts=1, time_limit_s=10.0))
    check(rooms, inventory, found, mix)
    assert found.capacity
    assert found.search
    free = tuple(
        (room, tuple((one.shared_vcpus, one.dedicated_vcpus) for one in inventory.instances if one.host == f"h{at}"))
        for at, room in enumerate(rooms)
    )
    best = next(
        many - 1 for many in range(1, 100) if not all_fit(free, tuple(mix[number % len(mix)] for number in range(many)))
    )
    assert found.capacity.fit <= best <= found.search.bound
    assert found.capacity.by_rule <= best
    spare = found.capacity.spare
    if spare and spare.fit:
        all_instances = [(one.shared_vcpus, one.dedicated_vcpus) for one in inventory.instances]
        all_instances += [mix[number % len(mix)] for number in range(spare.fit)]
        for failed in range(len(rooms)):
            left = tuple((room, ()) for at, room in enumerate(rooms) if at != failed)
            assert all_fit(left, tuple(all_instances))


def test_new_sizes_of_dedicated_instances_are_dedicated_and_within_the_dedicated_part() -> None:
    def of(name: str, size: Size, p95: float) -> Instance:
        return replace(idle(name, size, "h0"), demand=using(p95))

    wide, full, mixed = of("wide", (0, 6), 0.5), of("full", (0, 2), 2.0), of("mixed", (1, 4), 0.4)
    room: Room = (2, 12, True)
    inventory = Inventory((made(0, room),), (wide, full, mixed))
    found = plan(inventory, PlanRequest(kind="right_size"))
    vcpus = {step.instance: step.vcpus for step in found.steps if step.vcpus}
    assert set(vcpus) == {"wide", "mixed"}
    assert all(vcpus[one.id] < one.dedicated_vcpus for one in (wide, mixed))


def test_a_cloud_of_pinned_instances_leaves_dedicated_ones_where_they_are() -> None:
    room: Room = (4, 4, True)
    there = (idle("own", (0, 4), "h0"), idle("web", (2, 0), "h0"), idle("mixed", (1, 0), "h0"))
    inventory = Inventory((made(0, room),), there)
    found = plan(inventory, PlanRequest(kind="what_if", what_if=WhatIf(pinning="own")))
    assert not [note for note in found.notes if "h0" in note], "it has CPUs enough"
