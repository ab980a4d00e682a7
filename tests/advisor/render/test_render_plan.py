"""A candidate as commands: what comes first, what no instance meets on the way, and that all can be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Command
from advisor.errors import InvalidInput
from advisor.render import commands, plan
from advisor.render.tc import class_minor
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning, parse_cpus
from tests.advisor.render.render_simulators import Machine
from tests.advisor.render.render_strategies import EVERYTHING, NOTHING, PLACES, Place, complete, isolations
from tests.examples import examples

HOST = Host("h1", "xen", pcpus=4, memory_mb=8192, nic_mbit=1000, labels={"uplink": "eth0"})
LXC = replace(HOST, kind="lxc")
SHOP = Instance("shop", vcpus=1, labels={"mac": "52:54:00:00:00:01"}, service="latency")


def pins(text: str, **more: Any) -> IsolationSettings:
    return IsolationSettings(pinning=Pinning.parse(text), **more)


def resident(name: str, settings: IsolationSettings = NOTHING, number: int = 9) -> Instance:
    return Instance(name, vcpus=1, settings=settings, labels={"mac": f"52:54:00:00:00:{number:02x}"})


def run(made: tuple[Command, ...]) -> list[str]:
    return [" ".join(command.argv) for command in made if command.argv]


def test_residents_make_room_before_the_new_vm_comes() -> None:
    made = plan(
        HOST, SHOP, pins("0:2", weight=512), (resident("batch", pins("0:2")), resident("bulk")),
        {"batch": pins("0:3"), "bulk": IsolationSettings(cap_percent=50)},
    )  # fmt: skip
    assert run(made) == [
        "xl vcpu-pin batch 0 3",
        "xl sched-credit2 -d bulk -c 50",
        "xl vcpu-pin shop 0 2",
        "xl sched-credit2 -d shop -w 512",
    ]


def test_who_moves_onto_new_cpus_is_capped_before_and_who_gives_up_cpus_goes_first() -> None:
    made = plan(
        LXC, SHOP, NOTHING, (resident("a", pins("0:0")), resident("b", pins("0:0-3"))),
        {"a": pins("0:1", cap_percent=20), "b": pins("0:2-3", cap_percent=20)},
    )  # fmt: skip
    assert [text.removeprefix("cgset -r ").replace(" -- lxc.payload.", " ") for text in run(made)] == [
        "cpuset.cpus=2-3 b",
        "cpu.max=20000 100000 a",
        "cpuset.cpus=1 a",
        "cpu.max=20000 100000 b",
    ]


def test_a_cpu_is_left_before_another_instance_comes_to_it() -> None:
    chain = (resident("a", pins("0:0")), resident("b", pins("0:1")), resident("c", pins("0:2")))
    made = plan(HOST, SHOP, NOTHING, chain, {"a": pins("0:1"), "b": pins("0:2"), "c": pins("0:3")})
    assert run(made) == ["xl vcpu-pin c 0 3", "xl vcpu-pin b 0 2", "xl vcpu-pin a 0 1"]


def test_two_who_change_places_are_moved_as_they_stand() -> None:
    two = (resident("a", pins("0:0")), resident("b", pins("0:1")))
    made = plan(HOST, SHOP, NOTHING, two, {"a": pins("0:1"), "b": pins("0:0")})
    assert run(made) == ["xl vcpu-pin a 0 1", "xl vcpu-pin b 0 0"]


def test_only_what_differs_is_rendered() -> None:
    now = pins("0:1", weight=128, cap_percent=50)
    assert plan(HOST, SHOP, NOTHING, (resident("a", now),), {"a": now}) == ()
    lighter = plan(HOST, SHOP, NOTHING, (resident("a", now),), {"a": replace(now, weight=64)})
    assert run(lighter) == ["xl sched-credit2 -d a -w 64"]


def test_the_tree_on_the_uplink_is_made_once_for_all_who_need_it() -> None:
    shaped = IsolationSettings(network=NetworkSettings("shared", 100))
    made = run(plan(HOST, SHOP, shaped, (resident("bulk"),), {"bulk": shaped}))
    assert [text.split()[1:3] for text in made] == [
        ["qdisc", "add"], ["class", "add"], ["class", "add"], ["qdisc", "add"],  # the tree
        *[["class", "add"], ["qdisc", "add"], ["filter", "add"]] * 2,
    ]  # fmt: skip


def test_the_tree_stays_when_one_leaves_it_and_the_new_vm_needs_it() -> None:
    shaped, free = (IsolationSettings(network=network) for network in (NetworkSettings("shared", 9), NetworkSettings()))
    made = run(plan(HOST, SHOP, shaped, (resident("bulk", shaped),), {"bulk": free}))
    assert [text.split()[1:3] for text in made] == [
        ["filter", "del"], ["qdisc", "del"], ["class", "del"],
        ["class", "add"], ["qdisc", "add"], ["filter", "add"],
    ]  # fmt: skip


def test_the_new_vm_s_definition_stands_before_the_commands_that_need_it_to_run() -> None:
    made = plan(replace(HOST, kind="kvm"), SHOP, pins("0:2", cap_percent=50), (), {})
    (said, *rest) = made
    assert said.argv == ()
    assert '<vcpupin vcpu="0" cpuset="2" />' in said.note
    assert all(command.argv for command in rest)


def test_changes_to_an_absent_instance_and_a_new_vm_that_is_present_are_refused() -> None:
    with pytest.raises(InvalidInput, match="instance ghost is to be changed and is not on host h1"):
        plan(HOST, SHOP, NOTHING, (resident("a"),), {"ghost": pins("0:1")})
    with pytest.raises(InvalidInput, match="shop is on host h1 already"):
        plan(HOST, SHOP, NOTHING, (resident("shop"),), {})


Crowd = list[tuple[IsolationSettings, IsolationSettings | None]]  # what residents have, and what they are to get
CROWDS = st.lists(st.tuples(isolations(), st.none() | isolations()), max_size=3)


def _crowd(place: Place, crowd: Crowd) -> tuple[tuple[Instance, ...], Mapping[str, IsolationSettings]]:
    residents = tuple(place.instance(f"vm-{at}", 2 + at, now) for at, (now, _) in enumerate(crowd))
    return residents, {one.id: then for one, (_, then) in zip(residents, crowd, strict=True) if then is not None}


def _running(place: Place, residents: tuple[Instance, ...]) -> Machine:
    """The host with its residents as they are, each setting having been written once so that it holds a value."""
    machine, host = Machine(), place.host()
    for at, one in enumerate(residents):
        options = {**place.options, "neighbours": residents[:at]}
        machine.settle(commands(host, one, NOTHING, EVERYTHING, **options))
        machine.do(commands(host, one, NOTHING, one.settings, **options))
    return machine


@given(PLACES, isolations(), CROWDS)
@settings(max_examples=examples(150), deadline=None)
def test_undo_of_a_whole_plan_restores_the_state(place: Place, wanted: IsolationSettings, crowd: Crowd) -> None:
    residents, changes = _crowd(place, crowd)
    machine, new_vm = _running(place, residents), place.instance("shop", 1, NOTHING, "latency")
    machine.settle(plan(place.host(), new_vm, wanted, residents, {}, **place.options))
    machine.check_undo(plan(place.host(), new_vm, wanted, residents, changes, **place.options))


@given(PLACES, isolations(), CROWDS)
@settings(max_examples=examples(100), deadline=None)
def test_nothing_is_left_to_do_after_a_plan(place: Place, wanted: IsolationSettings, crowd: Crowd) -> None:
    residents, changes = _crowd(place, crowd)
    new_vm = place.instance("shop", 1, NOTHING)
    done = tuple(replace(one, settings=complete(one.settings, changes.get(one.id, NOTHING))) for one in residents)
    assert not any(
        command.argv or command.undo
        for command in plan(place.host(), new_vm, NOTHING, done, changes, **place.options)
        if new_vm.id not in command.argv  # on KVM its threads go where the driver domain is
    )
    first = plan(place.host(), new_vm, wanted, residents, changes, **place.options)
    owners = [_owner(command, (*residents, new_vm)) for command in first if command.argv]
    comes = next((at for at, owner in enumerate(owners) if owner == new_vm.id), len(owners))
    assert set(owners[comes:]) <= {new_vm.id, "tree"}


def _owner(command: Command, instances: tuple[Instance, ...]) -> str:
    """What a command is about: by name, by class, flavor or port; else about the tree on the uplink."""
    text = " ".join(command.argv)
    for one in instances:
        minor = class_minor(one.id)
        marks = (f" {one.id} ", f"-{one.id} ", f"lxc.payload.{one.id} ", f":{minor:x} ", f"pref {minor} ")
        if any(mark in f" {text} " for mark in marks):
            return one.id
    return "tree"


PINNED = st.lists(st.integers(0, 3), unique=True, min_size=1).map(lambda cpus: Pinning((tuple(sorted(cpus)),)))


@given(st.lists(st.tuples(PINNED, PINNED, st.none() | st.floats(5, 90), st.none() | st.floats(5, 90)), max_size=4))
@settings(max_examples=examples(150), deadline=None)
def test_on_the_way_no_instance_shares_a_new_cpu_without_its_later_limit(
    moves: list[tuple[Pinning, Pinning, float | None, float | None]],
) -> None:
    residents = tuple(
        Instance(f"vm-{at}", settings=IsolationSettings(now, cap)) for at, (now, _, cap, _) in enumerate(moves)
    )
    changes = {f"vm-{at}": IsolationSettings(then, cap) for at, (_, then, _, cap) in enumerate(moves)}
    host = replace(LXC, labels={})
    machine = Machine()
    for one in residents:
        machine.do(commands(host, one, NOTHING, one.settings))
    for command in plan(host, Instance("shop"), NOTHING, residents, changes):
        machine.do([command])
        for one in residents:
            group = f"lxc.payload.{one.id}"
            cpus = set(parse_cpus(machine.state.get((group, "cpuset.cpus"), "0-3")))
            wanted = changes[one.id].cap_percent
            if cpus - set(one.settings.pinning.union) and wanted is not None:  # type: ignore[union-attr]
                quota, period = machine.state[group, "cpu.max"].split()
                assert quota != "max"
                assert 100 * int(quota) / int(period) <= wanted + 0.1
