"""Stalls: pressure of CPU, memory and I/O, and the state of a host's memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from profiler.backends.base import HostCounters
from profiler.backends.linux import attempt, or_none, queues_by_interface, read_parsed
from profiler.backends.sources import HostSource
from profiler.parse.cgroup import Balloon, parse_flat, parse_major_faults, parse_meminfo, parse_vm_swap
from profiler.parse.proc import DiskTimes, InterfaceBytes, parse_blkio_ticks, parse_counter, parse_pressure

# Memory beyond its size: what is swapped, merged and ballooned, and how long tasks stall for it.

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MB_PER_KB = 1 / 1024
_MERGED = "/sys/kernel/mm/ksm/pages_sharing"


class HostMemory:
    """Reads the host's memory every ten seconds; what this kernel does not show is left out."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self.slow = SlowCounters()

    def read(self, now_s: float) -> SlowCounters:
        """The counters as read last: psi_memory_us, swap_in_bytes, swap_out_bytes; and gauges in MB."""
        if self.slow.is_due(now_s):
            self._read(now_s)
        return self.slow

    def beside(self, whole: HostCounters | None, now_s: float) -> HostCounters | None:
        """The host's counters with those of its memory."""
        slow = self.read(now_s)
        if whole is None:
            return None
        absent = {**whole.absent, **slow.absent}
        return replace(whole, further=slow.counters, gauges=slow.gauges, further_since=slow.since, absent=absent)

    def _read(self, now_s: float) -> None:
        counters: dict[str, int] = {}
        gauges: dict[str, float] = {}
        absent: dict[str, str] = {}
        pressure_us = read_parsed(absent, "psi_memory_us", self._source, "/proc/pressure/memory", parse_pressure)
        if pressure_us is not None:
            counters["psi_memory_us"] = pressure_us
        stat = read_parsed(absent, "swap_in_bytes", self._source, "/proc/vmstat", parse_flat) or {}
        for name, key in (("swap_in_bytes", "pswpin"), ("swap_out_bytes", "pswpout")):  # mm/vmstat.c: in pages
            if key in stat:
                counters[name] = stat[key] * PAGE_BYTES
        memory = read_parsed(absent, "swap_mb", self._source, "/proc/meminfo", parse_meminfo)
        if memory is not None:
            gauges["available_mb"] = memory.available * _MB_PER_KB
            gauges["swap_mb"] = memory.swapped * _MB_PER_KB
            if memory.huge:
                gauges["huge_mb"], gauges["huge_free_mb"] = memory.huge * _MB_PER_KB, memory.huge_free * _MB_PER_KB
        merged = read_parsed(absent, "ksm_mb", self._source, _MERGED, parse_counter)
        if merged is not None:  # Documentation/admin-guide/mm/ksm.rst: how many more sites share the pages, so saved
            gauges["ksm_mb"] = merged * PAGE_BYTES / (1 << 20)
        self.slow.take(counters, gauges, absent, now_s)


class GroupMemory:
    """What a container's group shows of its memory, by growth: a group's counts go with it."""

    def __init__(self) -> None:
        self._faults, self._swapped_in = CounterGrowth(), CounterGrowth()

    def add(
        self, stat: Mapping[str, int], swap_bytes: int | None, counters: dict[str, int], gauges: dict[str, float]
    ) -> None:
        """Add its `memory.stat` (cgroup-v2.rst, memory.rst): faults that waited for a disk, and what came from swap."""
        if "pgmajfault" in stat:
            counters["major_faults"] = self._faults.add({"": stat["pgmajfault"]})
        if "pswpin" in stat:
            counters["swap_in_bytes"] = PAGE_BYTES * self._swapped_in.add({"": stat["pswpin"]})
        if swap_bytes is not None:
            gauges["swap_mb"] = swap_bytes / (1 << 20)


class GuestMemory:
    """What the host shows of one guest's memory: its QEMU, and what libvirt says of its balloon."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._faults, self._swapped_in = CounterGrowth(), CounterGrowth()

    def add_process(self, pid: int, counters: dict[str, int], gauges: dict[str, float], absent: dict[str, str]) -> None:
        """Add what of QEMU is swapped out, and its faults that waited for a disk: pages of the guest are among them."""
        swapped_kb = read_parsed(absent, "swap_mb", self._source, f"/proc/{pid}/status", parse_vm_swap)
        if swapped_kb is not None:
            gauges["swap_mb"] = swapped_kb * _MB_PER_KB
        faults = read_parsed(absent, "major_faults", self._source, f"/proc/{pid}/stat", parse_major_faults)
        if faults is not None:
            counters["major_faults"] = self._faults.add({"": faults})

    def add_balloon(self, balloon: Balloon, counters: dict[str, int], gauges: dict[str, float]) -> None:
        """Add what its balloon took, and what its own kernel brought back from swap."""
        gauges["balloon_mb"] = balloon.taken * _MB_PER_KB
        if balloon.swapped_in is not None:
            counters["swap_in_bytes"] = 1024 * self._swapped_in.add({"": balloon.swapped_in})


# Block devices that lie on others (LVM, dm-crypt, md, multipath, bcache): each request and each limit counts once.
#
# The kernel counts a request on every device that it passes: on the logical volume, and on the disk below it.

_DEVICES = "/sys/dev/block"
_NUMBER = re.compile(r"\d{1,4}:\d{1,7}\Z")
_KEPT_S = 60.0  # volumes come and go slowly, and their numbers are given again
_MOST, _DEPTH = 64, 8  # devices below one device; layers


class BlockStack:
    """Which devices lie on which; devices are named `major:minor`, a partition counts as its disk."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._below: dict[str, tuple[str, ...]] = {}
        self._until_s = 0.0

    def once(self, counted: Mapping[str, int]) -> dict[str, int]:
        """What each device adds to the devices that lie on it.

        So the sum has each request once, at the highest device that counts it: a mirrored write is one write, and what
        goes to a disk directly counts beside what passes a volume on it.
        """
        active = {device for device, value in counted.items() if value}
        if len(active) < 2:
            return dict(counted)
        own = dict(counted)
        for upper in active:
            for lower in self._nearest(upper, active):
                own[lower] -= counted[upper]
        return {device: max(0, value) for device, value in own.items()}

    def limit(self, limits: Mapping[str, int], used: Mapping[str, int]) -> int | None:
        """The limit of all devices that are in use, by the `limits` of some; None = a device in use has none.

        Args:
            limits: bytes per second, by device.
            used: what a group moved, by device; where that is nothing yet, the limited devices are taken for all.
        """
        moved = {device for device, value in self.once(used).items() if value and _NUMBER.match(device)}
        roots = moved or set(limits)
        holding: set[str] = set()
        for device in roots:
            limited = self._limited(device, limits)
            if limited is None:
                return None
            holding |= limited
        return sum(limits[device] for device in holding) if holding else None

    def _limited(self, device: str, limits: Mapping[str, int], depth: int = _DEPTH) -> frozenset[str] | None:
        """The devices whose limits hold for one: itself, or all of those below it, whichever is the lower."""
        below = self.below(device) if depth else ()
        parts = [self._limited(lower, limits, depth - 1) for lower in below]
        lower = frozenset[str]().union(*(part for part in parts if part))
        choices = [lower] if parts and None not in parts else []
        if device in limits:
            choices.append(frozenset({device}))
        return min(choices, key=lambda names: sum(limits[name] for name in names), default=None)

    def _nearest(self, upper: str, active: set[str]) -> set[str]:
        """The nearest active devices below one."""
        found: set[str] = set()
        layer = {upper}
        for _ in range(_DEPTH):
            below = {lower for device in layer for lower in self.below(device)} - {upper}
            found |= below & active
            layer = below - active
        return found

    def below(self, device: str) -> tuple[str, ...]:
        """The devices that one lies on directly; empty = a disk."""
        now_s = self._source.clock()[1]
        if now_s >= self._until_s:
            self._below.clear()
            self._until_s = now_s + _KEPT_S
        if device not in self._below:
            self._below[device] = tuple(self._read_below(device))
        return self._below[device]

    def _read_below(self, device: str) -> Iterator[str]:
        folder = f"{_DEVICES}/{device}/slaves"
        if not _NUMBER.match(device):  # one that went away has no number
            return
        for name in (or_none(self._source.names, folder) or [])[:_MOST]:
            lower = f"{folder}/{name}"
            part = or_none(self._source.read, f"{lower}/partition") is not None
            number = or_none(self._source.read, f"{lower}/../dev" if part else f"{lower}/dev")
            if number is not None:
                yield number.strip()


_AGAIN_S = 9.5  # with a reading per second, they are read in every tenth
_LOOK_AGAIN_S = 60.0  # between two looks whether the kernel counts delays
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DELAYS_SWITCH = "/proc/sys/kernel/task_delayacct"
DELAYS_OFF = "delays are not counted (sysctl kernel.task_delayacct=1, before 5.14 without nodelayacct)"


class SlowCounters:
    """Counters beyond the eight metrics, with those of the reading before. They are read in the first two readings and
    then every ten seconds, over which their rates are taken."""

    def __init__(self) -> None:
        self.counters: Mapping[str, int] = {}
        self.gauges: Mapping[str, float] = {}
        self.absent: Mapping[str, str] = {}
        self.since: tuple[Mapping[str, int], float] | None = None
        self._read_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether they are to be read now."""
        return self._read_s is None or self.since is None or not 0 <= now_s - self._read_s < _AGAIN_S

    def take(
        self, counters: Mapping[str, int], gauges: Mapping[str, float], absent: Mapping[str, str], now_s: float
    ) -> None:
        """Keep what was read now."""
        before, before_s = self.counters, self._read_s
        self.counters, self.gauges, self.absent, self._read_s = counters, gauges, absent, now_s
        self.since = None if before_s is None or now_s <= before_s else (before, now_s - before_s)


class CounterGrowth:
    """By how much counters grew, all together. One that ran backwards began anew; a new one grew by nothing yet."""

    def __init__(self) -> None:
        self._total = 0
        self._last: Mapping[str, int] = {}

    def add(self, counts: Mapping[str, int]) -> int:
        """The growth so far, after these counts by key."""
        for key, now in counts.items():
            before = self._last.get(key, now)
            self._total += now - before if now >= before else now
        self._last = dict(counts)
        return self._total


class DiskRequests:
    """Requests and flushes of one instance's disks, and for how long they waited."""

    def __init__(self) -> None:
        self._waits, self._requests, self._flushes = CounterGrowth(), CounterGrowth(), CounterGrowth()

    def add(self, disks: Mapping[str, DiskTimes], counters: dict[str, int]) -> None:
        """Add what these disks show: disk_wait_us, disk_requests and disk_flushes."""
        counters["disk_wait_us"] = self._waits.add({name: disk.waited_ns for name, disk in disks.items()}) // 1000
        counters["disk_requests"] = self._requests.add({name: disk.requests for name, disk in disks.items()})
        counters["disk_flushes"] = self._flushes.add({name: disk.flushes for name, disk in disks.items()})


class TaskWaits:
    """For how long tasks waited, all together, in ticks.

    A step longer than the time that passed is left out: a task that was moved here brings its past, and Linux 6.18 was
    seen to add the time since boot once. A task that ends takes its last wait with it.
    """

    def __init__(self) -> None:
        self._total = 0
        self._last: Mapping[str, int] | None = None
        self._last_s = 0.0

    def add(self, ticks: Mapping[str, int], now_s: float) -> int:
        """The waits so far, after these ticks by task."""
        most = (now_s - self._last_s) * _TICKS_PER_S + 1
        if self._last is not None:
            steps = [now - self._last.get(task, 0) for task, now in ticks.items()]
            self._total += sum(step for step in steps if 0 <= step <= most)
        self._last, self._last_s = dict(ticks), now_s
        return self._total


class HostQueues:
    """The queues of this host's interfaces, read at most once in a reading, and only when needed."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._found: Mapping[str, Sequence[int]] | None = None
        self._absent: dict[str, str] = {}
        self._asked = False

    def begin(self) -> None:
        """A new reading."""
        self._asked = False

    def find(self, absent: dict[str, str]) -> Mapping[str, Sequence[int]] | None:
        """Bytes that wait and packets dropped by interface; None with the reason in `absent`."""
        if not self._asked:
            self._asked, self._absent = True, {}
            self._found = attempt(
                self._absent, "net_backlog_bytes", self._source.value, "queues by interface", queues_by_interface
            )
        absent.update(self._absent)
        return self._found


class InterfaceStalls:
    """Packets that one instance's interfaces and their queues dropped, and bytes that wait in these now."""

    def __init__(self, queues: HostQueues | None) -> None:
        """`queues` None: the interfaces are in another namespace, and their backlog is not known."""
        self._queues = queues
        self._drops = CounterGrowth()

    def read(
        self,
        interfaces: Mapping[str, InterfaceBytes],
        counters: dict[str, int],
        gauges: dict[str, float],
        absent: dict[str, str],
    ) -> None:
        """Add what these interfaces show: net_drops and net_backlog_bytes."""
        drops = {name: interface.dropped for name, interface in interfaces.items()}
        queues = self._queues.find(absent) if self._queues else None
        if queues is not None:
            own = {name: queues[name] for name in interfaces if name in queues}
            drops |= {f"queue of {name}": queue[1] for name, queue in own.items()}
            gauges["net_backlog_bytes"] = float(sum(queue[0] for queue in own.values()))
        counters["net_drops"] = self._drops.add(drops)


class TaskDelays:
    """Whether this kernel counts for how long tasks wait for block I/O: it is off by default since 5.14."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._looked_s: float | None = None
        self._off = ""

    def off(self, now_s: float) -> str:
        """Why the kernel does not count them; empty = it does."""
        if self._looked_s is None or not 0 <= now_s - self._looked_s < _LOOK_AGAIN_S:
            self._looked_s, self._off = now_s, "" if self._counts() else DELAYS_OFF
        return self._off

    def _counts(self) -> bool:
        text = or_none(self._source.read, DELAYS_SWITCH)
        if text is not None:
            return or_none(parse_counter, text, DELAYS_SWITCH) == 1
        # the first process has surely waited for a disk
        return bool(read_parsed({}, "", self._source, "/proc/1/stat", parse_blkio_ticks))
