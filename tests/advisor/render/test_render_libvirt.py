"""Settings as virsh commands: exact argv and undo, and virsh itself reads them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

HOST = Host("h1", "kvm", pcpus=4, memory_mb=8192)
SHOP = Instance("shop-7", vcpus=2, labels={"disk": "vda"})
EVERYTHING = IsolationSettings(Pinning(((2,), (3,))), 50, 512, NetworkSettings("dedicated", 80), 50)


@pytest.mark.parametrize(
    ("cgroup", "now", "then", "argv", "undo"),
    [
        (
            2,
            IsolationSettings(pinning=Pinning(((0,), (3,)))),
            IsolationSettings(pinning=Pinning(((0,), (1, 2)))),
            "virsh vcpupin --domain shop-7 --vcpu 1 --live --cpulist 1-2",
            "virsh vcpupin --domain shop-7 --vcpu 1 --live --cpulist 3",
        ),
        (
            2,
            IsolationSettings(pinning=Pinning(((0,), ()))),
            IsolationSettings(pinning=Pinning(((0,), (2,)))),
            "virsh vcpupin --domain shop-7 --vcpu 1 --live --cpulist 2",
            "virsh vcpupin --domain shop-7 --vcpu 1 --live --cpulist r",
        ),
        (
            2,
            IsolationSettings(),
            IsolationSettings(cap_percent=100),  # of one CPU, so half a CPU for each of the two vCPUs
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=100000 --set vcpu_quota=50000",
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=100000 --set vcpu_quota=-1",
        ),
        (
            2,
            IsolationSettings(cap_percent=100),
            IsolationSettings(cap_percent=1),  # 100 ms x 0.005 is under 1 ms of quota
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=200000 --set vcpu_quota=1000",
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=100000 --set vcpu_quota=50000",
        ),
        (
            2,
            IsolationSettings(),
            IsolationSettings(weight=512),
            "virsh schedinfo --domain shop-7 --live --set cpu_shares=200",
            "virsh schedinfo --domain shop-7 --live --set cpu_shares=100",
        ),
        (
            1,
            IsolationSettings(weight=64),
            IsolationSettings(weight=512),
            "virsh schedinfo --domain shop-7 --live --set cpu_shares=2048",
            "virsh schedinfo --domain shop-7 --live --set cpu_shares=256",
        ),
        (
            2,
            IsolationSettings(),
            IsolationSettings(disk_limit_mb_s=50),
            "virsh blkdeviotune --domain shop-7 --device vda --live --total-bytes-sec 50000000",
            "virsh blkdeviotune --domain shop-7 --device vda --live --total-bytes-sec 0",
        ),
    ],
)
def test_a_difference_becomes_a_virsh_command_with_its_undo(
    cgroup: int, now: IsolationSettings, then: IsolationSettings, argv: str, undo: str
) -> None:
    (command,) = commands(HOST, SHOP, now, then, cgroup=cgroup)
    assert (" ".join(command.argv), " ".join(command.undo)) == (argv, undo)


def test_pinning_a_guest_sends_its_other_threads_to_the_driver_s_cpus_and_unpinning_frees_them() -> None:
    host = replace(HOST, driver_cpus=(0,))
    guest = replace(SHOP, labels={"iothreads": "2"})
    pinned, free = IsolationSettings(pinning=Pinning(((2,), (3,)))), IsolationSettings(pinning=Pinning(((), ())))
    found = [(" ".join(one.argv), " ".join(one.undo)) for one in commands(host, guest, IsolationSettings(), pinned)[2:]]
    assert found == [
        (
            "virsh emulatorpin --domain shop-7 --live --cpulist 0",
            "virsh emulatorpin --domain shop-7 --live --cpulist r",
        ),
        *(
            (
                f"virsh iothreadpin --domain shop-7 --iothread {number} --live --cpulist 0",
                f"virsh iothreadpin --domain shop-7 --iothread {number} --live --cpulist 0-3",
            )
            for number in (1, 2)
        ),
    ]
    assert [(undo, argv) for argv, undo in found] == [
        (" ".join(one.argv), " ".join(one.undo)) for one in commands(host, guest, pinned, free)[2:]
    ]


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
    said, limited = commands(
        HOST, guest, IsolationSettings(), IsolationSettings(network=NetworkSettings("shared", 10, 80))
    )[::-1]
    assert said.argv == ()
    assert "kept free" in said.note
    assert limited.argv[-1] == "10000,10000,8000"


def test_a_weight_beyond_cpu_weight_is_clamped_and_says_so() -> None:
    (command,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(weight=65_535))
    assert command.argv[-1] == "cpu_shares=10000"
    assert "ends at 10000" in command.note


def test_weights_that_round_to_the_same_cpu_weight_render_nothing() -> None:
    assert commands(HOST, SHOP, IsolationSettings(), IsolationSettings(weight=257)) == ()


def test_a_cap_on_several_vcpus_says_that_each_gets_its_part() -> None:
    (command,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(cap_percent=100))
    assert "one busy vCPU alone gets 50 %" in command.note


def test_a_cap_below_the_least_quota_says_what_it_becomes() -> None:
    (command,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(cap_percent=0.1))
    assert command.argv[-2:] == ("--set", "vcpu_quota=1000")
    assert "vcpu_period=1000000" in command.argv
    assert "0.1% of a CPU" in command.note


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
    assert {"vcpupin", "emulatorpin", "iothreadpin", "schedinfo", "blkdeviotune", "domiftune"} == {
        command.argv[1] for command in made
    }
    for command in made:
        for argv in (command.argv, command.undo):
            connected = [argv[0], "-c", "test:///default", *argv[1:]]
            done = subprocess.run(connected, capture_output=True, text=True, check=False, timeout=20)
            misread = ("doesn't support option", "unexpected data", "requires", "Malformed", "Numeric value", "unknown")
            assert not any(word in done.stderr for word in misread), (argv, done.stderr)
            handed_on = ("unsupported flags", "throttle", "not found", "not a known interface")
            assert done.returncode == 0 or any(word in done.stderr for word in handed_on), done.stderr
