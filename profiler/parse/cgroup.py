"""Files of control groups, and those of a host's memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiler.names import NO_CAP_PERCENT, NO_DISK_LIMIT_BYTES, real_limit
from profiler.observed import parse_cpus
from profiler.parse.text import ParseError, count, lines


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU bandwidth: `quota_us` of run time per `period_us`; None = no limit."""

    quota_us: int | None
    period_us: int

    @property
    def percent(self) -> float | None:
        """The cap, 100 = one whole CPU."""
        return None if self.quota_us is None else real_limit(100.0 * self.quota_us / self.period_us, NO_CAP_PERCENT)


def parse_flat(text: str, where: str = "") -> dict[str, int]:
    """Read `key value` lines: `cpu.stat` of both versions, `cgroup.events` and their like."""
    values: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split()
        if len(fields) == 2:
            values[fields[0]] = count(fields[1], "flat keyed file", where, number)
        elif fields:
            raise ParseError("flat keyed file", where, number, "key and number expected")
    return values


def parse_cpu_max(text: str, where: str = "") -> Quota:
    """Read `cpu.max` (version 2): `max 100000` or `50000 100000`."""
    fields = text.split()
    if len(fields) != 2:
        raise ParseError("cpu.max", where, 1, "quota and period expected")
    quota = None if fields[0] == "max" else count(fields[0], "cpu.max", where)
    return _quota(quota, count(fields[1], "cpu.max", where), where)


def parse_cfs_quota(quota_text: str, period_text: str, where: str = "") -> Quota:
    """Read `cpu.cfs_quota_us` and `cpu.cfs_period_us` (version 1); -1 means no limit."""
    quota = None if quota_text.strip() == "-1" else count(quota_text, "cpu.cfs_quota_us", where)
    return _quota(quota, count(period_text, "cpu.cfs_period_us", where), where)


def _quota(quota_us: int | None, period_us: int, where: str) -> Quota:
    if period_us == 0 or quota_us == 0:
        raise ParseError("cpu quota", where, 1, "quota and period must be above 0")
    return Quota(quota_us, period_us)


def parse_cpuset(text: str, where: str = "") -> tuple[int, ...]:
    """Read `cpuset.cpus` or `cpuset.cpus.effective`; an empty file means that the group sets none."""
    if not text.strip():
        return ()
    try:
        return parse_cpus(text.strip())
    except ValueError as error:
        raise ParseError("cpuset", where, 1, str(error)) from None


def parse_io_stat(text: str, where: str = "") -> dict[str, int]:
    """Read `io.stat` (version 2): bytes read and written per device `major:minor`.

    A device that is not used yet has a name and no values; some kernels write no line break after it, so that values
    belong to the last name of a line. Devices that went away are all named `(unknown)`; their bytes add up.
    """
    by_device: dict[str, int] = {}
    for number, line in lines(text):
        fields = line.split()
        devices = [field for field in fields if "=" not in field]
        values = dict(field.partition("=")[::2] for field in fields if "=" in field)
        for device in devices:
            by_device.setdefault(device, 0)
        if not values:
            continue
        if not devices or "rbytes" not in values or "wbytes" not in values:
            raise ParseError("io.stat", where, number, "device, rbytes= or wbytes= is missing")
        by_device[devices[-1]] += sum(count(values[key], "io.stat", where, number) for key in ("rbytes", "wbytes"))
    return by_device


def parse_service_bytes(text: str, where: str = "") -> dict[str, int]:
    """Read `blkio.throttle.io_service_bytes` (version 1): bytes read and written per device."""
    by_device: dict[str, int] = {}
    for number, line in lines(text):
        fields = line.split()
        if len(fields) == 2 and fields[0] == "Total":
            count(fields[1], "io_service_bytes", where, number)
            continue
        if len(fields) != 3:
            raise ParseError("io_service_bytes", where, number, "device, operation and number expected")
        value = count(fields[2], "io_service_bytes", where, number)
        if fields[1] in ("Read", "Write"):
            by_device[fields[0]] = by_device.get(fields[0], 0) + value
    return by_device


def parse_device_limits(text: str, where: str = "") -> dict[str, int]:
    """Read `blkio.throttle.read_bps_device` (version 1): bytes per second per device."""
    by_device: dict[str, int] = {}
    for number, line in lines(text):
        fields = line.split()
        if len(fields) != 2:
            raise ParseError("blkio limit", where, number, "device and number expected")
        limit = count(fields[1], "blkio limit", where, number)
        if real_limit(limit, NO_DISK_LIMIT_BYTES) is not None:
            by_device[fields[0]] = limit
    return by_device


def parse_io_max(text: str, where: str = "") -> dict[str, int]:
    """Read `io.max` (version 2): what neither reads nor writes exceed, in bytes/s per device where both are limited."""
    by_device: dict[str, int] = {}
    for number, line in lines(text):
        device, *fields = line.split()
        values = dict(field.partition("=")[::2] for field in fields)
        set_limits = [values[key] for key in ("rbps", "wbps") if values.get(key, "max") != "max"]
        counts = [count(limit, "io.max", where, number) for limit in set_limits]
        limits = [limit for limit in counts if real_limit(limit, NO_DISK_LIMIT_BYTES) is not None]
        if len(limits) == 2:  # a limit of one way is none of the device: the other way is free
            by_device[device] = max(limits)
    return by_device


def parse_group_of_task(text: str, controller: str) -> str | None:
    """Read `/proc/<pid>/cgroup` (cgroups(7)): the path of the task's group in the tree of a controller of version 1.

    An empty controller means the tree of version 2. None where the task is in no such tree.
    """
    for _, line in lines(text):
        controllers, _, path = line.partition(":")[2].partition(":")
        if controller in controllers.split(",") and path.startswith("/"):
            return path
    return None


# Text of the kernel, libvirt and Xen about memory into numbers; no I/O.

# As the kernel prints it (fs/proc/meminfo.c); lines that are no such sizes are of no concern here.
_MEMINFO = re.compile(r"^([A-Za-z_]{1,40}(?:\([a-z]{1,20}\))?): +([0-9]{1,15})(?: kB)?$", re.MULTILINE)
_VM_SWAP = re.compile(r"^VmSwap:[ \t]+([0-9]{1,15}) kB$", re.MULTILINE)
_MAJOR_FAULTS = 9  # column of /proc/<pid>/stat after the name in brackets (proc(5): 12th of all)


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """`/proc/meminfo`, in kB (KiB): `available` can be used without swapping, `swapped` is out. The pool of huge pages
    of the default size (hugetlbpage.rst) is `huge`, of which `huge_free` nothing uses or was promised."""

    total: int
    available: int
    swapped: int
    huge: int
    huge_free: int


@dataclass(frozen=True, slots=True)
class Balloon:
    """A guest's memory in KiB (virConnectGetAllDomainStats, group balloon): `most` it may have, `now` what it has left.

    `swapped_in` is what its own kernel brought back from swap, None = its driver does not report it.
    """

    most: int
    now: int
    swapped_in: int | None

    @property
    def taken(self) -> int:
        """What the balloon took from it, KiB."""
        return max(self.most - self.now, 0)


def parse_meminfo(text: str, where: str = "/proc/meminfo") -> MemoryInfo:
    """Read `/proc/meminfo` (kernel: Documentation/filesystems/proc.rst); a kernel without huge pages has none."""
    numbers = {name: int(number) for name, number in _MEMINFO.findall(text)}
    for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"):
        if name not in numbers:
            raise ParseError("meminfo", where, 1, f"no line {name}")
    page = numbers.get("Hugepagesize", 0)
    free = numbers.get("HugePages_Free", 0) - numbers.get("HugePages_Rsvd", 0)
    return MemoryInfo(
        numbers["MemTotal"],
        numbers["MemAvailable"],
        max(numbers["SwapTotal"] - numbers["SwapFree"], 0),
        page * numbers.get("HugePages_Total", 0),
        page * max(free, 0),
    )


def parse_vm_swap(text: str, where: str = "") -> int:
    """Read from `/proc/<pid>/status` how many kB of a process are swapped out (proc(5))."""
    found = _VM_SWAP.search(text)
    if found is None:
        raise ParseError("status", where, 1, "no line VmSwap")
    return int(found[1])


def parse_major_faults(text: str, where: str = "") -> int:
    """Read from `/proc/<pid>/stat` how many faults of a process waited for a disk (proc(5), majflt)."""
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _MAJOR_FAULTS:
        raise ParseError("stat", where, 1, f"more than {_MAJOR_FAULTS} numbers expected, {len(fields)} found")
    return count(fields[_MAJOR_FAULTS], "stat", where)


def parse_balloon(stats: Mapping[str, Any], where: str = "libvirt domstats") -> Balloon:
    """Read the group balloon of one domain's dictionary."""
    most, now = (_kib(stats, f"balloon.{name}", where) for name in ("maximum", "current"))
    if most is None or now is None:
        raise ParseError("domain statistics", where, 1, "libvirt gave no balloon.current and balloon.maximum")
    return Balloon(most, now, _kib(stats, "balloon.swap_in", where))


def _kib(stats: Mapping[str, Any], name: str, where: str) -> int | None:
    value = stats.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 50:
        raise ParseError("domain statistics", where, 1, f"{name} is {str(value)[:40]!r} and not a size in KiB")
    return value


def parse_xen_balloon(nodes: Mapping[str, str], domain: int, where: str = "xenstore-ls") -> int:
    """KiB that the balloon took from a guest of Xen: the most that it may have (memory/static-max of its nodes in
    xenstore) less what it shall have now (memory/target; docs/misc/xenstore-paths)."""
    folder = f"/local/domain/{domain}/memory"
    values = []
    for name in ("static-max", "target"):
        if f"{folder}/{name}" not in nodes:
            raise ParseError("xenstore", where, 1, f"no node {folder}/{name}")
        values.append(count(nodes[f"{folder}/{name}"], "xenstore", where))
    return max(values[0] - values[1], 0)
