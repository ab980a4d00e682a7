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


def test_xen_migrates_by_name_and_back_from_the_other_host() -> None:
    (only,) = moved(Instance("shop-7", 2), host("h1", "xen"), host("h2", "xen", address="h2.lan"))
    assert only.argv == ("xl", "migrate", "shop-7", "h2.lan")
    assert only.undo == ("xl", "migrate", "shop-7", "h1")
    assert only.note.startswith("on h1, its undo on h2")


def test_libvirt_migrates_live_and_keeps_the_definition() -> None:
    (only,) = moved(Instance("shop-7", 2), host("h1"), host("h2"))
    assert only.argv == (
        "virsh", "migrate", "--live", "--persistent", "--undefinesource", "--domain", "shop-7",
        "--desturi", "qemu+ssh://h2/system",
    )  # fmt: skip
    assert only.undo[-1] == "qemu+ssh://h1/system"


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
    found = [c for c in moved(one, host("h1", "xen", uplink="eth0"), host("h2", "xen", uplink="eth1")) if c.argv]
    at = next(number for number, c in enumerate(found) if c.argv[1] == "migrate")
    assert any("add" in c.argv and "class" in c.argv and "eth1" in c.argv for c in found[:at])
    assert not any("eth1" in c.argv for c in found[at:])
    assert any("del" in c.argv and "eth0" in c.argv for c in found[at:])
    assert not any("eth0" in c.argv for c in found[:at])


def test_the_class_of_a_container_goes_too() -> None:
    one = Instance("shop-7", 2, settings=IsolationSettings(network=NetworkSettings("shared", 100, 500)))
    found = moved(one, host("h1", "lxc", uplink="eth0"), host("h2", "lxc", uplink="eth1"))
    classes = {(c.argv[2], c.argv[4], c.note[:5]) for c in found if c.argv[:2] == ("tc", "class")}
    assert classes == {("add", "eth1", "on h2"), ("del", "eth0", "on h1")}


def test_clouds_are_asked_by_their_own_ids_and_keep_settings() -> None:
    one = Instance("4f6c", 2, settings=IsolationSettings(weight=512))
    (nova,) = moved(one, host("c1", render="openstack"), host("c2", render="openstack"))
    assert nova.argv == (
        "openstack", "--os-compute-api-version", "2.30", "server", "migrate", "--live-migration",
        "--host", "c2", "--wait", "4f6c",
    )  # fmt: skip
    assert nova.undo[7] == "c1"
    (stack,) = moved(one, host("c1", render="cloudstack"), host("c2", render="cloudstack"))
    assert stack.argv == ("cmk", "migrate", "virtualmachine", "virtualmachineid=4f6c", "hostid=c2")
    assert stack.undo[-1] == "hostid=c1"


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
        (host("h1", render="cloudstack"), "a service offering of 1 vCPU ("),
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


def test_proxmox_moves_a_vm_live_from_any_node_and_a_container_with_a_restart() -> None:
    source, target = host("lab:pve1", render="proxmox"), host("lab:pve2", render="proxmox")
    (vm,) = moved(Instance("lab:100", 2, labels={"guest": "qemu/100"}), source, target)
    assert vm.argv == (
        "pvesh", "create", "/nodes/pve1/qemu/100/migrate", "--target", "pve2", "--online", "1",
    )  # fmt: skip
    assert vm.undo == (
        "pvesh", "create", "/nodes/pve2/qemu/100/migrate", "--target", "pve1", "--online", "1",
    )  # fmt: skip
    (container,) = moved(Instance("lab:101", 2, labels={"guest": "lxc/101"}), source, target)
    assert container.argv[2:] == ("/nodes/pve1/lxc/101/migrate", "--target", "pve2", "--restart", "1")


def test_a_pinning_that_would_go_along_on_proxmox_comes_off_before_the_move() -> None:
    one = Instance("100", 2, labels={"guest": "qemu/100"}, settings=PINNED)
    unpins, moves = moved(one, host("pve1", render="proxmox"), host("pve2", render="proxmox"))
    assert unpins.argv == ("pvesh", "set", "/nodes/pve1/qemu/100/config", "--delete", "affinity")
    assert unpins.undo == ("pvesh", "set", "/nodes/pve1/qemu/100/config", "--affinity", "2-3")
    assert moves.argv[1] == "create"


def test_kubevirt_moves_a_guest_to_a_named_node() -> None:
    source = host("n1", render="kubernetes")
    target = replace(source, id="n2", labels={**source.labels, "node.kubernetes.io/hostname": "n2.example"})
    (only,) = moved(Instance("uid", 2, labels={"guest": "shop/web-1"}), source, target)
    assert only.argv == (
        "virtctl", "migrate", "web-1", "--namespace", "shop", "--addedNodeSelector=kubernetes.io/hostname=n2.example",
    )  # fmt: skip
    assert only.undo[-1] == "--addedNodeSelector=kubernetes.io/hostname=n1"


@pytest.mark.parametrize(
    ("target", "labels", "words"),
    [
        ("kubernetes", {"name": "shop/web-1"}, "shop/web-1: a pod does not move"),
        ("kubernetes", {"guest": "shop/web-1", "moving": "uid"}, "moves already"),
        ("proxmox", {}, "needs label guest on instance shop-7"),
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
        ("proxmox", "qemu/0", "n2"), ("proxmox", "qemu/1/../../2", "n2"), ("proxmox", "qemu/1", "n_2"),
    ],
)  # fmt: skip
def test_names_that_a_cloud_would_read_as_something_else_are_refused(target: str, guest: str, node: str) -> None:
    with pytest.raises(InvalidInput):
        moved(Instance("i", 2, labels={"guest": guest}), host("n1", render=target), host(node, render=target))


def test_a_size_on_proxmox_is_cores() -> None:
    small, big = (Instance("i", vcpus, labels={"guest": "qemu/100"}) for vcpus in (1, 4))
    (only,) = migrations.resize(host("pve1", render="proxmox"), big, small)
    assert only.argv[2:] == ("/nodes/pve1/qemu/100/config", "--sockets", "1", "--cores", "1")
    assert only.undo[-1] == "4"
