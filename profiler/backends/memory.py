"""Memory beyond its size: what is swapped, merged and ballooned, and how long tasks stall for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from profiler.backends.base import HostCounters
from profiler.backends.linux import read_parsed
from profiler.backends.sources import HostSource
from profiler.backends.stalls import CounterGrowth, SlowCounters
from profiler.parse.cgroup import parse_flat
from profiler.parse.memory import Balloon, parse_major_faults, parse_meminfo, parse_vm_swap
from profiler.parse.proc import parse_counter, parse_pressure

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
