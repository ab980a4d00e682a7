"""One guest of libvirt: QEMU's process and threads, control groups, isolation settings, stalls; read-only."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.backends.linux import attempt, or_none, read_parsed
from profiler.backends.lxc.control_groups import V1_DEFAULT_SHARES, V2_DEFAULT_WEIGHT, find_mounts, group_number
from profiler.backends.sources import HostSource
from profiler.backends.stalls import CounterGrowth, DiskRequests, GuestMemory, HostQueues, InterfaceStalls, SlowCounters
from profiler.names import NO_CAP_PERCENT, NO_RATE_MBIT, real_limit
from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT, IsolationSettings, NetworkSettings, Pinning, parse_cpus
from profiler.parse.cgroup import parse_balloon, parse_group_of_task
from profiler.parse.libvirt import (
    Bandwidth,
    DomainDescription,
    DomainRecord,
    HardwareStats,
    parse_disk_times,
    parse_domain,
    parse_hardware,
    parse_interfaces,
    scheduler_number,
)
from profiler.parse.proc import parse_counter, parse_pressure, parse_statm
from profiler.parse.text import ParseError

# Finds the QEMU process and threads of a domain, and again when they change.

STATE = "/run/libvirt/qemu"  # of libvirtd and of virtqemud alike
_SEARCH_AGAIN = 30  # readings; a search looks at every process of the host
_RSS_AGAIN = 10  # readings; memory changes slowly
_PAGES_PER_MB = (1 << 20) // os.sysconf("SC_PAGE_SIZE")
_NAME_AGAIN = 30  # readings; a thread gets its name a moment after it is made
_NOT_FOUND = f"its QEMU process is neither in {STATE} nor visible in /proc (run as root, in the host's PID namespace)"
# QEMU's names for its threads with debug-threads=on, which libvirt always sets; one thread runs all vCPUs under TCG
# when it is not multi-threaded (util/qemu-thread-posix.c, accel/*/…-accel-ops.c)
_VCPU = re.compile(r"(CPU \d{1,5}|ALL CPUs)/[A-Z]{2,6}\Z")
_UUID = re.compile(r"\0-uuid\0([0-9a-f-]{36})\0")
_START_TIME = 19  # field of /proc/<pid>/stat after the name in brackets (proc(5): 22nd of all)


class HiddenError(Exception):
    """A domain runs and its threads cannot be seen; the message says why."""


@dataclass(slots=True)
class QemuProcess:
    """A domain's QEMU process: vCPU threads by their lasting names, all others with their names, by number."""

    domain: int
    pid: int
    started: str
    listed: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    vcpus: dict[int, str] = field(default_factory=dict)
    others: dict[int, str] = field(default_factory=dict)
    rss_mb: float | None = None


class DomainProcesses:
    """Finds and keeps the processes of domains, by uuid."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._known: dict[str, QemuProcess] = {}
        self._unfound: dict[str, tuple[int, int]] = {}  # uuid → domain and the reading in which the search failed
        self._searched: Mapping[str, int] | None = None
        self._readings = 0

    def begin(self, alive: set[str]) -> None:
        """A reading begins in which these domains are alive."""
        self._readings += 1
        self._searched = None
        self._known = {uuid: process for uuid, process in self._known.items() if uuid in alive}
        self._unfound = {uuid: when for uuid, when in self._unfound.items() if uuid in alive}

    def process(self, domain: DomainRecord) -> QemuProcess:
        """The process with its threads of now; OSError when it was known and is gone, HiddenError when it is not seen.

        Costs one listing of a small folder as long as the threads stay the same.
        """
        process = self._known.get(domain.uuid)
        if process is None or process.domain != domain.id:
            process = self._find(domain)
        try:
            self._list(process)
        except (OSError, ParseError):
            self._known.pop(domain.uuid, None)
            raise
        self._known[domain.uuid] = process
        if not process.vcpus:
            raise HiddenError(f"no thread of QEMU process {process.pid} is named CPU n/KVM or CPU n/TCG")
        return process

    def rss_mb(self, process: QemuProcess, absent: dict[str, str]) -> float | None:
        """Resident memory of QEMU, not older than ten readings; None with the reason in `absent`."""
        if process.rss_mb is None or (self._readings + process.pid) % _RSS_AGAIN == 0:
            where = f"/proc/{process.pid}/statm"
            pages = read_parsed(absent, "rss_mb", self._source, where, parse_statm)
            process.rss_mb = pages / _PAGES_PER_MB if pages is not None else None
        return process.rss_mb

    def lives(self, process: QemuProcess) -> bool:
        """Whether its threads are still there."""
        return any(self._thread_name(tid) for tid in process.vcpus)

    def _list(self, process: QemuProcess) -> None:
        listed = self._source.names(f"/proc/{process.pid}/task")
        if listed != process.listed:
            # only now can the number belong to another process, which cannot have the very same threads
            if self._start_time(process.pid) != process.started:
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        elif process.vcpus and (self._readings + process.pid) % _NAME_AGAIN:
            return
        before = process.names
        tids = [int(name) for name in listed if name.isdecimal() and name.isascii()]
        process.listed = listed
        process.names = {tid: self._thread_name(tid) or before.get(tid, "") for tid in tids}
        vcpus = {tid: match[1] for tid, name in process.names.items() if (match := _VCPU.match(name))}
        process.vcpus = vcpus
        process.others = {tid: name for tid, name in process.names.items() if tid not in vcpus}

    def _thread_name(self, tid: int) -> str:
        return (or_none(self._source.read, f"/proc/{tid}/comm") or "").strip()

    def _find(self, domain: DomainRecord) -> QemuProcess:
        unfound, reading = self._unfound.get(domain.uuid, (-1, 0))
        if unfound == domain.id and self._readings - reading < _SEARCH_AGAIN:
            raise HiddenError(_NOT_FOUND)
        pid = self._by_file(domain) or self._by_search(domain.uuid)
        try:
            if pid is not None:
                return QemuProcess(domain.id, pid, self._start_time(pid))
        except (OSError, ParseError):
            pass
        self._unfound[domain.uuid] = (domain.id, self._readings)
        raise HiddenError(_NOT_FOUND)

    def _by_file(self, domain: DomainRecord) -> int | None:
        """By libvirt's pid file, if that process is this domain's QEMU."""
        if "/" in domain.name or "\0" in domain.name:
            return None
        where = f"{STATE}/{domain.name}.pid"
        pid = read_parsed({}, "", self._source, where, parse_counter)
        command = or_none(self._source.read, f"/proc/{pid}/cmdline") if pid is not None else None
        return pid if command is not None and _uuid(command) == domain.uuid else None

    def _by_search(self, uuid: str) -> int | None:
        if self._searched is None:
            # by `value`: a recording keeps the result, and no command lines of other programs
            self._searched = or_none(self._source.value, "libvirt processes", search_processes) or {}
        pid = self._searched.get(uuid)
        return pid if type(pid) is int else None

    def _start_time(self, pid: int) -> str:
        where = f"/proc/{pid}/stat"
        fields = self._source.read(where).rpartition(")")[2].split()
        if len(fields) <= _START_TIME:
            raise ParseError("process stat", where, 1, f"more than {_START_TIME} fields expected")
        return fields[_START_TIME]


def _uuid(command: str) -> str | None:
    """The uuid that libvirt gave a QEMU on its command line."""
    match = _UUID.search(command)
    return match[1] if match else None


def search_processes(folder: Path = Path("/proc")) -> dict[str, int]:
    """uuid → process of every QEMU that libvirt started and that is visible here."""
    processes: dict[str, int] = {}
    for pid in filter(str.isdecimal, os.listdir(folder)):  # noqa: PTH208 - no Path object for each of very many
        try:
            command = (folder / pid / "cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # ended meanwhile, or not ours to see
        uuid = _uuid(command)
        if uuid is not None:
            processes[uuid] = int(pid)
    return processes


# Control groups of libvirt's guests: those of their vCPUs in the CPU scheduler, and those of whole guests.


def find_scheduling_groups(source: HostSource, threads: Mapping[str, Iterable[int]]) -> dict[int, str]:
    """Instance by number of group, from the vCPU threads of each instance; groups that instances share are left out.

    A guest for which libvirt makes no groups has none here.
    """
    mounts = or_none(find_mounts, source) or {}
    owners: dict[int, set[str]] = {}
    for name, tids in threads.items():
        for tid in tids:
            where = f"/proc/{tid}/cgroup"
            text = or_none(source.read, where)
            path = None if text is None else parse_group_of_task(text, "cpu" if "cpu" in mounts else "")
            folder = _controlled(source, mounts, path) if path else None
            number = or_none(group_number, source, folder) if folder else None
            if number is not None:
                owners.setdefault(number, set()).add(name)
    return {number: next(iter(names)) for number, names in owners.items() if len(names) == 1}


def find_guest_group(source: HostSource, pid: int) -> str:
    """The folder of the group of version 2 that holds all of a guest's QEMU, whose threads are in groups below it.

    libvirt names it `machine-qemu...scope`, or without systemd `qemu-1-shop.libvirt-qemu` (virCgroup). Raises OSError
    where there is none: then its pressure cannot be separated from that of others.
    """
    mounts, where = find_mounts(source), f"/proc/{pid}/cgroup"
    path = parse_group_of_task(source.read(where), "")
    steps = path.strip("/").split("/") if path is not None and "unified" in mounts else []
    depth = next((at for at, step in enumerate(steps, start=1) if "qemu" in step), None)
    if depth is None:
        raise OSError(errno.ENODATA, "it has no control group of version 2 of its own")
    return "/".join((mounts["unified"], *steps[:depth]))


def _controlled(source: HostSource, mounts: Mapping[str, str], path: str) -> str | None:
    """The folder of the group that the scheduler uses: in version 2 the nearest one with the cpu controller."""
    if "cpu" in mounts:
        return f"{mounts['cpu']}/{path.strip('/')}" if path != "/" else None
    while path not in ("", "/") and "unified" in mounts:
        folder = f"{mounts['unified']}/{path.strip('/')}"
        if or_none(source.read, f"{folder}/cpu.weight") is not None:
            return folder
        path = path.rpartition("/")[0]
    return None


# Isolation settings of a domain, from its live XML and its scheduler parameters; read-only.

_MBIT = 8 / 1000  # of libvirt's kilobytes per second: virNetDevBandwidthSet hands them to tc as kbps, 1000 bytes each


def xml_key(record: DomainRecord) -> str:
    """The key of a domain's XML in recordings."""
    return f"libvirt xml {record.uuid}"


def read_settings(source: HostSource, connection: LibvirtConnection, record: DomainRecord) -> IsolationSettings:
    """The settings of one domain; one that cannot be read is None."""
    key = xml_key(record)
    xml = or_none(source.value, key, lambda: connection.xml(record.uuid))
    described = or_none(parse_domain, xml, key) if isinstance(xml, str) else None
    parameters = or_none(source.value, f"libvirt scheduler {record.uuid}", lambda: connection.scheduler(record.uuid))
    return IsolationSettings(
        pinning=pinning(described, _online(source)) if described else None,
        cap_percent=cap_percent(parameters, described.vcpus) if described else None,
        weight=_weight(source, parameters),
        network=network(described.bandwidths) if described else None,
        disk_limit_mb_s=disk_limit_mb_s(described.disk_limits) if described else None,
    )


def pinning(described: DomainDescription, cpus: Collection[int] = ()) -> Pinning | None:
    """Which pCPUs each vCPU may use; None where none is pinned. An unpinned one beside pinned ones may use any, and so
    may one that is pinned to all `cpus` of the host, as libvirt leaves it whose pins are taken back."""
    every = frozenset(cpus)
    pins = tuple(() if every and every <= frozenset(pin) else pin for pin in described.pins)
    return Pinning(pins) if any(pins) else None


def _online(source: HostSource) -> Collection[int]:
    """The host's CPUs; () where it does not say."""
    text = or_none(source.read, "/sys/devices/system/cpu/online")
    try:
        return parse_cpus(text.strip()) if text else ()
    except ValueError:
        return ()


def cap_percent(parameters: object, vcpus: int) -> float | None:
    """The lower of two limits: the quotas of all vCPUs together, and the quota of the whole domain."""
    caps: list[float] = []
    for scope, times in (("vcpu", vcpus), ("global", 1)):
        quota = scheduler_number(parameters, f"{scope}_quota")
        period = scheduler_number(parameters, f"{scope}_period")
        if quota is not None and period is not None:
            caps.append(100.0 * times * quota / period)
    return real_limit(min(caps, default=None), NO_CAP_PERCENT)


def _weight(source: HostSource, parameters: object) -> int | None:
    """cpu_shares on Xen's scale: libvirt returns cpu.shares of version 1, cpu.weight of version 2, unchanged."""
    shares = scheduler_number(parameters, "cpu_shares")
    mounts = or_none(find_mounts, source)
    if shares is None or mounts is None:
        return None
    default = V1_DEFAULT_SHARES if "cpu" in mounts else V2_DEFAULT_WEIGHT
    return max(1, min(MAX_WEIGHT, round(shares * DEFAULT_WEIGHT / default)))


def disk_limit_mb_s(limits: tuple[int | None, ...]) -> float | None:
    """The limits of all disks together; None where one of them has no limit, for then the instance has none."""
    known = [limit for limit in limits if limit is not None]
    return sum(known) / 1e6 if known and len(known) == len(limits) else None


def network(bandwidths: tuple[Bandwidth | None, ...]) -> NetworkSettings | None:
    """The limits of all interfaces together; None where one of them has no limit, for then the instance has none."""
    limits = [
        limit
        for limit in bandwidths
        if limit is not None and real_limit(limit.average * _MBIT, NO_RATE_MBIT) is not None
    ]
    if not limits or len(limits) < len(bandwidths):
        return None
    rate = sum(limit.average for limit in limits) * _MBIT
    ceil = sum(max(limit.average, limit.peak or 0) for limit in limits) * _MBIT
    return NetworkSettings("shared", rate, ceil) if ceil > rate else NetworkSettings("dedicated", rate)


# Stalls of one guest, read every ten seconds: its disk requests, drops of its taps, pressure, memory, hardware
# counters.


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
