"""Settings and moves on Proxmox VE as `pvesh` calls with their undo, and what its configuration cannot say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import Command, Host, Instance, IsolationSettings, Pinning
from advisor.errors import InvalidInput
from advisor.render import commands, migrations
from profiler.observed import NetworkSettings

HOST = Host("pve1", "kvm", pcpus=8, memory_mb=65_536, labels={"render": "proxmox"})
CONFIG = ("pvesh", "set", "/nodes/pve1/qemu/100/config")
NOTHING = IsolationSettings()


def vm(guest: str = "qemu/100") -> Instance:
    return Instance("100", 2, host="pve1", labels={"guest": guest})


def test_pin_weight_and_cap_are_options_of_the_guest() -> None:
    desired = IsolationSettings(pinning=Pinning(((0,), (1,))), weight=512, cap_percent=50)
    pin, weight, cap = commands(HOST, vm(), NOTHING, desired)
    assert pin.argv == (*CONFIG, "--affinity", "0-1")
    assert pin.undo == (*CONFIG, "--delete", "affinity")
    assert "one list for all of its vCPUs" in pin.note
    assert (weight.argv, weight.undo) == ((*CONFIG, "--cpuunits", "200"), (*CONFIG, "--cpuunits", "100"))
    assert (cap.argv, cap.undo) == ((*CONFIG, "--cpulimit", "0.5"), (*CONFIG, "--cpulimit", "0"))


def test_what_loosens_comes_before_what_tightens() -> None:
    now = IsolationSettings(weight=256, cap_percent=25)
    found = commands(HOST, vm(), now, IsolationSettings(weight=128, cap_percent=150))
    assert [one.argv[3:] for one in found] == [("--cpulimit", "1.5"), ("--cpuunits", "50")]


def test_disk_network_and_a_container_s_pinning_are_said() -> None:
    limits = IsolationSettings(disk_limit_mb_s=40, network=NetworkSettings("dedicated", 80))
    disk, network = commands(HOST, vm(), NOTHING, limits)
    assert (disk.argv, network.argv) == ((), ())
    assert "mbps_rd and mbps_wr that are together 40" in disk.note
    assert "rates that are together 10 (MB/s)" in network.note
    (pinned,) = commands(HOST, vm("lxc/101"), NOTHING, IsolationSettings(pinning=Pinning(((0,), (0,)))))
    assert pinned.argv == ()
    assert "no affinity" in pinned.note


def test_a_guest_without_its_label_says_what_is_needed() -> None:
    (only,) = commands(HOST, Instance("100", 2, host="pve1"), NOTHING, IsolationSettings(cap_percent=50))
    assert only.argv == ()
    assert "needs label guest on instance 100" in only.note


NODES = tuple(replace(HOST, id=name) for name in ("lab:pve1", "lab:pve2"))
PINNED = IsolationSettings(pinning=Pinning(((2,), (3,))), weight=512)


def moved(one: Instance, source: Host, target: Host) -> tuple[Command, ...]:
    then = replace(one, host=target.id, settings=replace(one.settings, pinning=None))
    return migrations.move(replace(one, host=source.id), then, source, target, (), ())


@pytest.mark.parametrize(("guest", "how"), [("qemu/100", "--online"), ("lxc/101", "--restart")])
def test_a_move_names_the_other_node_and_its_undo_the_way_back(guest: str, how: str) -> None:
    (only,) = moved(vm(guest), *NODES)
    assert only.argv == ("pvesh", "create", f"/nodes/pve1/{guest}/migrate", "--target", "pve2", how, "1")
    assert only.undo == ("pvesh", "create", f"/nodes/pve2/{guest}/migrate", "--target", "pve1", how, "1")


def test_a_pinning_that_would_go_along_comes_off_before_the_move() -> None:
    unpins, moves = moved(replace(vm(), settings=PINNED), *NODES)
    assert unpins.argv == (*CONFIG, "--delete", "affinity")
    assert unpins.undo == (*CONFIG, "--affinity", "2-3")
    assert moves.argv[1] == "create"


@pytest.mark.parametrize(("isolated", "affinity"), [((), "17"), ((16, 17), "17")])
def test_a_pin_is_to_the_host_s_own_numbers_and_comes_off_as_a_whole(isolated: tuple[int, ...], affinity: str) -> None:
    host = replace(HOST, pcpus=4, cpu_ids=(0, 2, 16, 17), isolated_cpus=isolated)
    free, pinned = IsolationSettings(Pinning(((),))), IsolationSettings(Pinning(((17,),)))
    (command,) = commands(host, replace(vm(), vcpus=1), free, pinned)
    assert command.argv[-1] == affinity
    assert command.undo[-2:] == ("--delete", "affinity")


def test_a_move_without_the_label_says_what_is_needed() -> None:
    (only,) = moved(Instance("shop-7", 2), *NODES)
    assert only.argv == ()
    assert "needs label guest on instance shop-7" in only.note


@pytest.mark.parametrize(("guest", "node"), [("qemu/0", "n2"), ("qemu/1/../../2", "n2"), ("qemu/1", "n_2")])
def test_names_that_would_be_read_as_something_else_are_refused(guest: str, node: str) -> None:
    with pytest.raises(InvalidInput):
        moved(vm(guest), HOST, replace(HOST, id=node))


def test_a_size_is_cores() -> None:
    small, big = (replace(vm(), vcpus=vcpus) for vcpus in (1, 4))
    (only,) = migrations.resize(HOST, big, small)
    assert only.argv[2:] == ("/nodes/pve1/qemu/100/config", "--sockets", "1", "--cores", "1")
    assert only.undo[-1] == "4"
