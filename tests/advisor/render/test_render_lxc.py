"""Settings as cgset commands for containers: exact argv and undo on both versions of control groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.errors import InvalidInput
from advisor.render import check_labels, commands
from profiler.observed import Host, Instance, IsolationSettings, Pinning

HOST = Host("h1", "lxc", pcpus=4, memory_mb=8192)
WEB = Instance("web", vcpus=2, labels={"disk": "8:16"})
END = ("--", "lxc.payload.web")


def pins(text: str) -> IsolationSettings:
    return IsolationSettings(pinning=Pinning.parse(text))


@pytest.mark.parametrize(
    ("cgroup", "now", "then", "values", "undo_values"),
    [
        (2, {}, {"pinning": "0:2|1:3"}, ["cpuset.cpus=2-3"], ["cpuset.cpus=0-3"]),
        (1, {"pinning": "0:2|1:2"}, {"pinning": "0:0-1|1:0-1"}, ["cpuset.cpus=0-1"], ["cpuset.cpus=2"]),
        (2, {}, {"cap_percent": 50}, ["cpu.max=50000 100000"], ["cpu.max=max 100000"]),
        (2, {"cap_percent": 0.5}, {"cap_percent": 250}, ["cpu.max=250000 100000"], ["cpu.max=1000 200000"]),
        (
            1, {}, {"cap_percent": 50},
            ["cpu.cfs_period_us=100000", "cpu.cfs_quota_us=50000"],
            ["cpu.cfs_quota_us=-1", "cpu.cfs_period_us=100000"],
        ),
        (2, {}, {"weight": 512}, ["cpu.weight=200"], ["cpu.weight=100"]),
        (1, {}, {"weight": 1}, ["cpu.shares=4"], ["cpu.shares=1024"]),
        (2, {}, {"weight": 1}, ["cpu.weight=1"], ["cpu.weight=100"]),
        (
            2, {"disk_limit_mb_s": 20}, {"disk_limit_mb_s": 50},
            ["io.max=8:16 rbps=50000000 wbps=50000000"], ["io.max=8:16 rbps=20000000 wbps=20000000"],
        ),
        (2, {}, {"disk_limit_mb_s": 0.5}, ["io.max=8:16 rbps=500000 wbps=500000"], ["io.max=8:16 rbps=max wbps=max"]),
        (
            1, {}, {"disk_limit_mb_s": 50},
            ["blkio.throttle.read_bps_device=8:16 50000000", "blkio.throttle.write_bps_device=8:16 50000000"],
            ["blkio.throttle.read_bps_device=8:16 0", "blkio.throttle.write_bps_device=8:16 0"],
        ),
    ],
)  # fmt: skip
def test_a_difference_becomes_a_cgset_command_with_its_undo(
    cgroup: int, now: dict[str, Any], then: dict[str, Any], values: list[str], undo_values: list[str]
) -> None:
    before, after = (pins(some["pinning"]) if "pinning" in some else IsolationSettings(**some) for some in (now, then))
    (command,) = commands(HOST, WEB, before, after, cgroup=cgroup)
    assert command.argv == ("cgset", *(part for value in values for part in ("-r", value)), *END)
    assert command.undo == ("cgset", *(part for value in undo_values for part in ("-r", value)), *END)


def test_a_latency_instance_gets_a_short_period_so_that_its_cap_stalls_it_briefly() -> None:
    for service, stall_us in (("throughput", 50_000), ("latency", 5_000)):
        instance = replace(WEB, service=service)  # type: ignore[arg-type]
        (command,) = commands(HOST, instance, IsolationSettings(), IsolationSettings(cap_percent=50))
        quota, period = command.argv[2].removeprefix("cpu.max=").split()
        assert (int(period) - int(quota), int(quota) / int(period)) == (stall_us, 0.5)


@pytest.mark.parametrize(("kernel", "there"), [("6.1.0-1-amd64", True), ("5.14", True), ("5.9.1", False), ("", False)])
def test_a_latency_instance_may_save_quota_where_the_kernel_can(kernel: str, there: bool) -> None:
    host, web = replace(HOST, labels={"kernel": kernel}), replace(WEB, service="latency")
    (command,) = commands(host, web, IsolationSettings(), IsolationSettings(cap_percent=50))
    assert any("cpu.max.burst=5000" in part for part in command.argv) == there
    assert any("cpu.max.burst=0" in part for part in command.undo) == there


@pytest.mark.parametrize(
    ("now", "then", "order"),
    [
        (50, 20, ["cpu.cfs_burst_us=2000", "cpu.cfs_period_us=10000", "cpu.cfs_quota_us=2000"]),
        (20, 50, ["cpu.cfs_quota_us=5000", "cpu.cfs_period_us=10000", "cpu.cfs_burst_us=5000"]),
    ],
)
def test_files_are_written_so_that_no_mixture_is_refused_or_tighter_than_both(
    now: float, then: float, order: list[str]
) -> None:
    host, web = replace(HOST, labels={"kernel": "6.1"}), replace(WEB, service="latency")
    before, after = IsolationSettings(cap_percent=now), IsolationSettings(cap_percent=then)
    (command,) = commands(host, web, before, after, cgroup=1)
    assert list(command.argv[2:-2:2]) == order


def test_different_pins_per_vcpu_become_one_set_and_the_note_says_so() -> None:
    (command,) = commands(HOST, WEB, IsolationSettings(), pins("0:1|1:3"))
    assert "cpuset.cpus=1,3" in command.argv
    assert "no vCPUs" in command.note


def test_a_disk_limit_says_that_reading_and_writing_are_limited_apart() -> None:
    (command,) = commands(HOST, WEB, IsolationSettings(), IsolationSettings(disk_limit_mb_s=50))
    assert "twice" in command.note


@pytest.mark.parametrize(
    ("labels", "then", "now", "said"),
    [
        ({"cgroup_version": "1"}, "cpu.shares=2048", "cpu.shares=1024", ""),
        ({"cgroup_version": "2"}, "cpu.weight=200", "cpu.weight=100", ""),
        ({}, "cpu.weight=200", "cpu.weight=100", "on version 1 it is 2048"),
    ],
)
def test_a_weight_is_on_the_scale_of_the_control_groups_that_the_host_has(
    labels: dict[str, str], then: str, now: str, said: str
) -> None:
    host = replace(HOST, labels=labels)
    (command,) = commands(host, WEB, IsolationSettings(weight=256), IsolationSettings(weight=512))
    assert then in command.argv
    assert now in command.undo
    assert said in command.note
    assert bool(said) == bool(command.note)


def test_a_version_of_control_groups_that_does_not_exist_is_refused_with_its_label() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_labels(replace(HOST, labels={"cgroup_version": "v2"}))
    assert refused.value.field == "labels.cgroup_version"


def test_the_group_may_be_named_by_a_label() -> None:
    instance = Instance("web", labels={"cgroup": r"machine.slice/machine-lxc\x2dweb.scope"})
    (command,) = commands(HOST, instance, IsolationSettings(), IsolationSettings(weight=512))
    assert command.argv[-2:] == ("--", r"machine.slice/machine-lxc\x2dweb.scope")


@pytest.mark.parametrize(
    "group", ["..", "a/../b", ".", "/etc", "a//b", "-r", "a b", "a\n", "a\0b", "a;reboot", "$(id)"]
)
def test_a_group_that_is_no_plain_path_is_refused(group: str) -> None:
    instance = Instance("web", labels={"cgroup": group})
    with pytest.raises(InvalidInput, match=r"control group|no command"):
        commands(HOST, instance, IsolationSettings(), IsolationSettings(weight=512))


@pytest.mark.parametrize("name", ["...", "-x", "0", "a:b"])
def test_odd_but_allowed_ids_stay_inside_the_hierarchy_behind_their_prefix(name: str) -> None:
    (command,) = commands(HOST, Instance(name), IsolationSettings(), IsolationSettings(weight=512))
    assert command.argv[-2:] == ("--", f"lxc.payload.{name}")


def test_an_unknown_version_of_control_groups_is_refused() -> None:
    with pytest.raises(InvalidInput, match="version 1 or 2"):
        commands(HOST, WEB, IsolationSettings(), IsolationSettings(weight=512), cgroup=3)
