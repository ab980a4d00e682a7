"""Moves, placements and sizes as commands for every tool, each with the way back; what no tool does is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import Command, Host, Instance, IsolationSettings, Pinning
from advisor.errors import InvalidInput
from advisor.render import migrations
from profiler.host_kinds import HostKind
from profiler.observed import NetworkSettings

PINNED = IsolationSettings(pinning=Pinning(((2,), (3,))), weight=512)


def host(name: str, kind: HostKind = "kvm", **labels: str) -> Host:
    return Host(name, kind, pcpus=8, memory_mb=65_536, nic_mbit=1000, labels=labels)


def moved(one: Instance, source: Host, target: Host) -> tuple[Command, ...]:
    here = replace(one, host=source.id)
    settings = replace(one.settings, pinning=None)
    return migrations.move(here, replace(one, host=target.id, settings=settings), source, target, (), ())


@pytest.mark.parametrize(
    ("source", "target", "guest", "argv", "back"),
    [
        (host("h1", "xen"), host("h2", "xen", address="h2.lan"), "", "xl migrate shop-7 h2.lan", ("h2.lan", "h1")),
        (
            host("h1"), host("h2"), "",
            "virsh migrate --live --persistent --undefinesource --domain shop-7 --desturi qemu+ssh://h2/system",
            ("//h2", "//h1"),
        ),
        (
            host("c1", render="openstack"), host("c2", render="openstack"), "",
            "openstack --os-compute-api-version 2.30 server migrate --live-migration --host c2 --wait shop-7",
            ("c2", "c1"),
        ),
        (
            host("n1", render="kubernetes"),
            replace(host("n2"), labels={"render": "kubernetes", "node.kubernetes.io/hostname": "n2.example"}),
            "shop/web-1",
            "virtctl migrate web-1 --namespace shop --addedNodeSelector=kubernetes.io/hostname=n2.example",
            ("n2.example", "n1"),
        ),
    ],
    ids=["xl", "virsh", "openstack", "KubeVirt"],
)  # fmt: skip
def test_each_tool_moves_by_its_own_names_with_the_way_back_and_clouds_keep_settings(
    source: Host, target: Host, guest: str, argv: str, back: tuple[str, str]
) -> None:
    weight = IsolationSettings(weight=512 if target.labels.get("render") == "openstack" else None)
    one = Instance("shop-7", 2, labels={"guest": guest} if guest else {}, settings=weight)
    (only,) = moved(one, source, target)
    assert (" ".join(only.argv), " ".join(only.undo)) == (argv, argv.replace(*back))
    assert source.kind != "xen" or only.note.startswith("on h1, its undo on h2")


def test_pins_come_off_before_the_move_and_settings_are_set_where_it_arrives() -> None:
    found = [
        one for one in moved(Instance("shop-7", 2, settings=PINNED), host("h1", "xen"), host("h2", "xen")) if one.argv
    ]
    assert [one.argv[:3] for one in found] == [
        ("xl", "vcpu-pin", "shop-7"), ("xl", "vcpu-pin", "shop-7"), ("xl", "migrate", "shop-7"),
        ("xl", "sched-credit2", "-d"),
    ]  # fmt: skip
    assert [one.argv[-1] for one in found[:2]] == ["all", "all"]
    assert [one.undo[-1] for one in found[:2]] == ["2", "3"]
    assert [one.note[:5] for one in found] == ["on h1", "on h1", "on h1", "on h2"]


def test_its_class_on_the_uplink_that_it_left_goes() -> None:
    shaped = IsolationSettings(network=NetworkSettings("shared", 100, 500))
    one = Instance("shop-7", 2, settings=shaped, labels={"mac": "52:54:00:12:34:56"})
    moves = moved(one, host("h1", "xen", uplink="eth0"), host("h2", "xen", uplink="eth1"))
    found = [command.argv for command in moves if command.argv]
    at = next(number for number, argv in enumerate(found) if argv[1] == "migrate")
    assert any({"add", "class", "eth1"} <= {*argv} for argv in found[:at])
    assert not any("eth1" in argv for argv in found[at:])
    assert any({"del", "eth0"} <= {*argv} for argv in found[at:])
    assert not any("eth0" in argv for argv in found[:at])


def test_the_class_of_a_container_goes_too() -> None:
    one = Instance("shop-7", 2, settings=IsolationSettings(network=NetworkSettings("shared", 100, 500)))
    found = moved(one, host("h1", "lxc", uplink="eth0"), host("h2", "lxc", uplink="eth1"))
    classes = {(c.argv[2], c.argv[4], c.note[:5]) for c in found if c.argv[:2] == ("tc", "class")}
    assert classes == {("add", "eth1", "on h2"), ("del", "eth0", "on h1")}


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (host("h1", "lxc"), host("h2", "lxc"), "a container has no live migration"),
        (host("h1", "xen"), host("h2", "kvm"), "no tool moves a running instance from a xen host to a kvm host"),
        (host("h1"), host("h2", render="openstack"), "of other tools"),
    ],
)
def test_what_no_tool_moves_is_said(source: Host, target: Host, words: str) -> None:
    first = moved(Instance("shop-7", 2), source, target)[0]
    assert first.argv == ()
    assert words in first.note


def test_another_size_is_set_where_the_tool_can() -> None:
    small, big = Instance("shop-7", 1), Instance("shop-7", 4)
    (xen,) = migrations.resize(host("h1", "xen"), big, small)
    assert (xen.argv[-2:], xen.undo[-2:]) == (("shop-7", "1"), ("shop-7", "4"))
    (kvm,) = migrations.resize(host("h1"), big, small)
    assert (kvm.argv, kvm.undo[-1]) == (
        ("virsh", "setvcpus", "--domain", "shop-7", "--config", "--count", "1"), "4",
    )  # fmt: skip
    assert "from its next start" in kvm.note
    (kvm,) = migrations.resize(host("h1"), small, big)
    assert kvm.argv[4:] == ("--live", "--config", "--count", "4")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (host("h1", "lxc"), "a cap of 100 %"),
        (host("h1", render="openstack"), "a flavor of 1 vCPU ("),
        (host("h1", render="kubernetes"), "1 CPU in its template"),
    ],
)
def test_a_size_that_no_tool_sets_is_said(where: Host, words: str) -> None:
    (said,) = migrations.resize(where, Instance("i", 4), Instance("i", 1))
    assert said.argv == ()
    assert words in said.note


@pytest.mark.parametrize(
    ("one", "source", "target"),
    [
        (Instance("-x", 1), host("h1", "xen"), host("h2", "xen")),
        (Instance("0", 1), host("h1", "xen"), host("h2", "xen")),
        (Instance("a", 1), host("h1"), host("h2:22")),
        (Instance("a", 1), host("h1"), host("h2", address="-oProxyCommand=x")),
        (Instance("-x", 1), host("c1", render="openstack"), host("c2", render="openstack")),
        (Instance("a", 1), host("c1", render="openstack"), host("-c2", render="openstack")),
    ],
)
def test_a_name_that_a_tool_would_read_otherwise_is_refused(one: Instance, source: Host, target: Host) -> None:
    with pytest.raises(InvalidInput):
        moved(one, source, target)


@pytest.mark.parametrize(
    ("target", "labels", "words"),
    [
        ("kubernetes", {"name": "shop/web-1"}, "shop/web-1: a pod does not move"),
        ("kubernetes", {"guest": "shop/web-1", "moving": "uid"}, "moves already"),
    ],
)
def test_what_a_cloud_cannot_move_is_said(target: str, labels: dict[str, str], words: str) -> None:
    (only,) = moved(Instance("shop-7", 2, labels=labels), host("n1", render=target), host("n2", render=target))
    assert only.argv == ()
    assert words in only.note


@pytest.mark.parametrize(
    ("target", "guest", "node"),
    [
        ("kubernetes", "shop/--help", "n2"), ("kubernetes", "shop", "n2"), ("kubernetes", "shop/web", "n2:x"),
    ],
)  # fmt: skip
def test_names_that_a_cloud_would_read_as_something_else_are_refused(target: str, guest: str, node: str) -> None:
    with pytest.raises(InvalidInput):
        moved(Instance("i", 2, labels={"guest": guest}), host("n1", render=target), host(node, render=target))
