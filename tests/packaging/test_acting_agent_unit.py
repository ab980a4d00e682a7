"""The systemd unit of the agent that changes settings: accepted, without capabilities, and it writes little."""

from __future__ import annotations

from pathlib import Path

from tests.packaging.units import PACKAGING, judged, read, verified

UNIT = PACKAGING / "cotenant-profiler-act.service"


def test_systemd_accepts_it(tmp_path: Path) -> None:
    assert verified(tmp_path, UNIT) == ""


def test_it_is_root_without_any_capability_and_writes_control_groups_and_its_state_alone() -> None:
    unit = read(UNIT)
    assert unit["User"] == ("root",)
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == ()
    assert (unit["ReadOnlyPaths"], unit["ReadWritePaths"]) == (("/proc /sys",), ("/sys/fs/cgroup",))
    assert unit["ProtectSystem"] == ("strict",)
    assert (unit["IPAddressDeny"], unit["IPAddressAllow"]) == (("any",), ("localhost",))
    level, _ = judged(UNIT)
    assert level < 3.0
