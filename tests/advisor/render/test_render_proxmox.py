"""Settings on Proxmox VE as `pvesh` calls with their undo, and what its configuration cannot say."""

from __future__ import annotations

from advisor.domain import Host, Instance, IsolationSettings, Pinning
from advisor.render import commands
from profiler.observed import NetworkSettings

HOST = Host("pve1", "kvm", pcpus=8, memory_mb=65_536, labels={"render": "proxmox"})
CONFIG = ("pvesh", "set", "/nodes/pve1/qemu/100/config")
NOTHING = IsolationSettings()


def vm(guest: str = "qemu/100") -> Instance:
    return Instance("100", 2, host="pve1", labels={"guest": guest})


def test_pin_weight_and_cap_are_options_of_the_guest() -> None:
    wanted = IsolationSettings(pinning=Pinning(((0,), (1,))), weight=512, cap_percent=50)
    pin, weight, cap = commands(HOST, vm(), NOTHING, wanted)
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
