"""Counters of the processor: cycles and instructions by perf_event_open(2), caches and memory bandwidth by resctrl."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.backends.linux import or_none, read_parsed
from profiler.backends.sources import HostSource
from profiler.backends.stalls import CounterGrowth
from profiler.observed import parse_cpus
from profiler.parse.proc import parse_monitor, parse_tasks

# Cycles and instructions by perf_event_open(2), of threads and of control groups, without a library for it.

# include/uapi/linux/perf_event.h
HARDWARE, SOFTWARE = 0, 1
CYCLES, INSTRUCTIONS = 0, 1  # of HARDWARE
_NUMBERS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331}  # of the system call
_ATTR = struct.Struct("=IIQQQQQIIQ")  # perf_event_attr up to PERF_ATTR_SIZE_VER0: 64 bytes
_READ_FORMAT = 1 | 2 | 8  # times enabled and running, and all counters of a group in one read
_GROUP_FLAG, _CLOSE_ON_EXEC = 4, 8  # PERF_FLAG_PID_CGROUP, PERF_FLAG_FD_CLOEXEC
_HEAD = struct.Struct("=QQQ")
_REASONS = {
    errno.ENOENT: "this machine shows no hardware counters (a virtual machine without a PMU?)",
    errno.EOPNOTSUPP: "this machine shows no hardware counters (a virtual machine without a PMU?)",
    errno.EACCES: "permission denied (run as root, or with CAP_PERFMON)",
    errno.EPERM: "permission denied (run as root, or with CAP_PERFMON)",
    errno.ENOSYS: "this kernel has no perf events (CONFIG_PERF_EVENTS)",
    errno.EBUSY: "another program holds the hardware counters",
    errno.EINVAL: "this kernel counts no control groups (CONFIG_CGROUP_PERF)",
    errno.EBADF: "the group is in no tree of control groups that perf events know",
    errno.EMFILE: "too many files are open (ulimit -n)",
}


class PerfCounters:
    """A few events of one thread, or of one control group on all CPUs, counted from now on.

    Raises OSError, whose text says what to do.
    """

    def __init__(self, events: Sequence[tuple[int, int]], *, thread: int | None = None, group: str = "") -> None:
        """`events` are pairs of type and number in the kernel's header."""
        self._events = len(events)
        self._files: list[int] = []  # of all, leaders too
        self._leaders: list[int] = []
        try:
            if thread is not None:
                self._open(events, thread, -1, 0)
            else:
                folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    for cpu in online_cpus():
                        self._open(events, folder, cpu, _GROUP_FLAG)
                finally:
                    os.close(folder)
        except OSError:
            self.close()
            raise

    def read(self) -> tuple[int, ...]:
        """Each event's count so far, over all CPUs; of events that took turns, scaled up to the whole time.

        Raises OSError where the kernel stopped counting.
        """
        sums = [0] * self._events
        for leader in self._leaders:
            data = os.read(leader, _HEAD.size + 8 * self._events)
            if len(data) < _HEAD.size + 8 * self._events:  # the kernel's sign that it counts no more
                raise OSError(errno.ENODATA, "the kernel counts them no more")
            _, enabled, running = _HEAD.unpack_from(data)
            values = struct.unpack_from(f"={self._events}Q", data, _HEAD.size)
            for at, value in enumerate(values):
                sums[at] += value * enabled // running if running else 0
        return tuple(sums)

    def close(self) -> None:
        """Stop counting; harmless when called twice."""
        for file in self._files:
            os.close(file)
        self._files.clear()
        self._leaders.clear()

    def _open(self, events: Iterable[tuple[int, int]], target: int, cpu: int, flags: int) -> None:
        leader = -1
        for kind, number in events:
            file = _perf_event_open(kind, number, target, cpu, leader, flags)
            self._files.append(file)
            leader = file if leader < 0 else leader
        self._leaders.append(leader)


def online_cpus() -> tuple[int, ...]:
    """CPUs that are on. Raises OSError."""
    return parse_cpus(Path("/sys/devices/system/cpu/online").read_text("ascii").strip())


def _perf_event_open(kind: int, number: int, target: int, cpu: int, leader: int, flags: int) -> int:
    call = _NUMBERS.get(platform.machine())
    if call is None:
        raise OSError(errno.ENOSYS, f"perf events are not known here on {platform.machine()}")
    attributes = ctypes.create_string_buffer(_ATTR.pack(kind, _ATTR.size, number, 0, 0, _READ_FORMAT, 0, 0, 0, 0))
    kernel = ctypes.CDLL(None, use_errno=True)
    file = kernel.syscall(
        ctypes.c_long(call), attributes, ctypes.c_int(target), ctypes.c_int(cpu), ctypes.c_int(leader),
        ctypes.c_ulong(flags | _CLOSE_ON_EXEC),
    )  # fmt: skip
    if file < 0:
        failure = ctypes.get_errno()
        if flags & _GROUP_FLAG and failure == errno.ENOENT:
            failure = errno.EBADF  # ENOENT also means a group in the tree of another controller
        raise OSError(failure, _REASONS.get(failure, os.strerror(failure)))
    return int(file)


# Last-level cache and memory bandwidth of instances, by the monitoring groups that others made in resctrl; read-only.
#
# libvirt makes a group for each `<monitor>` of a guest's `<cachetune>`, container runtimes one for a container whose
# `intelRdt` asks for monitoring. Their names do not matter here: the threads in a group say whose it is.

RESCTRL = "/sys/fs/resctrl"
_NOT_GROUPS = frozenset({"info", "mon_groups", "mon_data"})
_ENOUGH = 0.9  # of an instance's threads that must be in its groups: new threads may come between two files


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """What resctrl counts for one instance: bytes in the last-level caches now, bytes moved to and from memory so far.

    None where the processor does not count it.
    """

    cache_bytes: int | None
    memory_bytes: int | None


class ResctrlReader:
    """Reads the groups of instances, reading after reading."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._growths: dict[str, CounterGrowth] = {}

    def is_there(self) -> bool:
        """Whether resctrl is mounted and monitors."""
        return or_none(self._source.names, f"{RESCTRL}/info/L3_MON") is not None

    def read(self, threads: Mapping[str, Collection[int]], absent: dict[str, str]) -> dict[str, CacheCounters]:
        """Counters by instance, from the threads that each of them has; `absent` says why one has none."""
        groups = self._groups()
        counters: dict[str, CacheCounters] = {}
        owners = {thread: name for name, tids in threads.items() for thread in tids}
        for name, tids in threads.items():
            folders = _own(groups, frozenset(tids), owners)
            if not folders:
                absent[name] = "no monitoring group of resctrl holds its threads and no others"
                continue
            cache = [self._sum(folder, "llc_occupancy") for folder in folders]
            memory = [self._memory(folder) for folder in folders]
            counters[name] = CacheCounters(
                sum(value or 0 for value in cache) if None not in cache else None,
                sum(value or 0 for value in memory) if None not in memory else None,
            )
        self._growths = {folder: growth for folder, growth in self._growths.items() if folder in groups}
        return counters

    def _groups(self) -> dict[str, frozenset[int]]:
        """Threads by folder of a group; a control group holds those of its monitoring groups as well."""
        groups: dict[str, frozenset[int]] = {}
        for folder in self._folders():
            threads = read_parsed({}, folder, self._source, f"{folder}/tasks", parse_tasks)
            if threads:
                groups[folder] = threads
        return groups

    def _folders(self) -> Iterator[str]:
        """Monitoring groups, and control groups except the root, which holds every task that is in no other."""
        controls = [name for name in self._names(RESCTRL) if name not in _NOT_GROUPS]
        for above in (RESCTRL, *(f"{RESCTRL}/{name}" for name in controls)):
            if above != RESCTRL:
                yield above
            yield from (f"{above}/mon_groups/{name}" for name in self._names(f"{above}/mon_groups"))

    def _names(self, folder: str) -> list[str]:
        return or_none(self._source.names, folder) or []

    def _sum(self, folder: str, event: str) -> int | None:
        """Of all domains (caches) of the host; None where one has no value."""
        values = self._values(folder, event)
        return None if values is None else sum(values.values())

    def _memory(self, folder: str) -> int | None:
        values = self._values(folder, "mbm_total_bytes")
        if values is None:
            return None
        return self._growths.setdefault(folder, CounterGrowth()).add(values)

    def _values(self, folder: str, event: str) -> dict[str, int] | None:
        domains = [name for name in self._names(f"{folder}/mon_data") if name.startswith("mon_L3_")]
        values: dict[str, int] = {}
        for domain in domains:
            where = f"{folder}/mon_data/{domain}/{event}"
            value = read_parsed({}, where, self._source, where, parse_monitor)
            if value is None:
                return None
            values[domain] = value
        return values or None


def _own(groups: Mapping[str, frozenset[int]], tids: frozenset[int], owners: Mapping[int, str]) -> list[str]:
    """The groups that hold threads of this instance and of no other, if together they hold nearly all of its threads.

    A control group that is the instance's alone stands for its monitoring groups. Threads without an owner may be new.
    """
    own = [
        folder
        for folder, threads in groups.items()
        if len(threads & tids) >= _ENOUGH * len(threads) and all(tid in tids for tid in threads if tid in owners)
    ]
    tops = [folder for folder in own if not any(folder.startswith(f"{other}/") for other in own if other != folder)]
    held = {thread for folder in tops for thread in groups[folder] if thread in tids}
    return tops if tids and len(held) >= _ENOUGH * len(tids) else []
