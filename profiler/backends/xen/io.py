"""I/O of guests in Dom0: their devices in xenstore, bytes of interfaces, slots of netback's rings, sectors of disks."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from profiler.backends.linux import attempt, read_interfaces
from profiler.backends.sources import HostSource
from profiler.metrics import PAGE_BYTES
from profiler.parse.proc import InterfaceBytes, parse_counter
from profiler.parse.xen import device_of, interface_of, parse_interrupts, parse_netback_rings, parse_number

# Devices of domains in xenstore, and which of them this Dom0's kernel drives and counts. No I/O.

_COUNTERS = {"vif": "net_bytes", "vbd": "disk_bytes"}


@dataclass(slots=True)
class Attached:
    """Devices of one domain: numbers of vifs and disks that the kernel should count, and why it does not count others.

    `elsewhere` has these reasons by counter: net_bytes, disk_bytes. CD drives are left out: guests hardly read them,
    and QEMU serves them uncounted.
    """

    vifs: set[int] = field(default_factory=set)
    disks: set[int] = field(default_factory=set)
    elsewhere: dict[str, str] = field(default_factory=dict)

    def missing(self, io: IoCounters) -> dict[str, str]:
        """Why counters do not hold all of this domain's devices, by counter."""
        reasons = {}
        for counter, kind, attached, counted in (
            ("net_bytes", "interface", self.vifs, io.vifs),
            ("disk_bytes", "disk", self.disks, io.disks),
        ):
            if attached - counted:
                reasons[counter] = f"{kind} {min(attached - counted)} is in xenstore and cannot be found in Dom0"
        return reasons | self.elsewhere


def attached_devices(nodes: Mapping[str, str]) -> dict[int, Attached]:
    """Devices by domain, from all of xenstore."""
    by_domain: dict[int, Attached] = {}
    for path, backend in nodes.items():
        part = path.split("/")  # /local/domain/3/device/vif/0/backend
        if len(part) != 8 or part[4] != "device" or part[5] not in _COUNTERS or part[7] != "backend":
            continue
        domain, number = parse_number(part[3]), parse_number(part[6])
        if domain is None or number is None or nodes.get(f"{path.removesuffix('backend')}device-type") == "cdrom":
            continue
        devices = by_domain.setdefault(domain, Attached())
        why = _why_not(part[5], number, backend)
        if why:
            devices.elsewhere[_COUNTERS[part[5]]] = why
        else:
            (devices.vifs if part[5] == "vif" else devices.disks).add(number)
    return by_domain


def _why_not(kind: str, number: int, backend: str) -> str:
    """Why this Dom0's kernel does not count a device; empty if it does."""
    part = backend.split("/")  # /local/domain/0/backend/vif/3/0
    if len(part) < 6 or part[4] != "backend":
        return f"{kind} {number} has no backend that is known"
    if part[3] != "0":
        return f"{kind} {number} is driven by domain {part[3][:5]}, whose counts only that domain can read"
    if part[5] != kind:
        return f"{kind} {number} is served by {part[5][:20]} (QEMU, not the kernel), which counts nothing in Dom0"
    return ""


def renamed_vifs(nodes: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Domain and number of vifs whose interface has a name of its own (`vifname=`), by that name."""
    by_name: dict[str, tuple[int, int]] = {}
    for path, name in nodes.items():
        part = path.split("/")  # /local/domain/0/backend/vif/3/0/vifname
        if len(part) == 9 and part[3:6] == ["0", "backend", "vif"] and part[8] == "vifname":
            domain, number = parse_number(part[6]), parse_number(part[7])
            if domain is not None and number is not None:
                by_name[name] = domain, number
    return by_name


DEVICES = "/sys/devices"  # backends hang below it without a parent; /sys/bus/xen-backend/devices only links there
RINGS = "/sys/kernel/debug/xen-netback"
SECTOR_BYTES = 512  # of Linux and of blkback's counts, whatever the disk has
_MOST_QUEUES = 256
_RECOUNT = 30  # readings after which queues are counted anew; a guest that reconnects may have another number
_RANGE = 1 << 32
OTHERS = -1  # key for every domain without a backend in Dom0


@dataclass(frozen=True, slots=True)
class IoCounters:
    """Cumulative I/O of one domain, as seen from its backends in Dom0; None has its reason in `absent`.

    `vifs` and `disks` are the numbers of the devices that were found, `interfaces` and `devices` what Dom0 calls them.
    """

    net_bytes: int | None = 0
    disk_bytes: int | None = 0
    pages: int | None = 0
    absent: Mapping[str, str] = field(default_factory=dict)
    vifs: frozenset[int] = frozenset()
    disks: frozenset[int] = frozenset()
    interfaces: Mapping[str, InterfaceBytes] = field(default_factory=dict)
    devices: tuple[str, ...] = ()


class Index32:
    """Counters of 32 bits that wrap, by key; a step of more than half the range is taken as a new start from 0."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], int] = {}

    def step(self, key: tuple[str, ...], now: int) -> int:
        """The growth since the last call; the whole count at the first one."""
        step = (now - self._last.get(key, 0)) % _RANGE
        if key in self._last and step >= _RANGE // 2:  # a guest that reconnects its ring counts from 0 again
            step = now
        self._last[key] = now
        return step

    def keep(self, names: Collection[str]) -> None:
        """Forget keys that begin with none of these names."""
        for key in [key for key in self._last if key[0] not in names]:
            del self._last[key]


class IoReader:
    """Reads the backends of all domains, reading after reading."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._rings = Index32()
        self._slots: dict[int, int] = {}
        self._queues: dict[str, int] = {}  # how many each vif has
        self._readings = 0
        self.renamed: Mapping[str, tuple[int, int]] = {}  # domain and number of vifs with a name of their own
        self._upcalls = Index32()
        self._events = 0

    def read(self) -> dict[int, IoCounters]:
        """Counters by domain of every domain that has a backend in Dom0, and under `OTHERS` those of any other."""
        absent: dict[str, str] = {}
        if self._readings % _RECOUNT == 0:
            self._queues.clear()
        self._readings += 1
        interfaces = attempt(absent, "net_bytes", read_interfaces, self._source) or {}
        disks = attempt(absent, "disk_bytes", self._disks) or {}
        vifs: dict[int, dict[str, int]] = {}
        for name in interfaces:
            if key := self.renamed.get(name) or interface_of(name):
                vifs.setdefault(key[0], {})[name] = key[1]
        if "net_bytes" not in absent:
            self._rings.keep([name for names in vifs.values() for name in names])
            self._slots = {domain: slots for domain, slots in self._slots.items() if domain in {*vifs, *disks}}
        return {
            domain: self._domain(domain, vifs.get(domain, {}), interfaces, disks.get(domain, {}), absent)
            for domain in {OTHERS, *vifs, *disks}
        }

    def _domain(
        self,
        domain: int,
        vifs: Mapping[str, int],
        interfaces: Mapping[str, InterfaceBytes],
        disks: Mapping[str, int],
        problems: Mapping[str, str],
    ) -> IoCounters:
        absent = dict(problems)
        net = None if "net_bytes" in absent else sum(interfaces[name].received + interfaces[name].sent for name in vifs)
        disk = None if "disk_bytes" in absent else attempt(absent, "disk_bytes", self._disk_bytes, disks)
        slots = None if net is None else attempt(absent, "pages", self._ring_slots, domain, vifs)
        if "pages" in absent:
            absent["pages"] += f"; {RINGS} counts ring slots (mount -t debugfs debugfs /sys/kernel/debug, as root)"
        pages = None if slots is None or disk is None else slots + disk // PAGE_BYTES
        named = {name: interfaces[name] for name in vifs}
        return IoCounters(
            net, disk, pages, absent, frozenset(vifs.values()), frozenset(disks.values()), named, tuple(disks)
        )

    def _disks(self) -> dict[int, dict[str, int]]:
        by_domain: dict[int, dict[str, int]] = {}
        for name in self._source.names(DEVICES):
            device = device_of(name)
            if device and device[0] == "vbd":
                by_domain.setdefault(device[1], {})[name] = device[2]
        return by_domain

    def _disk_bytes(self, devices: Iterable[str]) -> int:
        sectors = 0
        for device in devices:
            for name in ("rd_sect", "wr_sect"):
                where = f"{DEVICES}/{device}/statistics/{name}"
                sectors += parse_counter(self._source.read(where), where)
        return sectors * SECTOR_BYTES

    def _ring_slots(self, domain: int, vifs: Iterable[str]) -> int:
        """Slots that netback took from all queues of these vifs: each is a page granted for a packet or a part of one.

        The emulated card of a guest without Xen drivers (`-emu`) has no rings.
        """
        for vif in vifs:
            if vif.endswith("-emu"):
                continue
            queue = 0
            while queue < self._queues.get(vif, _MOST_QUEUES):
                where = f"{RINGS}/{vif}/io_ring_q{queue}"
                try:
                    text = self._source.read(where)
                except OSError as error:
                    known = self._queues.pop(vif, None)
                    if queue and known is None and error.errno == errno.ENOENT:
                        break
                    raise
                for side, consumed in enumerate(parse_netback_rings(text, where)):
                    step = self._rings.step((vif, str(queue), str(side)), consumed)
                    self._slots[domain] = self._slots.get(domain, 0) + step
                queue += 1
            self._queues[vif] = queue
        return self._slots.get(domain, 0)

    def events(self) -> int:
        """Upcalls of event channels between Dom0 and other domains since Dom0 booted, those of ended ones included.

        OSError or ParseError when /proc/interrupts cannot be read.
        """
        where = "/proc/interrupts"
        text = self._source.read(where)
        interrupts = {(number, line.name): line for number, line in parse_interrupts(text, where).items()}
        for key, line in interrupts.items():
            if line.interdomain:
                self._events += self._upcalls.step(key, line.count % _RANGE)
        self._upcalls.keep([number for number, _ in interrupts])
        return self._events
