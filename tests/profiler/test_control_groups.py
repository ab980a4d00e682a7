"""What the lab writes into control groups, version 1 and 2, in a directory that stands in for the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.control_groups import GroupMaker
from lab.errors import PreparationError
from profiler.observed import IsolationSettings

HELD_BACK = IsolationSettings(cap_percent=50, weight=512, disk_limit_mb_s=10)


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    return tmp_path


def test_version_2_gets_cpus_cap_weight_and_disk_limit(version_2: Path) -> None:
    procs = GroupMaker({"unified": str(version_2)}).make("g", (0, 1), HELD_BACK, "8:0")
    assert procs == [f"{version_2}/g/cgroup.procs"]
    written = {path.name: path.read_text() for path in (version_2 / "g").iterdir()}
    assert written == {
        "cpuset.cpus": "0-1",
        "cpu.max": "50000 100000",
        "cpu.weight": "200",
        "io.max": "8:0 rbps=10000000 wbps=10000000",
    }


def test_version_2_enables_only_missing_controllers(version_2: Path) -> None:
    GroupMaker({"unified": str(version_2)}).prepare()
    assert (version_2 / "cgroup.subtree_control").read_text() == "+io"  # a plain file keeps the last of the writes


def test_version_2_without_a_controller_says_which(version_2: Path) -> None:
    (version_2 / "cgroup.controllers").write_text("cpu memory\n")
    with pytest.raises(PreparationError, match="cpuset, io are not available"):
        GroupMaker({"unified": str(version_2)}).prepare()


def test_a_version_2_tree_that_cannot_be_used_is_said_in_one_sentence(version_2: Path) -> None:
    (version_2 / "cgroup.subtree_control").unlink()
    (version_2 / "cgroup.subtree_control").mkdir()
    with pytest.raises(PreparationError, match=r"cannot be set up here .*: run on the host itself"):
        GroupMaker({"unified": str(version_2)}).prepare()


def test_version_1_gets_the_same_settings_in_its_own_units(tmp_path: Path) -> None:
    mounts = {name: str(tmp_path / name) for name in ("cpu", "cpuacct", "cpuset", "blkio")}
    for root in mounts.values():
        Path(root).mkdir()
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0\n")
    procs = GroupMaker(mounts).make("g", (1,), HELD_BACK, "8:0")
    assert len(procs) == 4
    written = {path.name: path.read_text() for root in mounts.values() for path in Path(root, "g").iterdir()}
    assert written == {
        "cpuset.mems": "0",
        "cpuset.cpus": "1",
        "cpu.cfs_quota_us": "50000",
        "cpu.shares": "2048",
        "blkio.throttle.read_bps_device": "8:0 10000000",
        "blkio.throttle.write_bps_device": "8:0 10000000",
    }


def test_what_is_not_set_is_left_as_it_is(version_2: Path) -> None:
    GroupMaker({"unified": str(version_2)}).make("g", (0,), IsolationSettings(), "8:0")
    assert [path.name for path in (version_2 / "g").iterdir()] == ["cpuset.cpus"]


def test_missing_version_1_controllers_are_named(tmp_path: Path) -> None:
    with pytest.raises(PreparationError, match="cpuset, blkio are not mounted"):
        GroupMaker({"cpu": str(tmp_path), "cpuacct": str(tmp_path)})
