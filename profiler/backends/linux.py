"""Asks the kernel over netlink for the peers of host interfaces, and for backlog and drops of their queues."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import ParamSpec, TypeVar

from profiler.backends.base import DomainCounters, HostCounters, TaskCounters
from profiler.backends.sources import HostSource
from profiler.parse.proc import InterfaceBytes, parse_net_dev, parse_stat, parse_task_io, schedstat_counts
from profiler.parse.text import ParseError

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/net_namespace.h, linux/pkt_sched.h, linux/gen_stats.h
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_GETLINK, _GETNSID = 18, 90
_NAME, _LINKINFO, _EXT_MASK, _LINK_NETNSID = 3, 18, 29, 37
_INFO_KIND = 1
_NETNSA_NSID, _NETNSA_PID = 1, 2
_SKIP_STATS = 1 << 3
_GETQDISC = 38
_STATS2, _STATS_QUEUE = 7, 3
_WHOLE = (0xFFFFFFFF, 0xFFFFFFF1)  # TC_H_ROOT, TC_H_INGRESS: they count what all queues and filters below them do
_HEADER, _ATTRIBUTE, _LINK = struct.Struct("=IHHII"), struct.Struct("=HH"), struct.Struct("=BxHiII")
_QUEUE, _QUEUE_STATS = struct.Struct("=BxxxiIII"), struct.Struct("=IIIII")  # tcmsg, gnet_stats_queue
_NESTED_BITS = 0x3FFF  # the upper two bits of an attribute's type say how it is nested, linux/netlink.h
_RECEIVE = 1 << 17
_TIMEOUT_S = 1.0


def veths_by_namespace() -> dict[str, list[str]]:
    """Names of this namespace's veth interfaces by the id, as text, of the namespace that their other end is in.

    Raises OSError.
    """
    veths: dict[str, list[str]] = {}
    mask = _ATTRIBUTE.pack(8, _EXT_MASK) + struct.pack("=I", _SKIP_STATS)
    for body in _ask(_GETLINK, _DUMP, _LINK.pack(0, 0, 0, 0, 0) + mask):
        attributes = dict(_attributes(body[_LINK.size :]))
        kind = dict(_attributes(attributes.get(_LINKINFO, b""))).get(_INFO_KIND, b"")
        if kind.rstrip(b"\0") == b"veth" and _LINK_NETNSID in attributes and _NAME in attributes:
            name = attributes[_NAME].rstrip(b"\0").decode("utf-8", "replace")
            veths.setdefault(str(_number(attributes[_LINK_NETNSID])), []).append(name)
    return veths


def queues_by_interface() -> dict[str, list[int]]:
    """Bytes that wait in the queue of each interface of this namespace, and packets that its queues and filters dropped
    since they were made, modulo 2^32: those for sending, and those that police what comes in.

    Raises OSError.
    """
    by_index: dict[int, list[int]] = {}
    for body in _ask(_GETQDISC, _DUMP, _QUEUE.pack(0, 0, 0, 0, 0)):
        if len(body) < _QUEUE.size:
            raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
        _, interface, _, parent, _ = _QUEUE.unpack_from(body)
        stats = dict(_attributes(dict(_attributes(body[_QUEUE.size :])).get(_STATS2, b""))).get(_STATS_QUEUE, b"")
        if parent in _WHOLE and len(stats) >= _QUEUE_STATS.size:
            _, waiting, dropped, _, _ = _QUEUE_STATS.unpack_from(stats)
            before = by_index.get(interface, [0, 0])
            by_index[interface] = [before[0] + waiting, before[1] + dropped]
    names: dict[str, list[int]] = {}
    for interface, counts in by_index.items():
        with suppress(OSError):  # it is gone
            names[socket.if_indextoname(interface)] = counts
    return names


def namespace_id(process: int) -> int:
    """The id that this namespace has for the network namespace of a process; -1 = none. Raises OSError."""
    pid = _ATTRIBUTE.pack(8, _NETNSA_PID) + struct.pack("=I", process)
    for body in _ask(_GETNSID, 0, bytes(4) + pid):
        return _number(dict(_attributes(body[4:])).get(_NETNSA_NSID, b"\xff\xff\xff\xff"))
    return -1


def _number(data: bytes) -> int:
    if len(data) != 4:
        raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
    return int(struct.unpack("=i", data)[0])


def _ask(kind: int, flags: int, payload: bytes) -> Iterator[bytes]:
    """Bodies of all messages that answer one request."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as kernel:
        kernel.settimeout(_TIMEOUT_S)
        kernel.send(_HEADER.pack(_HEADER.size + len(payload), kind, _REQUEST | flags, 1, 0) + payload)
        expects_more = True
        while expects_more:
            expects_more = bool(flags & _DUMP)
            for type_, body in _messages(kernel.recv(_RECEIVE)):
                if type_ == _DONE:
                    expects_more = False
                elif type_ == _ERROR:
                    number = -_number(body[:4])
                    raise OSError(number, os.strerror(number))
                else:
                    yield body


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, position)
        if length < _HEADER.size:
            return
        yield kind, data[position + _HEADER.size : position + length]
        position += length + 3 & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _NESTED_BITS, data[position + _ATTRIBUTE.size : position + length]
        position += length + 3 & ~3


# What every Linux host gives, whatever its hypervisor.

# cotenant-run-queue: a BPF program that watches the CPU scheduler, and the program in C that loads it and prints JSON.
#
# `make run-queue` builds both into one file that needs nothing on the host but a kernel with BTF.

PROGRAM = "cotenant-run-queue"


P = ParamSpec("P")
T = TypeVar("T")
_Seen = tuple[str, str, TaskCounters]
"""One task in the last reading: path and text of its schedstat, and the counters in it."""

# Kernel threads that do the work for instances' I/O that Dom0 does on Xen.
_IO_THREADS = re.compile(r"(ksoftirqd/|kworker/\d+:\d+H|kworker/.*kblockd|jbd2/|vhost-|irq/)")
_IO_SOFTIRQS = ("NET_TX", "NET_RX", "BLOCK")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH)  # a group or task that ended
_RELIST_THREADS = 30  # readings after which kernel threads are listed anew; they come and go slowly
_REASONS = {
    errno.ENOENT: "this kernel or its set-up has no such file",
    errno.EACCES: "permission denied (run as root)",
    errno.EPERM: "permission denied (run as root)",
    errno.EOPNOTSUPP: "switched off in this kernel",
}


def reason(error: OSError | ParseError) -> str:
    """Why something could not be read, for an operator."""
    if isinstance(error, ParseError):
        return str(error)
    return _REASONS.get(error.errno or 0, error.strerror or "cannot be read")


def attempt(absent: dict[str, str], name: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what `read` gives; on failure None, with the reason kept in `absent` under `name`."""
    try:
        return read(*args, **kwargs)
    except (OSError, ParseError) as error:
        absent[name] = reason(error)
    return None


def or_none(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what `read` gives; None where it fails, whatever the reason."""
    try:
        return read(*args, **kwargs)
    except (OSError, ParseError):
        return None


def read_parsed(
    absent: dict[str, str], name: str, source: HostSource, where: str, parse: Callable[[str, str], T]
) -> T | None:
    """What `parse` makes of a file; None with the reason in `absent` where it cannot be read or is garbled."""
    return attempt(absent, name, lambda: parse(source.read(where), where))


def read_interfaces(source: HostSource, process: str = "self") -> dict[str, InterfaceBytes]:
    """Bytes per interface in the network namespace of a process."""
    where = "/proc/net/dev" if process == "self" else f"/proc/{process}/net/dev"
    return parse_net_dev(source.read(where), where)


class TaskReader:
    """Scheduler counts of one instance's tasks, reading after reading.

    The third number of schedstat counts each arrival of a task on a CPU (kernel: sched_info_arrive). It equals
    voluntary plus involuntary switches within one, because each arrival ends one absence. So `status`, which prints
    the switches and costs seven times as much, is not read. A task whose text is the same as last time did not run.
    """

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._seen: dict[int, _Seen] = {}

    def read(self, tids: Iterable[int], absent: dict[str, str], *, with_io: bool = False) -> dict[str, TaskCounters]:
        """Counters by task. Tasks that end meanwhile are left out; another failure is noted as `tasks` in `absent`."""
        before = self._seen
        seen: dict[int, _Seen] = {}
        for tid in tids:
            try:
                seen[tid] = self._task(tid, before.get(tid), with_io)
            except OSError as error:
                if error.errno not in GONE:
                    absent["tasks"] = reason(error)
            except ParseError as error:
                absent["tasks"] = str(error)
        self._seen = seen
        return {str(tid): counters for tid, (_, _, counters) in seen.items()}

    def _task(self, tid: int, before: _Seen | None, with_io: bool) -> _Seen:
        path = before[0] if before else f"/proc/{tid}/task/{tid}/schedstat"
        text = self._source.read(path)
        if before is not None and text == before[1] and (before[2].io_bytes is not None) >= with_io:
            return before
        run_ns, wait_ns, timeslices = schedstat_counts(text, path)
        io = f"/proc/{tid}/task/{tid}/io"
        io_bytes = or_none(lambda: parse_task_io(self._source.read(io), io)) if with_io else None
        return path, text, TaskCounters(run_ns, wait_ns, timeslices, io_bytes)


class HostReader:
    """Reads the whole host and its driver domain; keeps the list of kernel threads between readings."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._threads: dict[int, str] = {}
        self._reader = TaskReader(source)
        self._readings = 0

    def read(self, absent: dict[str, str]) -> tuple[DomainCounters | None, HostCounters | None]:
        """The driver domain, counted as one virtual CPU as the paper counts Dom0, and the host."""
        stat = read_parsed(absent, "whole", self._source, "/proc/stat", parse_stat)
        if stat is None:
            absent["driver"] = absent["whole"]
            return None, None
        softirqs = sum(stat.softirqs.get(name, 0) for name in _IO_SOFTIRQS)
        interrupt_ns = (stat.ticks["irq"] + stat.ticks["softirq"]) * _TICK_NS
        hidden: dict[str, str] = {}
        tasks, softirq_threads_ns = self._kernel_tasks(hidden)
        further = {"softirq_threads_ns": softirq_threads_ns}
        driver = DomainCounters(
            1, tasks, interrupt_ns=interrupt_ns, executions=softirqs, further=further, absent=hidden
        )
        whole = HostCounters(softirqs, stat.busy * _TICK_NS, stat.ticks["steal"] * _TICK_NS, stat.cpus)
        return driver, whole

    def _kernel_tasks(self, absent: dict[str, str]) -> tuple[dict[str, TaskCounters], int]:
        """The I/O threads, and the run time of ksoftirqd, which the softirq ticks contain already."""
        if self._readings % _RELIST_THREADS == 0:
            self._threads = self._list_threads()
        self._readings += 1
        tasks: dict[str, TaskCounters] = {}
        softirq_threads_ns = 0
        for tid, task in self._reader.read(self._threads, absent).items():
            name = self._threads[int(tid)]
            if name.startswith("ksoftirqd/"):
                softirq_threads_ns += task.run_ns
                tasks[f"{tid} {name}"] = replace(task, run_ns=0)
            else:
                tasks[f"{tid} {name}"] = task
        return tasks, softirq_threads_ns

    def _list_threads(self) -> dict[int, str]:
        """The kernel's I/O threads by number, children of kthreadd, which is always process 2."""
        children = or_none(self._source.read, "/proc/2/task/2/children") or ""
        threads: dict[int, str] = {}
        for tid in children.split():
            name = or_none(self._source.read, f"/proc/{tid}/comm")
            if name and tid.isdecimal() and tid.isascii() and _IO_THREADS.match(name):
                threads[int(tid)] = name.strip()
        return threads
