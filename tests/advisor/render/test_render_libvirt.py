"""Settings as virsh commands: exact argv and undo, and virsh itself reads them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

HOST = Host("h1", "kvm", pcpus=4, memory_mb=8192)
SHOP = Instance("shop-7", vcpus=2, labels={"disk": "vda"})
EVERYTHING = IsolationSettings(Pinning(((2,), (3,))), 50, 512, NetworkSettings(), 50)


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
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=20000 --set vcpu_quota=10000",
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=100000 --set vcpu_quota=-1",
        ),
        (
            2,
            IsolationSettings(cap_percent=100),
            IsolationSettings(cap_percent=5),  # 20 ms x 0.025 is under 1 ms of quota
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=100000 --set vcpu_quota=2500",
            "virsh schedinfo --domain shop-7 --live --set vcpu_period=20000 --set vcpu_quota=10000",
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
    (command,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(cap_percent=0.5))
    assert command.argv[-1] == "vcpu_quota=1000"
    assert "1% of a CPU" in command.note


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
    for command in commands(HOST, Instance("test", vcpus=2, labels={"disk": "vda"}), IsolationSettings(), EVERYTHING):
        for argv in (command.argv, command.undo):
            connected = [argv[0], "-c", "test:///default", *argv[1:]]
            done = subprocess.run(connected, capture_output=True, text=True, check=False, timeout=20)
            misread = ("doesn't support option", "unexpected data", "requires", "Malformed", "Numeric value", "unknown")
            assert not any(word in done.stderr for word in misread), (argv, done.stderr)
            assert done.returncode == 0 or "unsupported flags" in done.stderr or "throttle" in done.stderr, done.stderr
