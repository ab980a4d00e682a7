"""Stalls of one guest of Xen, read every ten seconds in Dom0: disk requests, blkback's queue, drops of its vifs."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.backends.linux import attempt
from profiler.backends.source import HostSource
from profiler.backends.stalls import CounterGrowth, DiskRequests, HostQueues, InterfaceStalls, SlowCounters
from profiler.backends.xen.io import DEVICES, IoCounters
from profiler.parse.proc import DiskTimes, parse_block_stat, parse_counter
from profiler.parse.text import ParseError
from profiler.parse.xen_dom0 import parse_physical_device

_BLOCK = "/sys/dev/block"


class XenGuestStalls:
    """Reads one domain, reading after reading."""

    def __init__(self, source: HostSource, queues: HostQueues) -> None:
        self.slow = SlowCounters()
        self._source = source
        self._disks, self._full = DiskRequests(), CounterGrowth()
        self._interfaces = InterfaceStalls(queues)

    def read(self, io: IoCounters, shared: Mapping[str, int], now_s: float) -> None:
        """Read its backends; `shared` says how many disks of all guests lie on each device of Dom0."""
        counters: dict[str, int] = {}
        gauges: dict[str, float] = {}
        absent: dict[str, str] = {}
        if "net_bytes" not in io.absent:
            self._interfaces.read(io.interfaces, counters, gauges, absent)
        if io.devices and "disk_bytes" not in io.absent:
            times = attempt(absent, "disk_wait_us", self._disk_times, io.devices, shared)
            if times is not None:
                self._disks.add(times, counters)
            full = attempt(absent, "disk_queue_full", self._times_full, io.devices)
            if full is not None:
                counters["disk_queue_full"] = self._full.add(full)
        self.slow.take(counters, gauges, absent, now_s)

    def _disk_times(self, devices: tuple[str, ...], shared: Mapping[str, int]) -> dict[str, DiskTimes]:
        times: dict[str, DiskTimes] = {}
        for name in devices:
            device = physical_device(self._source, name)
            if shared.get(device, 0) > 1:
                raise ParseError("disk", device, 1, "the disks of several guests lie on this device")
            where = f"{_BLOCK}/{device}/stat"
            times[device] = parse_block_stat(self._source.read(where), where)
        return times

    def _times_full(self, devices: tuple[str, ...]) -> dict[str, int]:
        """How often blkback found a request and had no room for it (drivers/block/xen-blkback: st_oo_req)."""
        paths = [f"{DEVICES}/{name}/statistics/oo_req" for name in devices]
        return {path: parse_counter(self._source.read(path), path) for path in paths}


def physical_device(source: HostSource, name: str) -> str:
    """Major and minor number of the block device of Dom0 that a disk lies on. Raises OSError and ParseError."""
    where = f"{DEVICES}/{name}/physical_device"
    return parse_physical_device(source.read(where), where)
