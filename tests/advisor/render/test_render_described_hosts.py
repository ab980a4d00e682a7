"""Commands are those that a host can carry out, as its agent describes it; what was not described is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import Host, IsolationSettings
from advisor.render import commands, unmet
from advisor.tuning.host import levers_of, oracle_of
from profiler.backends.host_description import describe_host
from profiler.backends.sources import RecordedSource
from profiler.observed import Instance
from tests.advisor.tuning.tuning_hosts import snapshot, vm
from tests.profiler.fake_host import FakeHost
from tests.profiler.recorded import recorded_readings

SHOP = Instance("shop-7", vcpus=1, labels={"disk": "8:0"})
WANTED = IsolationSettings(weight=512, cap_percent=50.0, disk_limit_mb_s=10.0)
VERSION_1, VERSION_2 = "cgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0\n", "cgroup2 /cg cgroup2 rw 0 0\n"


def described(backend: str, mounts: str = "", kernel: str = "") -> Host:
    """A host as an agent describes it that sees these mounts and this kernel."""
    seen = FakeHost()
    seen.files |= {
        path: text for path, text in {"/proc/mounts": mounts, "/proc/sys/kernel/osrelease": kernel}.items() if text
    }
    found = describe_host(backend, seen)
    return Host("h", found.kind, 4, 8192, labels=dict(found.labels))


def recorded(name: str) -> RecordedSource:
    return RecordedSource(recorded_readings(name))


def written(host: Host, instance: Instance = SHOP, wanted: IsolationSettings = WANTED) -> list[str]:
    """The settings that commands write, one by one."""
    found = commands(host, instance, IsolationSettings(), wanted)
    return [part for command in found for part in command.argv if "=" in part]


def test_a_recorded_host_of_version_1_gets_files_of_version_1() -> None:
    found = describe_host("lxc", recorded("containers-v1.json"))
    assert found.labels["cgroup_version"] == "1"
    host = Host("h", "lxc", 4, 8192, labels=dict(found.labels))
    assert {part.partition("=")[0] for part in written(host)} == {
        "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "blkio.throttle.read_bps_device",
        "blkio.throttle.write_bps_device",
    }  # fmt: skip
    assert not any("version" in command.note for command in commands(host, SHOP, IsolationSettings(), WANTED))


def test_weights_of_libvirt_are_in_the_numbers_of_its_control_groups() -> None:
    labels = describe_host("libvirt", recorded("libvirt-tcg.json")).labels
    weight = IsolationSettings(weight=512)
    shares = {"1": 2048, "2": 200}[labels["cgroup_version"]]
    guest = Instance("shop-7")
    assert written(Host("h", "kvm", 4, 8192, labels=dict(labels)), guest, weight) == [f"cpu_shares={shares}"]
    assert written(described("libvirt", VERSION_1), guest, weight) == ["cpu_shares=2048"]
    assert written(described("libvirt", VERSION_2), guest, weight) == ["cpu_shares=200"]


@pytest.mark.parametrize(
    ("mounts", "kernel", "saved"),
    [
        (VERSION_1, "5.10.0-30-amd64", None),
        (VERSION_1, "6.1.0-18-amd64", "cpu.cfs_burst_us"),
        (VERSION_2, "5.10.0-30-amd64", None),
        (VERSION_2, "6.1.0-18-amd64", "cpu.max.burst"),
        (VERSION_2, "", None),
    ],
)
def test_what_a_kernel_does_not_know_is_not_written(mounts: str, kernel: str, saved: str | None) -> None:
    short = replace(SHOP, service="latency")
    files = [part.partition("=")[0] for part in written(described("lxc", mounts, kernel), short)]
    assert [name for name in files if "burst" in name] == ([saved] if saved else [])
    assert any(name in ("cpu.max", "cpu.cfs_quota_us") for name in files)


def test_where_the_version_is_not_known_each_command_says_what_it_is_on_the_other() -> None:
    host = Host("h", "lxc", 4, 8192)
    notes = {
        command.argv[2].partition("=")[0]: command.note for command in commands(host, SHOP, IsolationSettings(), WANTED)
    }
    assert set(notes) == {"cpu.weight", "cpu.max", "io.max"}
    for name, other in (
        ("cpu.weight", "2048"),
        ("cpu.max", "cpu.cfs_quota_us="),
        ("io.max", "blkio.throttle.read_bps"),
    ):
        assert "has not reported" in notes[name]
        assert other in notes[name]


@pytest.mark.parametrize(("scheduler", "can"), [("credit", True), ("credit2", True), ("null", False), ("rtds", False)])
def test_a_tuning_of_xen_changes_weights_only_where_its_scheduler_has_them(scheduler: str, can: bool) -> None:
    host = Host("h", "xen", 4, 8192, labels={"scheduler": scheduler})
    there = snapshot(host, vm("a", 0.9), vm("b", 0.9))
    levers = levers_of(there, 0, oracle_of(there, 0, "worst"))
    assert levers.weights.tolist() == [can, can]
    assert levers.caps.tolist() == [can, can]
    assert levers.pins.all()
    assert bool(unmet(host, [SHOP], {SHOP.id: IsolationSettings(weight=512)})) is not can
