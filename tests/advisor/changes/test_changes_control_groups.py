"""Settings are read from and written to the files of a group, and to no other file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.changes.control_groups import ControlGroups
from advisor.changes.controller import Gone
from advisor.domain import Command
from advisor.errors import InvalidInput
from profiler.observed import IsolationSettings
from tests.advisor.changes.hierarchy import HOST, HOST_V2, PINNED, change_of, hierarchy, rendered


def text(folder: Path, *parts: str) -> str:
    return folder.joinpath(*parts).read_text().strip()


def test_a_weight_of_version_1_is_shares(tmp_path: Path) -> None:
    groups = hierarchy(tmp_path, 1)
    (command,) = rendered(IsolationSettings(weight=2048))
    change = change_of(groups, command)
    assert (change.kind, change.before, change.after) == ("weight", {"cpu.shares": "1024"}, {"cpu.shares": "8192"})
    assert groups.read(change) == {"cpu.shares": "1024"}
    groups.write(change, change.after)
    assert text(tmp_path, "cpu", "lxc.payload.vm1", "cpu.shares") == "8192"


def test_a_cap_is_quota_and_period_of_version_1_and_one_file_of_version_2(tmp_path: Path) -> None:
    first, second = hierarchy(tmp_path / "one", 1), hierarchy(tmp_path / "two", 2)
    (command,) = rendered(IsolationSettings(cap_percent=50))
    change = change_of(first, command)
    assert change.kind == "cap"
    assert change.after == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}
    assert change.before == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"}
    (command,) = rendered(IsolationSettings(cap_percent=50), host=HOST_V2)
    change = change_of(second, command, host=HOST_V2)
    assert (change.before, change.after) == ({"cpu.max": "max 100000"}, {"cpu.max": "50000 100000"})
    second.write(change, change.after)
    assert second.read(change) == {"cpu.max": "50000 100000"}


def test_pins_are_compared_as_sets_and_an_empty_cpuset_of_version_2_is_every_cpu(tmp_path: Path) -> None:
    groups = hierarchy(tmp_path, 2)
    (command,) = rendered(PINNED, host=HOST_V2)
    change = change_of(groups, command, host=HOST_V2)
    assert (change.kind, change.after) == ("pin", {"cpuset.cpus": "1-2"})
    assert groups.read(change) == {"cpuset.cpus": ""}
    everywhere = f"0-{(os.cpu_count() or 1) - 1}" if (os.cpu_count() or 1) > 1 else "0"
    assert groups.same("cpuset.cpus", "", everywhere)
    assert groups.same("cpuset.cpus", "0,1,2", "0-2")
    assert not groups.same("cpuset.cpus", "0-2", "0-1")
    assert not groups.same("cpuset.cpus", "no list", "0-1")


def test_a_disk_limit_is_the_line_of_its_device(tmp_path: Path) -> None:
    groups = hierarchy(tmp_path, 2)
    (command,) = rendered(IsolationSettings(disk_limit_mb_s=10), host=HOST_V2, disk="8:0")
    change = change_of(groups, command, host=HOST_V2)
    file = tmp_path / "unified" / "lxc.payload.vm1" / "io.max"
    assert (change.kind, groups.read(change)) == ("disk", {"io.max 8:0": ""})
    file.write_text("8:16 rbps=5 wbps=max riops=max wiops=max\n8:0 rbps=10000000 wbps=10000000 riops=max wiops=max\n")
    (found,) = groups.read(change).values()
    assert groups.same("io.max 8:0", found, change.after["io.max 8:0"])
    assert groups.same("io.max 8:0", "", "rbps=max wbps=max")
    assert groups.same("blkio.throttle.read_bps_device 8:0", "", "0")
    groups.write(change, {"io.max 8:0": ""})
    assert file.read_text() == "8:0 rbps=max wbps=max riops=max wiops=max\n", "the kernel takes one line a write"


def test_a_group_that_is_gone_is_said_so(tmp_path: Path) -> None:
    groups = hierarchy(tmp_path, 1)
    (command,) = rendered(IsolationSettings(weight=512))
    change = change_of(groups, command)
    for file in (tmp_path / "cpu" / "lxc.payload.vm1").iterdir():
        file.unlink()
    (tmp_path / "cpu" / "lxc.payload.vm1").rmdir()
    with pytest.raises(Gone):
        groups.read(change)
    with pytest.raises(Gone):
        groups.write(change, change.after)


def test_a_command_for_the_other_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    groups = hierarchy(tmp_path, 1)
    (command,) = rendered(IsolationSettings(weight=512), host=HOST_V2)
    with pytest.raises(InvalidInput, match=r"label cgroup_version: 1"):
        groups.meaning(HOST, command)


def cgset(file: str, path: str, value: str = "1") -> Command:
    argv = ("cgset", "-r", f"{file}={value}", "--", path)
    return Command("cgset", argv, argv)


@pytest.mark.parametrize("path", ["../other", "a/../../b", "/etc", "a//b", "-x", ".", "a/./b", "a\nb", ""])
def test_a_path_that_leads_out_of_the_hierarchy_is_refused(tmp_path: Path, path: str) -> None:
    groups = hierarchy(tmp_path, 1)
    with pytest.raises(InvalidInput):
        groups.meaning(HOST, cgset("cpu.shares", path))


@pytest.mark.parametrize("file", ["cgroup.procs", "devices.allow", "memory.limit_in_bytes", "cpu.shares/../tasks", ""])
def test_only_settings_that_advice_sets_are_written(tmp_path: Path, file: str) -> None:
    with pytest.raises(InvalidInput):
        hierarchy(tmp_path, 1).meaning(HOST, cgset(file, "lxc.payload.vm1"))


def test_a_link_out_of_the_hierarchy_is_not_followed(tmp_path: Path) -> None:
    groups = hierarchy(tmp_path / "mounts", 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "cpu.shares").write_text("1024\n")
    (tmp_path / "mounts" / "cpu" / "out").symlink_to(outside)
    inside = tmp_path / "mounts" / "cpu" / "in"
    inside.mkdir()
    (inside / "cpu.shares").symlink_to(outside / "cpu.shares")
    for path in ("out", "in"):
        with pytest.raises(InvalidInput):
            groups.meaning(HOST, cgset("cpu.shares", path))
    assert (outside / "cpu.shares").read_text() == "1024\n"


def test_a_ledger_that_was_edited_gets_no_further_than_a_rendered_command(tmp_path: Path) -> None:
    groups = hierarchy(tmp_path, 1)
    change = change_of(groups, rendered(IsolationSettings(weight=512))[0])
    for wrong in (
        replace(change, target="../../etc"),
        replace(change, after={"tasks": "1"}),
        replace(change, host="h2"),
        replace(change, after={"cpu.shares": "1\n2"}),
    ):
        with pytest.raises(InvalidInput):
            groups.write(wrong, wrong.after)
    assert text(tmp_path, "cpu", "lxc.payload.vm1", "cpu.shares") == "1024"


def test_another_host_is_refused_with_what_to_do(tmp_path: Path) -> None:
    groups = ControlGroups(frozenset({"h2"}), hierarchy(tmp_path, 1)._files._given)
    with pytest.raises(InvalidInput, match="--here h1"):
        groups.meaning(HOST, rendered(IsolationSettings(weight=512))[0])
