"""A Dom0 in memory: what xl, xenstore, the kernel and xentrace show of two guests, in the formats of Xen 4.17."""

from __future__ import annotations

import base64
import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from profiler.backends import Counters
from profiler.backends.xen import Mode
from profiler.backends.xen.backend import XenBackend
from profiler.collectors import Collected
from tests.profiler.fake_host import FakeHost

T = TypeVar("T")

MHZ = 2000.0  # of the time stamp counter: 1 ms is 2,000,000
IDLE = 0x7FFF
RUN, WAIT, BLOCK, OFF = range(4)
HEADER = "Name                                        ID   Mem VCPUs\tState\tTime(s)   UUID" + " " * 28
HEADER += "Reason-Code\tSecurity Label\n"
NET_DEV = "Inter-|   Receive    |  Transmit\n face |bytes    packets |bytes    packets\n"


def stamp(seconds: float) -> int:
    """Time stamp at a time on the fake host's monotonic clock."""
    return round(seconds * MHZ * 1e6)


class TraceWriter:
    """Writes a stream as xentrace does: windows of one pCPU each."""

    def __init__(self) -> None:
        self.data = b""

    def window(self, cpu: int, *records: bytes) -> TraceWriter:
        body = b"".join(records)
        self.data += struct.pack("<III", 0x1F003 | 2 << 28, cpu, len(body)) + body
        return self


def record(event: int, seconds: float | None, *words: int) -> bytes:
    header = event | len(words) << 28 | (1 << 31 if seconds is not None else 0)
    time = struct.pack("<Q", stamp(seconds)) if seconds is not None else b""
    return struct.pack("<I", header) + time + struct.pack(f"<{len(words)}I", *words)


def change(seconds: float, domain: int, before: int, after: int, vcpu: int = 0) -> bytes:
    return record(0x21001 | before << 8 | after << 4, seconds, domain << 16 | vcpu)


def lost(seconds: float, number: int) -> bytes:
    return record(0x1F001, seconds, number, 0, 0, 0)


@dataclass
class Guest:
    """One domain; times in seconds, `slots` and `sectors` of its vif and its disk."""

    name: str
    cpu_s: float = 10.0
    memory: int = 192
    state: str = "-b----"
    vcpus: int = 1
    hard: str = "1"
    weight: int = 256
    cap: int = 0
    received: int = 4000
    sent: int = 2000
    tx_slots: int = 30
    rx_slots: int = 20
    sectors: int | None = None
    rate: str | None = None
    backend: int = 0
    upcalls: int = 100
    uuid: str = ""  # "" = one of its number
    vif: str | None = ""  # name of its interface, "" = Xen's own, None = it has none


@dataclass
class XenHost(FakeHost):
    """A Source of a Dom0. Change `guests`, then `refresh`; `trace` waits to be drained."""

    guests: dict[int, Guest] = field(default_factory=dict)
    trace: bytes = b""
    stream: int = 1
    problem: str = ""
    scheduler: str = "credit"
    calls: list[str] = field(default_factory=list)
    hypercalls: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.guests.setdefault(0, Guest("Domain-0", 100.0, 640, "r-----", hard="0"))
        self.files["/proc/xen/capabilities"] = "control_d\n"
        self.values["queues by interface"] = {}
        self.refresh()

    def refresh(self) -> None:
        """Make files and tools' answers of `guests`."""
        keep = {path: text for path, text in self.files.items() if "xen-netback" not in path and "/vbd-" not in path}
        self.files = keep
        self.files["/proc/net/dev"] = NET_DEV
        self.files["/sys/devices/system/cpu/online"] = "0-1\n"
        self.files["/proc/interrupts"] = self._interrupts()
        for domid, guest in self.guests.items():
            if domid:
                self._devices(domid, guest)
        self.values |= {
            "xl info": self._info(),
            "xl list -v": HEADER + "".join(self._listed(domid, guest) for domid, guest in self.guests.items()),
            "xl vcpu-list": self._vcpus(),
            f"xl sched-{self.scheduler}": self._shares(),
            "xenstore-ls -f /local/domain": self._store(),
            "xenstore-ls -f /local/domain/0/backend/vif": self._store(),
        }

    def _info(self) -> str:
        return (
            f"host                   : dom0\nnr_cpus                : 2\nthreads_per_core       : 1\n"
            f"cpu_mhz                : {MHZ:.3f}\ntotal_memory           : 2047\nxen_version            : 4.17.7\n"
            f"xen_scheduler          : {self.scheduler}\n"
        )

    @staticmethod
    def _listed(domid: int, guest: Guest) -> str:
        uuid = guest.uuid or f"00000000-0000-0000-0000-{domid:012x}"
        return (
            f"{guest.name:<40} {domid:5d} {guest.memory:5d} {guest.vcpus:5d}     {guest.state}  {guest.cpu_s:8.1f}"
            f" {uuid} {'-':>8} {'-':>16}\n"
        )

    def _vcpus(self) -> str:
        text = "Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)\n"
        for domid, guest in self.guests.items():
            for vcpu in range(guest.vcpus):
                state = guest.state[:2] + "-"
                text += (
                    f"{guest.name:<32} {domid:5d} {vcpu:5d} {1:5d}   {state} {guest.cpu_s:9.1f}  {guest.hard} / all\n"
                )
        return text

    def _shares(self) -> str:
        text = "Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us\n"
        text += "Name                                ID Weight  Cap\n"
        for domid, guest in self.guests.items():
            text += f"{guest.name:<33} {domid:4d} {guest.weight:6d} {guest.cap:4d}\n"
        return text

    def _interrupts(self) -> str:
        text = "           CPU0       \n 24:      61384  xen-percpu    -virq      timer0\n"
        text += " 29:       1009   xen-dyn    -event     xenbus\n"
        for domid, guest in self.guests.items():
            text += f" {40 + domid}:     {guest.upcalls:6d}  xen-dyn-lateeoi    -event     vif{domid}.0-q0-tx\n"
        return text + "NMI:          0   Non-maskable interrupts\nERR:          0\n"

    def _devices(self, domid: int, guest: Guest) -> None:
        if guest.vif is not None and guest.backend == 0:
            self._interface(guest.vif or f"vif{domid}.0", guest)
        if guest.sectors is not None:
            base = f"/sys/devices/vbd-{domid}-51712/statistics"
            self.files |= {f"{base}/rd_sect": f"{guest.sectors}\n", f"{base}/wr_sect": "8\n"}

    def _interface(self, name: str, guest: Guest) -> None:
        self.files["/proc/net/dev"] = (
            f"{self.files['/proc/net/dev']}{name}: {guest.received} 5 0 0 0 0 0 0 {guest.sent} 4 0 0 0 0 0 0\n"
        )
        self.files[f"/sys/kernel/debug/xen-netback/{name}/io_ring_q0"] = (
            f"Queue 0\nTX: nr_ents 256\nreq prod {guest.tx_slots} (0) cons {guest.tx_slots} (0) event 1 (1)\n"
            f"rsp prod 1 (base) pvt 1 (0) event 2 (1)\n\nRX: nr_ents 256\n"
            f"req prod {guest.rx_slots + 9} (9) cons {guest.rx_slots} (0) event 1 (-8)\n"
        )

    def _store(self) -> str:
        text = '/local/domain/0/name = "Domain-0"\n'
        for domid, guest in self.guests.items():
            if not domid:
                continue
            where = f"/local/domain/{domid}/device"
            back = f"/local/domain/{guest.backend}/backend"
            if guest.vif is not None:
                text += f'{where}/vif/0/backend = "{back}/vif/{domid}/0"\n'
                text += f'{where}/vif/0/backend-id = "{guest.backend}"\n{back}/vif/{domid}/0/handle = "0"\n'
            if guest.vif:
                text += f'{back}/vif/{domid}/0/vifname = "{guest.vif}"\n'
            if guest.sectors is not None:
                text += f'{where}/vbd/51712/backend = "/local/domain/0/backend/vbd/{domid}/51712"\n'
            if guest.rate:
                text += f'{back}/vif/{domid}/0/rate = "{guest.rate}"\n'
        return text

    def value(self, key: str, read: Callable[[], T]) -> T:
        self.calls.append(key)
        if key == "xentrace" and key not in self.values:
            data, self.trace = self.trace, b""
            piece: Any = {"stream": self.stream, "data": base64.b64encode(data).decode(), "problem": self.problem}
            return piece  # type: ignore[no-any-return]
        if key not in self.values:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return super().value(key, read)


def two_guests() -> XenHost:
    """A Dom0 on pCPU 0 and two guests that share pCPU 1; the first one has a disk and a limited interface."""
    web = Guest("web shop", 20.0, sectors=800, rate="62500,50000", weight=512, cap=50, state="r-----")
    return XenHost(guests={0: Guest("Domain-0", 100.0, 640, "r-----", hard="0"), 1: web, 2: Guest("vm2", hard="0-1")})


def first_second(begin: float) -> bytes:
    """A stream of one second: Dom0 runs all of it on pCPU 0; on pCPU 1 the guests take turns of 0.1 s."""
    turns = TraceWriter().window(0, change(begin, IDLE, RUN, WAIT), change(begin, 0, WAIT, RUN))
    records: list[bytes] = []
    for turn in range(10):
        now, (comes, goes) = begin + turn / 10, ((1, 2) if turn % 2 == 0 else (2, 1))
        records += [change(now, goes, RUN if turn else BLOCK, WAIT)] if goes == 1 or turn else []
        records += [change(now, comes, WAIT, RUN)]
    return turns.window(1, *records).data


def turns(begin: float, seconds: int) -> bytes:
    """Seconds of a stream in which the guests take turns of 0.1 s on pCPU 1; Dom0 runs on pCPU 0."""
    records: list[bytes] = []
    for turn in range(10 * seconds):
        now, (comes, goes) = begin + turn / 10, ((1, 2) if turn % 2 == 0 else (2, 1))
        records += [change(now, goes, RUN, WAIT), change(now, comes, WAIT, RUN)]
    return TraceWriter().window(0, record(0x21002, begin, 0)).window(1, *records).data


def backend_on(host: XenHost, trace: Mode = "runstate") -> XenBackend:
    """A backend whose trace began one second before."""
    host.trace = first_second(host.now[1] - 1.0)
    return XenBackend(host, "h1", trace)


def a_second_later(host: XenHost, seconds: int = 1) -> None:
    host.trace = turns(host.now[1], seconds)
    host.later(seconds)


def two_readings(host: XenHost, trace: Mode = "runstate") -> tuple[Counters, Counters]:
    backend = backend_on(host, trace)
    first = backend.read_counters()
    a_second_later(host)
    return first, backend.read_counters()


def values_of(collected: Collected, instance: str | None, scope: str = "instance") -> dict[str, float]:
    return {s.metric: s.value for s in collected.samples if s.instance == instance and s.scope == scope}
