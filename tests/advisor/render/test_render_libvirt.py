"""Settings as virsh commands: exact argv and undo, and virsh itself reads them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.names import instance_id
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

HOST = Host("h1", "kvm", pcpus=4, memory_mb=8192)
SHOP = Instance("shop-7", vcpus=2, labels={"disk": "vda"})
EVERYTHING = IsolationSettings(Pinning(((2,), (3,))), 50, 512, NetworkSettings("dedicated", 80), 50)


def pins(*cpus: tuple[int, ...]) -> dict[str, Pinning]:
    return {"pinning": Pinning(cpus)}


PIN, TUNE = "vcpupin --vcpu 1 --live --cpulist", "schedinfo --live --set"
QUOTA, DISK = f"{TUNE} vcpu_period={{}} --set vcpu_quota={{}}", "blkdeviotune --device vda --live --total-bytes-sec"


@pytest.mark.parametrize(
    ("cgroup", "now", "then", "argv", "undo"),
    [
        pytest.param(2, pins((0,), (3,)), pins((0,), (1, 2)), f"{PIN} 1-2", f"{PIN} 3", id="another pin"),
        pytest.param(2, pins((0,), ()), pins((0,), (2,)), f"{PIN} 2", f"{PIN} r", id="a first pin"),
        pytest.param(
            2, {}, {"cap_percent": 100}, QUOTA.format(100000, 50000), QUOTA.format(100000, -1),
            id="a cap of one CPU is half a CPU for each of two vCPUs",
        ),
        pytest.param(
            2, {"cap_percent": 100}, {"cap_percent": 1}, QUOTA.format(200000, 1000), QUOTA.format(100000, 50000),
            id="a period is longer where its quota would be under 1 ms",
        ),
        pytest.param(2, {}, {"weight": 512}, f"{TUNE} cpu_shares=200", f"{TUNE} cpu_shares=100", id="a weight"),
        pytest.param(
            1, {"weight": 64}, {"weight": 512}, f"{TUNE} cpu_shares=2048", f"{TUNE} cpu_shares=256",
            id="a weight by version 1 of control groups",
        ),
        pytest.param(2, {}, {"disk_limit_mb_s": 50}, f"{DISK} 50000000", f"{DISK} 0", id="a disk limit"),
    ],
)  # fmt: skip
def test_a_difference_becomes_a_virsh_command_with_its_undo(
    cgroup: int, now: dict[str, Any], then: dict[str, Any], argv: str, undo: str
) -> None:
    (command,) = commands(HOST, SHOP, IsolationSettings(**now), IsolationSettings(**then), cgroup=cgroup)
    of_domain = [f"virsh {text.replace(' ', ' --domain shop-7 ', 1)}" for text in (argv, undo)]
    assert [" ".join(command.argv), " ".join(command.undo)] == of_domain


def test_vcpus_are_named_by_their_numbers_where_an_unplug_left_gaps() -> None:
    guest = replace(SHOP, labels={"vcpu_ids": "0,5"})
    now, then = IsolationSettings(Pinning(((1,), (2,)))), IsolationSettings(Pinning(((1,), (3,))))
    (command,) = commands(HOST, guest, now, then)
    assert command.argv[command.argv.index("--vcpu") + 1] == command.undo[command.undo.index("--vcpu") + 1] == "5"


@pytest.mark.parametrize("label", ["0,2,5", "5", "--all", "", "9-1"])
def test_numbers_of_vcpus_that_do_not_fit_the_instance_are_counted_from_0(label: str) -> None:
    guest = replace(SHOP, labels={"vcpu_ids": label})
    now, then = IsolationSettings(Pinning(((1,), (2,)))), IsolationSettings(Pinning(((1,), (3,))))
    (command,) = commands(HOST, guest, now, then)
    assert command.argv[command.argv.index("--vcpu") + 1] == "1"


def test_pinning_a_guest_sends_its_other_threads_to_the_driver_s_cpus_and_unpinning_frees_them() -> None:
    host = replace(HOST, driver_cpus=(0,))
    guest = replace(SHOP, labels={"iothreads": "2"})
    pinned, free = IsolationSettings(pinning=Pinning(((2,), (3,)))), IsolationSettings(pinning=Pinning(((), ())))
    there, back = (
        [(" ".join(one.argv), " ".join(one.undo)) for one in commands(host, guest, now, then)[2:]]
        for now, then in ((IsolationSettings(), pinned), (pinned, free))
    )
    emulator = "virsh emulatorpin --domain shop-7 --live --cpulist"
    iothreads = [f"virsh iothreadpin --domain shop-7 --iothread {number} --live --cpulist" for number in (1, 2)]
    assert there == [(f"{emulator} 0", f"{emulator} r"), *((f"{start} 0", f"{start} 0-3") for start in iothreads)]
    assert back == [(undo, argv) for argv, undo in there]


def test_moving_a_pinned_guest_leaves_its_other_threads_alone() -> None:
    host, now = replace(HOST, driver_cpus=(0,)), IsolationSettings(pinning=Pinning(((2,), (3,))))
    made = commands(host, SHOP, now, IsolationSettings(pinning=Pinning(((1,), (3,)))))
    assert [one.argv[1] for one in made] == ["vcpupin"]


def test_where_the_uplink_cannot_be_shaped_the_guest_s_own_interface_is_limited() -> None:
    guest = replace(SHOP, labels={"mac": "52:54:00:12:34:56"})
    wanted = IsolationSettings(network=NetworkSettings("dedicated", 80))
    (command,) = commands(HOST, guest, IsolationSettings(), wanted)
    start = "virsh domiftune --domain shop-7 --interface 52:54:00:12:34:56 --live --outbound"
    # 80 Mbit/s are 10000 kB/s; at once 80 % of what it may send in a second
    assert (" ".join(command.argv), " ".join(command.undo)) == (f"{start} 10000,10000,8000", f"{start} 0")
    assert "dropped" in command.note
    shaped = commands(replace(HOST, nic_mbit=1000, labels={"uplink": "eth0"}), guest, IsolationSettings(), wanted)
    assert {one.argv[0] for one in shaped} == {"tc"}


def test_an_interface_of_its_own_cannot_keep_a_rate_free_and_says_so() -> None:
    guest = replace(SHOP, labels={"mac": "52:54:00:12:34:56"})
    wanted = IsolationSettings(network=NetworkSettings("shared", 10, 80))
    limited, said = commands(HOST, guest, IsolationSettings(), wanted)
    assert said.argv == ()
    assert "kept free" in said.note
    assert limited.argv[-1] == "10000,10000,8000"


@pytest.mark.parametrize(
    ("wanted", "last", "note"),
    [
        pytest.param({"weight": 65_535}, "cpu_shares=10000", "ends at 10000", id="a weight beyond cpu.weight"),
        pytest.param(
            {"cap_percent": 100}, "vcpu_quota=50000", "one busy vCPU alone gets 50 %", id="a cap on several vCPUs"
        ),
        pytest.param({"cap_percent": 0.1}, "vcpu_quota=1000", "0.1% of a CPU", id="a cap below the least quota"),
    ],
)
def test_what_is_lost_of_a_limit_is_said(wanted: dict[str, Any], last: str, note: str) -> None:
    (command,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(**wanted))
    assert command.argv[-1] == last
    assert note in command.note


def test_weights_that_round_to_the_same_cpu_weight_render_nothing() -> None:
    assert commands(HOST, SHOP, IsolationSettings(), IsolationSettings(weight=257)) == ()


def test_a_disk_limit_without_the_disk_s_name_is_a_note() -> None:
    (command,) = commands(HOST, Instance("shop-7"), IsolationSettings(), IsolationSettings(disk_limit_mb_s=50))
    assert command.argv == ()
    assert "label disk" in command.note


@pytest.mark.parametrize("disk", ["--help", "vda --live", "", "../sda", "a\nb"])
def test_a_disk_name_that_is_none_is_refused(disk: str) -> None:
    instance = Instance("shop-7", labels={"disk": disk})
    with pytest.raises(InvalidInput, match="label disk"):
        commands(HOST, instance, IsolationSettings(), IsolationSettings(disk_limit_mb_s=50))


@pytest.mark.parametrize("name", ["0", "17", "-x"])
def test_names_that_mean_another_domain_or_an_option_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="no command can be rendered"):
        commands(HOST, Instance(name), IsolationSettings(), IsolationSettings(weight=512))


@pytest.mark.lab
def test_virsh_reads_every_rendered_command_and_its_undo() -> None:
    if shutil.which("virsh") is None:
        pytest.skip("needs virsh (Debian: libvirt-clients)")
    # libvirt's built-in test driver has a domain `test` with two vCPUs; it takes no --live, which says that virsh
    # understood the arguments and handed them to the driver.
    labels = {"disk": "vda", "mac": "52:54:00:12:34:56", "iothreads": "1"}
    host = replace(HOST, driver_cpus=(0,))
    made = commands(host, Instance("test", vcpus=2, labels=labels), IsolationSettings(), EVERYTHING)
    verbs = {"vcpupin", "emulatorpin", "iothreadpin", "schedinfo", "blkdeviotune", "domiftune"}
    assert {command.argv[1] for command in made} == verbs
    for command in made:
        for argv in (command.argv, command.undo):
            connected = [argv[0], "-c", "test:///default", *argv[1:]]
            done = subprocess.run(connected, capture_output=True, text=True, check=False, timeout=120)
            misread = ("doesn't support option", "unexpected data", "requires", "Malformed", "Numeric value", "unknown")
            assert not any(word in done.stderr for word in misread), (argv, done.stderr)
            handed_on = ("unsupported flags", "throttle", "not found", "not a known interface")
            assert done.returncode == 0 or any(word in done.stderr for word in handed_on), done.stderr


@pytest.mark.parametrize(
    ("label", "domain"),
    [("Склад №3", "Склад №3"), ("another", None), ("Склад\u202e№3", None)],  # only the name that the id was made of
)
def test_a_domain_whose_name_is_no_id_is_called_by_its_name(label: str, domain: str | None) -> None:
    instance = Instance(instance_id("Склад №3"), vcpus=2, labels={"name": label})
    wanted = IsolationSettings(cap_percent=100)
    (command,) = commands(HOST, instance, IsolationSettings(), wanted)
    assert command.argv[command.argv.index("--domain") + 1] == (domain or instance.id)


@pytest.mark.parametrize(("version", "then", "now"), [("1", 3072, 2048), ("2", 300, 200)])
def test_cpu_shares_raise_a_weight_on_either_version_of_control_groups(version: str, then: int, now: int) -> None:
    host = replace(HOST, labels={"cgroup_version": version})
    (command,) = commands(host, Instance("web"), IsolationSettings(weight=512), IsolationSettings(weight=768))
    assert command.argv[-1] == f"cpu_shares={then}"
    assert command.undo[-1] == f"cpu_shares={now}"
    assert not command.note
