"""Stalls of one guest, read every ten seconds: its disk requests, drops of its taps, pressure, memory, hardware
counters."""

from __future__ import annotations

from profiler.backends.libvirt.processes import QemuProcess
from profiler.backends.libvirt.scheduling_groups import find_guest_group
from profiler.backends.linux import attempt, read_parsed
from profiler.backends.memory import GuestMemory
from profiler.backends.source import HostSource
from profiler.backends.stalls import CounterGrowth, DiskRequests, HostQueues, InterfaceStalls, SlowCounters
from profiler.parse.libvirt import (
    DomainRecord,
    HardwareStats,
    parse_disk_times,
    parse_hardware,
    parse_interfaces,
)
from profiler.parse.memory import parse_balloon
from profiler.parse.proc import parse_pressure


class GuestStalls:
    """Reads one start of one domain, reading after reading."""

    def __init__(self, source: HostSource, domain: int, queues: HostQueues) -> None:
        self.domain = domain
        self.slow = SlowCounters()
        self._source = source
        self._disks, self._memory_used = DiskRequests(), GuestMemory(source)
        self._cycles, self._instructions, self._memory = CounterGrowth(), CounterGrowth(), CounterGrowth()
        self._interfaces = InterfaceStalls(queues)

    def read(self, record: DomainRecord, process: QemuProcess | None, vcpus: int, now_s: float) -> None:
        """Take libvirt's counts of its drives, interfaces and hardware counters, and read the pressure of its group."""
        counters: dict[str, int] = {}
        gauges: dict[str, float] = {}
        absent: dict[str, str] = {}
        drives = attempt(absent, "disk_wait_us", parse_disk_times, record.stats)
        if drives is not None:
            self._disks.add(drives, counters)
        interfaces = attempt(absent, "net_drops", parse_interfaces, record.stats)
        if interfaces is not None:
            self._interfaces.read(interfaces, counters, gauges, absent)
        balloon = attempt(absent, "balloon_mb", parse_balloon, record.stats)
        if balloon is not None:
            self._memory_used.add_balloon(balloon, counters, gauges)
        if process is not None:
            self._read_pressure(process, counters, absent)
            self._memory_used.add_process(process.pid, counters, gauges, absent)
        hardware = attempt(absent, "cpi", parse_hardware, record.stats, vcpus)
        if hardware is not None:
            self._take_hardware(hardware, counters, gauges)
        self.slow.take(counters, gauges, absent, now_s)

    def _take_hardware(self, hardware: HardwareStats, counters: dict[str, int], gauges: dict[str, float]) -> None:
        if hardware.cycles is not None and hardware.instructions is not None:
            counters["cycles"] = self._cycles.add({"": hardware.cycles})
            counters["instructions"] = self._instructions.add({"": hardware.instructions})
        if hardware.memory_bytes is not None:
            counters["memory_bytes"] = self._memory.add({"": hardware.memory_bytes})
        if hardware.cache_bytes is not None:
            gauges["llc_mb"] = hardware.cache_bytes / (1 << 20)

    def _read_pressure(self, process: QemuProcess, counters: dict[str, int], absent: dict[str, str]) -> None:
        folder = attempt(absent, "psi_io_us", find_guest_group, self._source, process.pid)
        for name in ("cpu", "io", "memory") if folder is not None else ():
            where = f"{folder}/{name}.pressure"
            pressure_us = read_parsed(absent, f"psi_{name}_us", self._source, where, parse_pressure)
            if pressure_us is not None:
                counters[f"psi_{name}_us"] = pressure_us
