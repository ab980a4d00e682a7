"""Control groups, version 1 and 2, of the machine that this process runs on: settings are files of a group.

`cgset` commands of `advisor.render` say what is set; the files are read and written here, for `cgset` reports neither
what was there nor what the kernel made of it. Every path is checked to be inside the hierarchy that is mounted.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from functools import cached_property

from advisor.changes.executors import ChangeFailed, Executor, ExecutorKind, Gone, Meaning, Reach
from advisor.domain import Change, ChangeKind, Command, Host
from advisor.errors import InvalidInput
from advisor.render.names import is_group_path
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.observed import parse_cpus

# Files that may be written, with the kind of change that each is part of, by version.
_FILES: Mapping[int, Mapping[str, ChangeKind]] = {
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
_BY_DEVICE = re.compile(r"(blkio\.throttle\.(?:read|write)_bps_device|io\.max) (\d{1,4}:\d{1,7})\Z")
_TEXT = re.compile(r"[0-9a-z=:,\- ]{0,200}\Z")
_MOST_READ = 65_536  # bytes of one file
_GONE = (errno.ENOENT, errno.ENODEV)


class ControlGroups:
    """Files below `mounts`: the controllers of version 1 by name, and version 2 as `unified`."""

    def __init__(self, here: frozenset[str], mounts: Mapping[str, str] | None = None) -> None:
        self._here = here
        self._given = mounts

    @cached_property
    def _mounts(self) -> Mapping[str, str]:
        return self._given if self._given is not None else find_mounts(LiveSource())

    @property
    def _version(self) -> int:
        return 1 if "cpu" in self._mounts else 2

    def meaning(self, host: Host, command: Command) -> Meaning:
        self._check_here(host.id)
        group, after = _parsed(command.argv)
        _, before = _parsed(command.undo)
        for name in after:
            self._file(group, name)
        if not after or before.keys() != after.keys():
            raise InvalidInput(f"{' '.join(command.argv)[:200]} sets other files than its undo", field="command")
        return Meaning(_FILES[self._version][_file_of(next(iter(after)))], group, before, after)

    def read(self, change: Change) -> Mapping[str, str]:
        self._check_here(change.host)
        return {name: self._text(change, name) for name in change.after}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        self._check_here(change.host)
        refused: dict[str, OSError] = {}
        for name, text in values.items():
            try:
                self._put(change, name, text)
            except OSError as error:
                refused[name] = error
        # A quota and its period bound each other: what was refused may be taken after the rest.
        for name, first in reversed(refused.items()):
            if len(refused) == len(values):
                raise _failed(change, name, first) from first
            try:
                self._put(change, name, values[name])
            except OSError as again:
                raise _failed(change, name, again) from again

    def same(self, setting: str, one: str, other: str) -> bool:
        if setting == "cpuset.cpus":
            try:
                return self._cpus(one) == self._cpus(other)
            except ValueError:
                return False
        return _plain(one) == _plain(other)

    def _cpus(self, text: str) -> frozenset[int]:
        """An empty list of version 2 means every CPU of the group above it."""
        return frozenset(parse_cpus(text) if text else range(os.cpu_count() or 1))

    def _text(self, change: Change, name: str) -> str:
        try:
            with open(self._file(change.target, name), "rb") as file:  # noqa: PTH123
                text = file.read(_MOST_READ).decode("ascii", "replace").strip()
        except OSError as error:
            raise _failed(change, name, error) from error
        device = _BY_DEVICE.match(name)
        if device is None:
            return text
        lines = (line.partition(" ") for line in text.splitlines())
        return next((values for number, _, values in lines if number == device[2]), "")

    def _put(self, change: Change, name: str, text: str) -> None:
        """One write call, as the kernel wants it; an empty text is a line without anything."""
        if not _TEXT.match(text):
            raise InvalidInput(f"{name}: {text[:60]!r} is no text for a control group", field="command")
        device = _BY_DEVICE.match(name)
        line = text if device is None else f"{device[2]} {text or _unlimited(name)}"
        handle = os.open(self._file(change.target, name), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)

    def _file(self, group: str, name: str) -> str:
        """The file of a setting; InvalidInput where it is none of this host, or lies outside of the hierarchy."""
        version, file = self._version, _file_of(name)
        if file not in _FILES[version]:
            other = 3 - version
            wrong = f"control groups of this host have version {version}, and {file} is of version {other}"
            known = file in _FILES[other]
            raise InvalidInput(
                f"{wrong}: give the host label cgroup_version: {version} and plan again" if known
                else f"{file[:60]!r} is no file that is changed here",
                field="command",
            )  # fmt: skip
        controller = file.partition(".")[0] if version == 1 else "unified"
        if controller not in self._mounts:
            raise InvalidInput(f"the {controller} controller is not mounted on this host", field="command")
        if not is_group_path(group):
            raise InvalidInput(f"control group {group[:80]!r} is no plain path below the hierarchy", field="target")
        mount = os.path.realpath(self._mounts[controller])
        path = os.path.join(mount, group, file)  # noqa: PTH118 - without a Path for each of thousands of readings
        if not os.path.realpath(path).startswith(mount + os.sep) or os.path.realpath(path) != path:
            raise InvalidInput(f"control group {group[:80]!r} leads out of {mount}", field="target")
        return path

    def _check_here(self, host: str) -> None:
        if host not in self._here:
            message = (
                f"control groups of {host} are changed on {host} itself: run the command there, with --here {host}"
            )
            raise InvalidInput(message, field="host")


def _parsed(argv: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Group and texts by file of `cgset -r FILE=TEXT … -- GROUP`; those of one device apart."""
    group, texts, parts = "", {}, list(argv[1:])
    while parts:
        part = parts.pop(0)
        if part == "--" and len(parts) == 1:
            group = parts.pop()
        elif part == "-r" and parts:
            file, equals, text = parts.pop(0).partition("=")
            number, _, values = text.partition(" ")
            by_device = bool(equals) and _BY_DEVICE.match(f"{file} {number}")
            texts[f"{file} {number}" if by_device else file] = values if by_device else text
    if argv[:1] != ("cgset",) or not group:
        raise InvalidInput(f"{' '.join(argv)[:200]!r} is no cgset command as Cotenant renders it", field="command")
    return group, texts


def _file_of(name: str) -> str:
    device = _BY_DEVICE.match(name)
    return device[1] if device else name


def _unlimited(name: str) -> str:
    return "rbps=max wbps=max riops=max wiops=max" if name.startswith("io.max") else "0"


def _plain(text: str) -> str:
    """No limit of a device is shown as no line at all; of io.max only what is said counts."""
    words = [word for word in text.split() if not word.endswith("=max")]
    return "" if words == ["0"] else " ".join(words)


def _failed(change: Change, name: str, error: OSError) -> ChangeFailed:
    if error.errno in _GONE:
        return Gone(f"{change.subject} has no {name} on {change.host} any more (control group {change.target})")
    return ChangeFailed(f"{name} of {change.subject} on {change.host}: {error.strerror or error}")


def _open(reach: Reach) -> Executor:
    return ControlGroups(reach.here)


EXECUTOR = ExecutorKind(_open, tools=("cgset",))
