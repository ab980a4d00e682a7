"""Creates and removes the lab's control groups, version 1 or 2, and sets caps, weights, CPUs and disk limits."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from lab.errors import PreparationError, RunError
from profiler.backends.lxc.control_groups import V1_DEFAULT_SHARES, V2_DEFAULT_WEIGHT, find_mounts
from profiler.backends.sources import LiveSource
from profiler.observed import DEFAULT_WEIGHT, IsolationSettings, format_cpus

_V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "blkio")
_V2_CONTROLLERS = ("cpu", "cpuset", "io")
CAP_PERIOD_S = 0.1
"""In which a cap holds: the kernel's default; shorter ones trade throughput for latency."""
_PERIOD_US = round(CAP_PERIOD_S * 1e6)
_EMPTY_WITHIN_S = 3.0
_BLOCK_DEVICES = Path("/sys/dev/block")


class GroupMaker:
    """Makes flat groups under the root: nothing between an instance and its CPU takes a share of its weight."""

    def __init__(self, mounts: Mapping[str, str] | None = None) -> None:
        mounts = find_mounts(LiveSource()) if mounts is None else mounts
        self.version = 1 if "cpuacct" in mounts else 2
        if self.version == 1:
            missing = [name for name in _V1_CONTROLLERS if name not in mounts]
            if missing:
                raise PreparationError(f"control group controllers {', '.join(missing)} are not mounted on this host")
            roots = [mounts[name] for name in _V1_CONTROLLERS]
            # In version 1 a tree of its own freezes groups, and an empty tree of version 2 shows their pressure.
            more = [mounts[name] for name in ("freezer", "unified") if name in mounts]
            self._roots = list(dict.fromkeys([*roots, *more]))
        elif "unified" in mounts:
            self._roots = [mounts["unified"]]
        else:
            raise PreparationError("no control groups are mounted: mount -t cgroup2 none /sys/fs/cgroup")
        self._mounts = mounts

    def prepare(self) -> None:
        """Version 2 only: enable the controllers for groups under the root. They stay enabled, which limits nothing.

        PreparationError where that is impossible, as in a container whose control groups are read-only.
        """
        if self.version == 1:
            return
        try:
            self._enable()
        except OSError as error:
            raise PreparationError(f"control groups cannot be set up here ({error}): run on the host itself") from None

    def _enable(self) -> None:
        root = Path(self._mounts["unified"])
        available = (root / "cgroup.controllers").read_text().split()
        enabled = (root / "cgroup.subtree_control").read_text().split()
        missing = [name for name in _V2_CONTROLLERS if name not in available]
        if missing:
            raise PreparationError(f"control group controllers {', '.join(missing)} are not available at {root}")
        for name in _V2_CONTROLLERS:
            if name not in enabled:
                (root / "cgroup.subtree_control").write_text(f"+{name}")

    def make(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings, device: str | None) -> list[str]:
        """Make a group and return the files that a process id is written to in order to join it.

        `device` is the disk that a disk limit is set on, see `device_of`; PreparationError for a limit without a disk.
        """
        if settings.disk_limit_mb_s is not None and device is None:
            raise PreparationError("a disk limit needs files on a disk: choose a directory that is not in memory")
        try:
            for root in self._roots:
                Path(root, name).mkdir()
            if self.version == 1:
                self._set_v1(name, cpus, settings, device)
            else:
                self._set_v2(name, cpus, settings, device)
        except OSError as error:
            raise RunError(f"control group {name} cannot be made: {error}") from None
        return [f"{root}/{name}/cgroup.procs" for root in self._roots]

    def let_others_first(self, name: str) -> None:
        """Let a group work only when no other group uses its CPUs. RunError before Linux 5.15."""
        try:
            _write(f"{self._mounts['cpu' if self.version == 1 else 'unified']}/{name}/cpu.idle", "1")
        except OSError as error:
            raise RunError(f"idle CPUs cannot be kept busy here ({error}): set fill_idle: false under on_off") from None

    def open_up(self, name: str) -> None:
        """Let groups be made within a group without members: version 2 hands controllers down one level at a time."""
        if self.version == 2:
            handed_down = Path(self._mounts["unified"], name, "cgroup.subtree_control")
            _write(str(handed_down), " ".join(f"+{controller}" for controller in _V2_CONTROLLERS))

    def _set_v1(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings, device: str | None) -> None:
        cpuset = f"{self._mounts['cpuset']}/{name}"
        _write(f"{cpuset}/cpuset.mems", Path(self._mounts["cpuset"], "cpuset.mems").read_text("ascii").strip())
        _write(f"{cpuset}/cpuset.cpus", format_cpus(cpus))
        if settings.cap_percent is not None:
            quota = max(1000, round(settings.cap_percent / 100 * _PERIOD_US))
            _write(f"{self._mounts['cpu']}/{name}/cpu.cfs_quota_us", str(quota))
        if settings.weight is not None:
            shares = max(2, round(settings.weight / DEFAULT_WEIGHT * V1_DEFAULT_SHARES))
            _write(f"{self._mounts['cpu']}/{name}/cpu.shares", str(shares))
        if settings.disk_limit_mb_s is not None:
            for operation in ("read", "write"):
                limit = f"{device} {round(settings.disk_limit_mb_s * 1e6)}"
                _write(f"{self._mounts['blkio']}/{name}/blkio.throttle.{operation}_bps_device", limit)

    def _set_v2(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings, device: str | None) -> None:
        group = f"{self._mounts['unified']}/{name}"
        _write(f"{group}/cpuset.cpus", format_cpus(cpus))
        if settings.cap_percent is not None:
            quota = max(1000, round(settings.cap_percent / 100 * _PERIOD_US))
            _write(f"{group}/cpu.max", f"{quota} {_PERIOD_US}")
        if settings.weight is not None:
            weight = max(1, min(10_000, round(settings.weight / DEFAULT_WEIGHT * V2_DEFAULT_WEIGHT)))
            _write(f"{group}/cpu.weight", str(weight))
        if settings.disk_limit_mb_s is not None:
            limit = round(settings.disk_limit_mb_s * 1e6)
            _write(f"{group}/io.max", f"{device} rbps={limit} wbps={limit}")


def device_of(path: Path) -> str | None:
    """`major:minor` of the disk that a path lies on; None = it lies on no single disk (tmpfs, overlay, btrfs).

    Limits are set on whole disks, for the kernel refuses a partition (block/blk-cgroup.c): its disk is looked up.
    """
    number = path.stat().st_dev
    if os.major(number) == 0:
        return None
    device = f"{os.major(number)}:{os.minor(number)}"
    entry = (_BLOCK_DEVICES / device).resolve()
    if (entry / "partition").exists():
        return (entry.parent / "dev").read_text("ascii").strip()
    return device


def _write(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="ascii")


def group_places(name: str) -> list[Path]:
    """Where a group of this name is, or would be, in every tree of this host."""
    try:
        return [Path(root, name) for root in sorted(set(find_mounts(LiveSource()).values()))]
    except OSError:
        return []


def remove_group(name: str) -> None:
    """End every process in the group of this name and in those within it, and remove these groups from every tree.

    Nothing happens where there is no such group.
    """
    places = [group for group in group_places(name) if group.is_dir()]
    groups = [group for place in places for group in (*_within(place), place)]
    _thaw(groups)
    deadline = time.monotonic() + _EMPTY_WITHIN_S
    while _kill_members(groups) and time.monotonic() < deadline:
        time.sleep(0.005)
    for group in groups:
        _remove_directory(group, deadline)


def _thaw(groups: list[Path]) -> None:
    """In version 1 a frozen process does not end, not even by SIGKILL, before it is thawed."""
    for group in groups:
        with contextlib.suppress(OSError):
            if (group / "freezer.state").exists():
                (group / "freezer.state").write_text("THAWED", "ascii")


def _within(group: Path) -> list[Path]:
    """Groups below one, the deepest first; one that vanishes meanwhile is left out."""
    with contextlib.suppress(OSError):
        children = [path for path in group.iterdir() if path.is_dir()]
        return [path for child in children for path in (*_within(child), child)]
    return []


def _kill_members(groups: list[Path]) -> bool:
    """Kill every member; whether there were any."""
    any_left = False
    for group in groups:
        try:
            members = (group / "cgroup.procs").read_text("ascii").split()
        except OSError:
            continue
        for member in members:
            any_left = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(member), signal.SIGKILL)
    return any_left


def _remove_directory(group: Path, deadline: float) -> None:
    while group.exists():
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            # Busy for a moment after the last member died: its exit is not finished everywhere yet.
            if time.monotonic() >= deadline:
                raise RunError(f"control group {group} cannot be removed: {error.strerror}") from None
            time.sleep(0.005)
