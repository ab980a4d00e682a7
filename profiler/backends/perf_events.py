"""Cycles and instructions by perf_event_open(2), of threads and of control groups, without a library for it."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from profiler.observed import parse_cpus

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
