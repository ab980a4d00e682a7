"""The agent's systemd unit and its drop-in for Xen: accepted, little exposed, and as their comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.units import PACKAGING, allowed_calls, judged, read, verified

UNIT = PACKAGING / "cotenant-profiler.service"
XEN = PACKAGING / "cotenant-profiler.service.d" / "xen.conf"
RUN_QUEUE = PACKAGING / "cotenant-profiler.service.d" / "run-queue.conf"
HARDWARE = PACKAGING / "cotenant-profiler.service.d" / "hardware-counters.conf"
ON_A_HOST = {
    "RootDirectory=/RootImage=",
    "RestrictAddressFamilies=~AF_UNIX",
    "RestrictAddressFamilies=~AF_(INET|INET6)",
    "RestrictAddressFamilies=~AF_NETLINK",
    "PrivateNetwork=",  # everything that it measures is the host's: network, processes, users
    "PrivateUsers=",
    "ProtectProc=",
    "ProcSubset=",
    "DeviceAllow=",
    "IPAddressDeny=",  # but for this machine's own addresses
}


@pytest.mark.parametrize("drop_ins", [[], [XEN], [RUN_QUEUE, HARDWARE]], ids=["lxc", "xen", "options"])
def test_systemd_accepts_it(tmp_path: Path, drop_ins: list[Path]) -> None:
    assert verified(tmp_path, UNIT, *drop_ins) == ""


def test_it_is_little_exposed_and_what_is_open_is_known() -> None:
    level, faults = judged(UNIT)
    capabilities = {"CapabilityBoundingSet=~CAP_SYS_PTRACE", "CapabilityBoundingSet=~CAP_(DAC_*|FOWNER|IPC_OWNER)"}
    assert level < 2.0
    assert faults - ON_A_HOST == capabilities | {"AmbientCapabilities="}


def test_run_queues_add_what_bpf_needs_and_no_more() -> None:
    with_it, without = read(UNIT, RUN_QUEUE), read(UNIT)
    assert with_it["AmbientCapabilities"] == (*without["AmbientCapabilities"], "CAP_BPF CAP_PERFMON")
    assert allowed_calls(with_it) - allowed_calls(without) == {"bpf"}
    more = judged(UNIT, RUN_QUEUE)[1] - judged(UNIT)[1]
    assert more == {"CapabilityBoundingSet=~CAP_BPF", "SystemCallFilter=~@privileged"}


def test_hardware_counters_add_what_perf_events_need_and_no_more() -> None:
    with_it, without = read(UNIT, HARDWARE), read(UNIT)
    assert with_it["AmbientCapabilities"] == (*without["AmbientCapabilities"], "CAP_PERFMON")
    assert allowed_calls(with_it) - allowed_calls(without) == {"perf_event_open"}


def test_on_xen_it_is_root_without_any_capability() -> None:
    level, faults = judged(UNIT, XEN)
    assert level < 2.0
    assert faults - ON_A_HOST == {"User=/DynamicUser=", "PrivateDevices="}
    unit = read(UNIT, XEN)
    assert unit["User"] == ("root",)
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == ()


@pytest.mark.parametrize("drop_ins", [[], [XEN]], ids=["lxc", "xen"])
def test_it_reaches_this_machine_only_and_writes_to_no_process(drop_ins: list[Path]) -> None:
    unit = read(UNIT, *drop_ins)
    assert (unit["IPAddressDeny"], unit["IPAddressAllow"]) == (("any",), ("localhost",))
    assert unit["ReadOnlyPaths"] == ("/proc /sys",)


def test_the_drop_in_and_the_guide_say_what_xens_device_gives() -> None:
    guide = (PACKAGING.parent / "docs" / "profiler.md").read_text(encoding="utf-8")
    for text in (XEN.read_text(encoding="utf-8"), guide):
        assert re.search(r"/dev/xen/privcmd`? is full control of the hypervisor", text)
