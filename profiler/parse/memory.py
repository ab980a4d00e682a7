"""Text of the kernel, libvirt and Xen about memory into numbers; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiler.parse.text import ParseError, count

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
