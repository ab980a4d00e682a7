"""Control groups of version 1 and 2 read through one protocol; nothing is written here."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Protocol

from profiler.backends.linux import attempt, or_none, reason
from profiler.backends.sources import HostSource
from profiler.backends.stalls import BlockStack
from profiler.names import NO_MEMORY_LIMIT_BYTES, real_limit
from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT
from profiler.parse.cgroup import (
    Quota,
    parse_cfs_quota,
    parse_cpu_max,
    parse_cpuset,
    parse_device_limits,
    parse_flat,
    parse_io_max,
    parse_io_stat,
    parse_service_bytes,
)
from profiler.parse.proc import parse_counter, parse_mounts, parse_pressure
from profiler.parse.text import ParseError, count

V1_DEFAULT_SHARES = 1024
V2_DEFAULT_WEIGHT = 100
_V2_TIMES = {"system_ns": "system_usec", "throttled_ns": "throttled_usec"}
_FEW_IDS = 1000  # characters; longer lists change with every reading, and would only fill the memory
_DEPTH = 6  # deepest known nesting of a container's group: kubepods.slice/…/…/cri-….scope is 4


class GroupsMissingError(Exception):
    """This host mounts no control groups that count CPU time."""


class Groups(Protocol):
    """One control group tree; `path` is relative to its root, no leading slash; errors are OSError or ParseError."""

    @property
    def version(self) -> int: ...
    def scheduler_folder(self, path: str) -> str:
        """The group's folder in the tree of the cpu controller."""

    def counted_folder(self, path: str) -> str | None:
        """The group's folder in the tree that perf events use; None where there is no such tree."""

    def children(self, path: str) -> list[str]: ...
    def tasks(self, path: str) -> tuple[int, ...]:
        """Thread ids in this very group."""

    def processes(self, path: str) -> tuple[int, ...]:
        """Process ids in this very group."""

    def cpu_ns(self, path: str) -> int: ...
    def further(self, path: str, absent: dict[str, str]) -> dict[str, int]:
        """`system_ns` and `throttled_ns` where they are counted; else the reason in `absent`."""

    def disk_bytes(self, path: str) -> int | None:
        """Bytes read and written on block devices; None = this kernel does not count them for this group now."""

    def cpus(self, path: str) -> tuple[int, ...]: ...
    def quota(self, path: str) -> Quota: ...
    def weight(self, path: str) -> int:
        """CPU weight on Xen's scale (256 = default)."""

    def memory_limit_bytes(self, path: str) -> int | None:
        """None = it may use all there is."""

    def disk_limit_bytes(self, path: str) -> int | None:
        """Bytes per second that neither its reads nor its writes exceed on all disks that it uses; None = no limit."""

    def pressure_us(self, path: str, resource: str) -> int:
        """Time in which some task was stalled for `cpu`, `io` or `memory`."""

    def memory(self, path: str) -> tuple[Mapping[str, int], int | None]:
        """Its `memory.stat`, and the bytes of it that are swapped out; None = they are not counted."""


def walk(groups: Groups, path: str = "", depth: int = _DEPTH) -> Iterator[str]:
    """All groups below `path`, parents first; groups that vanish meanwhile are left out."""
    try:
        names = groups.children(path)
    except OSError:
        return
    for name in names:
        child = f"{path}/{name}" if path else name
        yield child
        if depth > 1:
            yield from walk(groups, child, depth - 1)


class GroupsV1:
    """Version 1: one mount per controller; pressure comes from the version 2 tree where that is mounted, too."""

    version = 1

    def __init__(self, source: HostSource, mounts: Mapping[str, str]) -> None:
        self._source = source
        self._stack = BlockStack(source)
        self.mounts = dict(mounts)

    def _read(self, controller: str, path: str, file: str) -> tuple[str, str]:
        if controller not in self.mounts:
            raise OSError(errno.ENOENT, f"the {controller} controller is not mounted")
        where = f"{self.mounts[controller]}/{path}/{file}"
        return self._source.read(where), where

    def scheduler_folder(self, path: str) -> str:
        return f"{self.mounts['cpu']}/{path}"

    def counted_folder(self, path: str) -> str | None:
        mount = self.mounts.get("perf_event") or self.mounts.get("unified")
        return f"{mount}/{path}" if mount else None

    def children(self, path: str) -> list[str]:
        return self._source.names(f"{self.mounts['cpuacct']}/{path}".rstrip("/"))

    def tasks(self, path: str) -> tuple[int, ...]:
        return _ids(*self._read("cpuacct", path, "tasks"))

    def processes(self, path: str) -> tuple[int, ...]:
        return _ids(*self._read("cpuacct", path, "cgroup.procs"))

    def cpu_ns(self, path: str) -> int:
        return parse_counter(*self._read("cpuacct", path, "cpuacct.usage"))

    def further(self, path: str, absent: dict[str, str]) -> dict[str, int]:
        times = {
            "system_ns": attempt(absent, "system_ns", self._system_ns, path),
            "throttled_ns": attempt(absent, "throttled_ns", self._throttled_ns, path),
        }
        return {name: value for name, value in times.items() if value is not None}

    def _system_ns(self, path: str) -> int:
        return parse_counter(*self._read("cpuacct", path, "cpuacct.usage_sys"))

    def _throttled_ns(self, path: str) -> int:
        text, where = self._read("cpu", path, "cpu.stat")
        return _entry(parse_flat(text, where), "throttled_time", where)

    def disk_bytes(self, path: str) -> int | None:
        # Kernels since 6.10 count only once a limit was set somewhere on the device: no line means "not counted".
        devices = self._disks(path)
        return sum(self._stack.once(devices).values()) if devices else None

    def _disks(self, path: str) -> dict[str, int]:
        return parse_service_bytes(*self._read("blkio", path, "blkio.throttle.io_service_bytes_recursive"))

    def cpus(self, path: str) -> tuple[int, ...]:
        return parse_cpuset(*self._read("cpuset", path, "cpuset.effective_cpus"))

    def quota(self, path: str) -> Quota:
        text, where = self._read("cpu", path, "cpu.cfs_quota_us")
        return parse_cfs_quota(text, self._read("cpu", path, "cpu.cfs_period_us")[0], where)

    def weight(self, path: str) -> int:
        shares = parse_counter(*self._read("cpu", path, "cpu.shares"))
        return _xen_weight(shares, V1_DEFAULT_SHARES)

    def memory_limit_bytes(self, path: str) -> int | None:
        return _memory_limit(parse_counter(*self._read("memory", path, "memory.limit_in_bytes")))

    def disk_limit_bytes(self, path: str) -> int | None:
        reading, writing = (
            parse_device_limits(*self._read("blkio", path, f"blkio.throttle.{way}_bps_device"))
            for way in ("read", "write")
        )
        both = {device: max(reading[device], writing[device]) for device in reading.keys() & writing.keys()}
        return self._stack.limit(both, or_none(self._disks, path) or {}) if both else None

    def pressure_us(self, path: str, resource: str) -> int:
        return parse_pressure(*self._read("unified", path, f"{resource}.pressure"))

    def memory(self, path: str) -> tuple[Mapping[str, int], int | None]:
        stat = parse_flat(*self._read("memory", path, "memory.stat"))
        own = {name.removeprefix("total_"): value for name, value in stat.items() if name.startswith("total_")}
        return own, own.get("swap")  # total_: with the groups below it (cgroup-v1/memory.rst)


class GroupsV2:
    """Version 2: one tree."""

    version = 2

    def __init__(self, source: HostSource, mount: str) -> None:
        self._source = source
        self._stack = BlockStack(source)
        self.mount = mount

    def _read(self, path: str, file: str) -> tuple[str, str]:
        where = f"{self.mount}/{path}/{file}"
        return self._source.read(where), where

    def scheduler_folder(self, path: str) -> str:
        return f"{self.mount}/{path}"

    def counted_folder(self, path: str) -> str | None:
        return f"{self.mount}/{path}"

    def children(self, path: str) -> list[str]:
        return self._source.names(f"{self.mount}/{path}".rstrip("/"))

    def tasks(self, path: str) -> tuple[int, ...]:
        return _ids(*self._read(path, "cgroup.threads"))

    def processes(self, path: str) -> tuple[int, ...]:
        return _ids(*self._read(path, "cgroup.procs"))

    def cpu_ns(self, path: str) -> int:
        text, where = self._read(path, "cpu.stat")
        return 1000 * _entry(parse_flat(text, where), "usage_usec", where)

    def further(self, path: str, absent: dict[str, str]) -> dict[str, int]:
        try:
            text, where = self._read(path, "cpu.stat")
            stat = parse_flat(text, where)
        except (OSError, ParseError) as error:
            absent |= dict.fromkeys(_V2_TIMES, reason(error))
            return {}
        # Without the cpu controller a group's cpu.stat counts run time, and nothing of throttling.
        absent |= {name: f"{where} has no {key}" for name, key in _V2_TIMES.items() if key not in stat}
        return {name: 1000 * stat[key] for name, key in _V2_TIMES.items() if key in stat}

    def disk_bytes(self, path: str) -> int | None:
        return sum(self._stack.once(self._disks(path)).values())

    def _disks(self, path: str) -> dict[str, int]:
        return parse_io_stat(*self._read(path, "io.stat"))

    def cpus(self, path: str) -> tuple[int, ...]:
        """Where the cpuset controller is not enabled for a group, the group above it decides."""
        here = path.strip("/")
        while True:
            try:
                return parse_cpuset(*self._read(here, "cpuset.cpus.effective"))
            except FileNotFoundError:
                if not here:
                    raise
                here = here.rpartition("/")[0]

    def quota(self, path: str) -> Quota:
        return parse_cpu_max(*self._read(path, "cpu.max"))

    def weight(self, path: str) -> int:
        return _xen_weight(parse_counter(*self._read(path, "cpu.weight")), V2_DEFAULT_WEIGHT)

    def memory_limit_bytes(self, path: str) -> int | None:
        text, where = self._read(path, "memory.max")
        return None if text.strip() == "max" else _memory_limit(parse_counter(text, where))

    def disk_limit_bytes(self, path: str) -> int | None:
        limits = parse_io_max(*self._read(path, "io.max"))
        return self._stack.limit(limits, or_none(self._disks, path) or {}) if limits else None

    def pressure_us(self, path: str, resource: str) -> int:
        return parse_pressure(*self._read(path, f"{resource}.pressure"))

    def memory(self, path: str) -> tuple[Mapping[str, int], int | None]:
        stat = parse_flat(*self._read(path, "memory.stat"))
        return stat, or_none(lambda: parse_counter(*self._read(path, "memory.swap.current")))


def group_number(source: HostSource, folder: str) -> int:
    """The kernel's number of a group: the inode of its folder."""
    return source.value(f"inode {folder}", lambda: os.stat(folder).st_ino)  # noqa: PTH116 - no Path object for each


def _ids(text: str, where: str) -> tuple[int, ...]:
    return (_known_ids if len(text) <= _FEW_IDS else _read_ids)(text, where)


def _read_ids(text: str, where: str) -> tuple[int, ...]:
    return tuple(count(line, "task ids", where) for line in text.split("\n") if line)


_known_ids = lru_cache(maxsize=1 << 10)(_read_ids)  # most groups have the same tasks as in the last reading


def _entry(stat: Mapping[str, int], key: str, where: str) -> int:
    if key not in stat:
        raise ParseError("flat keyed file", where, 1, f"no line {key}")
    return stat[key]


def _memory_limit(limit: int) -> int | None:
    return limit if real_limit(limit, NO_MEMORY_LIMIT_BYTES) is not None else None


def _xen_weight(value: int, default: int) -> int:
    return max(1, min(MAX_WEIGHT, round(value * DEFAULT_WEIGHT / default)))


def find_mounts(source: HostSource) -> dict[str, str]:
    """Mount point of every version 1 controller, and of version 2 under the name `unified`."""
    mounts: dict[str, str] = {}
    for mount in parse_mounts(source.read("/proc/mounts"), "/proc/mounts"):
        if mount.kind == "cgroup2":
            mounts.setdefault("unified", mount.target)
        elif mount.kind == "cgroup":
            for option in mount.options:
                if option in ("cpu", "cpuacct", "cpuset", "blkio", "memory", "perf_event", "freezer"):
                    mounts.setdefault(option, mount.target)
    return mounts


def cgroup_version(source: HostSource) -> str:
    """Which version's tree has the cpu controller, so in which numbers weights are: `1`, `2`, or empty = none."""
    mounts = or_none(find_mounts, source) or {}
    return "1" if "cpu" in mounts else "2" if "unified" in mounts else ""


def find_groups(source: HostSource) -> GroupsV1 | GroupsV2:
    """The tree that counts CPU time here; raises GroupsMissingError when there is none."""
    mounts = find_mounts(source)
    if "cpuacct" in mounts and "cpu" in mounts:
        return GroupsV1(source, mounts)
    if "unified" in mounts:
        return GroupsV2(source, mounts["unified"])
    raise GroupsMissingError("no control groups are mounted (mount -t cgroup2 none /sys/fs/cgroup)")
