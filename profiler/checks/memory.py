"""Checks of memory: NUMA balancing, page merging, huge pages, swap, overcommitment, stalls and ballooning."""

from __future__ import annotations

import re

from profiler.checks.base import NOTICEABLE_PERCENT, CheckFinding, CheckRule, HostView, UnseenError
from profiler.parse.cgroup import parse_flat
from profiler.parse.proc import parse_pressure
from profiler.parse.text import ParseError

_MM = "/sys/kernel/mm"
_NODES = "/sys/devices/system/node"
_MEMINFO = re.compile(r"^(\w+):\s+([0-9]{1,19}) kB$", re.MULTILINE)
_NOTICEABLE_SWAP = 0.01  # of the memory: idle pages of daemons go out on any host
WATCHED = ("/proc/vmstat", "/proc/pressure/memory")


def numa_balancing(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/sysctl/kernel.rst, numa_balancing (0 off, 1 normal, 2 between memory tiers)."""
    path = "/proc/sys/kernel/numa_balancing"
    if view.find(path) is None:
        view.read("/proc/sys/kernel/osrelease")  # without the folder, a missing file would mean nothing
        return CheckFinding(True, "not in this kernel")
    mode = view.count(path)
    if view.find(f"{_NODES}/online") == "0":
        return CheckFinding(True, "one node only")
    return CheckFinding(mode == 0, "on" if mode else "off")


def merging(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/mm/ksm.rst, `run` (1 = merging, 2 = stopped and unmerged)."""
    if not _in_kernel(view, "ksm"):
        return CheckFinding(True, "not in this kernel")
    running = view.count(f"{_MM}/ksm/run") == 1
    return CheckFinding(not running, f"on, {view.count(f'{_MM}/ksm/pages_sharing')} pages shared" if running else "off")


def huge_pages(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/mm/transhuge.rst, `defrag`: with always, a page fault compacts memory."""
    if not _in_kernel(view, "transparent_hugepage"):
        return CheckFinding(True, "not in this kernel")
    enabled, defrag = (_chosen(view, f"{_MM}/transparent_hugepage/{name}") for name in ("enabled", "defrag"))
    return CheckFinding(enabled == "never" or defrag != "always", f"enabled {enabled}, defrag {defrag}")


def _in_kernel(view: HostView, name: str) -> bool:
    folders = view.folders(_MM)
    if folders is None:
        raise UnseenError(f"{_MM} is not there")
    return name in folders


def _chosen(view: HostView, path: str) -> str:
    text = view.read(path)
    match = re.search(r"\[([a-z+]{1,32})\]", text)
    if not match:
        raise ParseError("choice", path, 1, f"nothing is chosen in {text[:60]!r}")
    return match[1]


def swap(view: HostView) -> CheckFinding:
    """Kernel: mm/vmstat.c, pswpin and pswpout in pages; Documentation/filesystems/proc.rst, SwapTotal and SwapFree."""
    memory = _meminfo(view, "MemTotal", "SwapTotal", "SwapFree")
    used_kb = max(0, memory["SwapTotal"] - memory["SwapFree"])
    moved = _moved(view, "pswpin", "pswpout")
    value = f"{used_kb // 1024} MB out, {moved / view.seconds:.0f} pages/s" if memory["SwapTotal"] else "none"
    return CheckFinding(moved == 0 and used_kb <= _NOTICEABLE_SWAP * memory["MemTotal"], value)


def promised(view: HostView) -> CheckFinding:
    """Kernel: Documentation/filesystems/proc.rst, Committed_AS: what processes, QEMU among them, were promised."""
    memory = _meminfo(view, "MemTotal", "SwapTotal", "Committed_AS")
    percent = 100 * memory["Committed_AS"] / max(1, memory["MemTotal"] + memory["SwapTotal"])
    return CheckFinding(percent <= 100, f"{percent:.0f} % of memory and swap")


def stalls(view: HostView) -> CheckFinding:
    """Kernel: Documentation/accounting/psi.rst, memory: time in which some task waited for memory, µs."""
    earlier_us, now_us = view.change("/proc/pressure/memory", parse_pressure)
    percent = max(0, now_us - earlier_us) / 1e4 / view.seconds
    return CheckFinding(percent <= NOTICEABLE_PERCENT, f"{percent:.1f} % of the time")


def balloon(view: HostView) -> CheckFinding | None:
    """Kernel: include/linux/vm_event_item.h, BALLOON_*: pages that this VM gave away and got back."""
    if view.virtual is False:
        return None
    counts = parse_flat(view.read("/proc/vmstat"), "/proc/vmstat")
    if "balloon_inflate" not in counts or "balloon_deflate" not in counts:
        return None  # no balloon in this kernel
    moved = _moved(view, "balloon_inflate", "balloon_deflate")
    away = max(0, counts["balloon_inflate"] - counts["balloon_deflate"])
    return CheckFinding(moved == 0 and away == 0, f"{away} pages given away, {moved / view.seconds:.0f} pages/s")


def _moved(view: HostView, *names: str) -> int:
    earlier, now = view.change("/proc/vmstat", parse_flat)
    try:
        return sum(max(0, now[name] - earlier[name]) for name in names)
    except KeyError as missing:
        raise ParseError("vmstat", "/proc/vmstat", 1, f"no line {missing.args[0]}") from None


def _meminfo(view: HostView, *names: str) -> dict[str, int]:
    """Numbers of /proc/meminfo in kB."""
    numbers = {name: int(number) for name, number in _MEMINFO.findall(view.read("/proc/meminfo"))}
    for name in names:
        if name not in numbers:
            raise ParseError("meminfo", "/proc/meminfo", 1, f"no line {name}")
    return numbers


RULES = (
    CheckRule(
        "NUMA balancing", numa_balancing, "pages and tasks are moved during a measurement",
        "sysctl -w kernel.numa_balancing=0", "linux",
    ),
    CheckRule(
        "memory merging (KSM)", merging, "ksmd's CPU time belongs to no instance; writes to merged pages stall",
        f"systemctl stop ksmtuned; echo 2 > {_MM}/ksm/run", "linux",
    ),
    CheckRule(
        "huge pages", huge_pages, "page faults wait for memory compaction: latency peaks that no neighbour caused",
        f"echo madvise > {_MM}/transparent_hugepage/defrag", "linux",
    ),
    CheckRule(
        "swap", swap, "instances wait for pages from swap, and this traffic counts as disk and block",
        "add memory or move instances away; then: swapoff -a && swapon -a",
    ),
    CheckRule(
        "memory promised", promised, "when all of it is used, instances are swapped out or killed during a measurement",
        "move instances away, or lower their memory limits", "linux",
    ),
    CheckRule(
        "memory stalls", stalls, "instances wait for memory, which counts as block",
        "add memory or move instances away",
    ),
    CheckRule(
        "balloon", balloon, "the outer hypervisor takes memory of this VM: caches shrink and grow during a measurement",
        "give this VM fixed memory (no ballooning) on the outer host", "linux",
    ),
)  # fmt: skip
