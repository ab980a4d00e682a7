"""Settings of control groups, version 1 and 2, as files that are read and written; every path stays in the hierarchy.

`cgset` reports neither what was there nor what the kernel made of it, so files are written here.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Mapping
from functools import cached_property

from profiler.acting.allowed import SettingGone, SettingNotSet, SettingRefused
from profiler.backends.lxc.control_groups import V1_DEFAULT_SHARES, V2_DEFAULT_WEIGHT, find_mounts
from profiler.backends.sources import LiveSource
from profiler.names import is_group_path
from profiler.observed import parse_cpus

# Files that may be written, with the kind of change that each is part of, by version.
FILES: Mapping[int, Mapping[str, str]] = {
    1: {
        "cpu.shares": "weight",
        "cpu.cfs_period_us": "cap",
        "cpu.cfs_quota_us": "cap",
        "cpu.cfs_burst_us": "cap",
        "cpuset.cpus": "pin",
        "blkio.throttle.read_bps_device": "disk",
        "blkio.throttle.write_bps_device": "disk",
    },
    2: {"cpu.weight": "weight", "cpu.max": "cap", "cpu.max.burst": "cap", "cpuset.cpus": "pin", "io.max": "disk"},
}
BY_DEVICE = re.compile(r"(blkio\.throttle\.(?:read|write)_bps_device|io\.max) (\d{1,4}:\d{1,7})\Z")
_TEXT = re.compile(r"[0-9a-z=:,\- ]{0,200}\Z")
_FULL_PERIOD = "100000"  # µs, of a cap whose period is not set with it: the kernel's
_MOST_READ = 65_536  # bytes of one file
_GONE = (errno.ENOENT, errno.ENODEV)


class GroupFiles:
    """Files below `mounts`: the controllers of version 1 by name, and version 2 as `unified`."""

    def __init__(self, mounts: Mapping[str, str] | None = None) -> None:
        self._given = mounts

    @cached_property
    def _mounts(self) -> Mapping[str, str]:
        return self._given if self._given is not None else find_mounts(LiveSource())

    @property
    def version(self) -> int:
        """1 or 2: which counts CPU time here."""
        return 1 if "cpu" in self._mounts else 2

    def kind(self, name: str) -> str:
        """The kind of change that a setting is part of; SettingRefused where it is none of this host."""
        return self._known(name)

    def default_weight(self, name: str) -> int | None:
        """What the weight in this file is without any wish; None = it is no weight."""
        return {"cpu.shares": V1_DEFAULT_SHARES, "cpu.weight": V2_DEFAULT_WEIGHT}.get(name)

    def cap_percent(self, settings: Mapping[str, str]) -> float | None:
        """The cap that these come to, in percent of one CPU: infinite = none; None = none of them sets it."""
        if "cpu.max" in settings:
            quota, _, period = settings["cpu.max"].partition(" ")
            return _of(quota, period or _FULL_PERIOD)
        both = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        if not any(name in settings for name in both):
            return None
        if not all(name in settings for name in both):
            raise SettingRefused("a quota and its period are set together, so that it is known what they come to")
        return _of(*(settings[name] for name in both))

    def read(self, group: str, names: Collection[str]) -> dict[str, str]:
        """The present texts of settings."""
        return {name: self._text(group, name) for name in names}

    def write(self, group: str, values: Mapping[str, str]) -> None:
        """Give settings these texts, in this order."""
        refused: dict[str, OSError] = {}
        for name, text in values.items():
            try:
                self._put(group, name, text)
            except OSError as error:
                refused[name] = error
        # A quota and its period bound each other: what was refused may be taken after the rest.
        for name, first in reversed(refused.items()):
            if len(refused) == len(values):
                raise _failed(group, name, first) from first
            try:
                self._put(group, name, values[name])
            except OSError as again:
                raise _failed(group, name, again) from again

    def same(self, name: str, one: str, other: str) -> bool:
        """Whether two texts of a setting mean the same."""
        if name == "cpuset.cpus":
            try:
                return _cpus(one) == _cpus(other)
            except ValueError:
                return False
        return _plain(one) == _plain(other)

    def check(self, group: str, name: str) -> None:
        """SettingRefused where a setting is none of this host, or lies outside of the hierarchy."""
        self._file(group, name)

    def _text(self, group: str, name: str) -> str:
        try:
            with open(self._file(group, name), "rb") as file:  # noqa: PTH123
                text = file.read(_MOST_READ).decode("ascii", "replace").strip()
        except OSError as error:
            raise _failed(group, name, error) from error
        device = BY_DEVICE.match(name)
        if device is None:
            return text
        lines = (line.partition(" ") for line in text.splitlines())
        return next((values for number, _, values in lines if number == device[2]), "")

    def _put(self, group: str, name: str, text: str) -> None:
        """One write call, as the kernel takes it; an empty text is a line without anything."""
        if not _TEXT.match(text):
            raise SettingRefused(f"{name}: {text[:60]!r} is no text for a control group")
        device = BY_DEVICE.match(name)
        line = text if device is None else f"{device[2]} {text or _unlimited(name)}"
        handle = os.open(self._file(group, name), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)

    def _known(self, name: str) -> str:
        version, file = self.version, file_of(name)
        if file not in FILES[version]:
            other = 3 - version
            wrong = f"control groups of this host have version {version}, and {file} is of version {other}"
            known = file in FILES[other]
            raise SettingRefused(
                f"{wrong}: give the host label cgroup_version: {version} and plan again" if known
                else f"{file[:60]!r} is no file that is changed here"
            )  # fmt: skip
        return FILES[version][file]

    def _file(self, group: str, name: str) -> str:
        self._known(name)
        file = file_of(name)
        controller = file.partition(".")[0] if self.version == 1 else "unified"
        if controller not in self._mounts:
            raise SettingRefused(f"the {controller} controller is not mounted on this host")
        if not is_group_path(group):
            raise SettingRefused(f"control group {group[:80]!r} is no plain path below the hierarchy")
        mount = os.path.realpath(self._mounts[controller])
        path = os.path.join(mount, group, file)  # noqa: PTH118 - without a Path for each of thousands of readings
        if not os.path.realpath(path).startswith(mount + os.sep) or os.path.realpath(path) != path:
            raise SettingRefused(f"control group {group[:80]!r} leads out of {mount}")
        return path


def file_of(name: str) -> str:
    """The file of a setting, which may be that of one device."""
    device = BY_DEVICE.match(name)
    return device[1] if device else name


def _of(quota: str, period: str) -> float:
    if quota in ("max", "-1"):
        return float("inf")
    if not re.fullmatch(r"\d{1,12}", quota) or not re.fullmatch(r"[1-9]\d{0,9}", period):
        raise SettingRefused(f"{quota[:40]!r} of {period[:40]!r} is no cap")
    return 100.0 * int(quota) / int(period)


def _cpus(text: str) -> frozenset[int]:
    """An empty list of version 2 means every CPU of the group above it."""
    return frozenset(parse_cpus(text) if text else range(os.cpu_count() or 1))


def _unlimited(name: str) -> str:
    return "rbps=max wbps=max riops=max wiops=max" if name.startswith("io.max") else "0"


def _plain(text: str) -> str:
    """No limit of a device is shown as no line at all; of io.max only what is said counts."""
    words = [word for word in text.split() if not word.endswith("=max")]
    return "" if words == ["0"] else " ".join(words)


def _failed(group: str, name: str, error: OSError) -> SettingNotSet:
    if error.errno in _GONE:
        return SettingGone(f"there is no {name} any more (control group {group})")
    return SettingNotSet(f"{name}: {error.strerror or error}")
