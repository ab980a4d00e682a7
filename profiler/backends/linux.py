"""What every Linux hypervisor shares: scheduler counts of tasks, the kernel as driver domain, the host's own times."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from profiler.backends.base import DomainCounters, HostCounters, TaskCounters
from profiler.backends.source import Source
from profiler.parse import (
    InterfaceBytes,
    ParseError,
    parse_net_dev,
    parse_schedstat,
    parse_stat,
    parse_status,
    parse_task_io,
)

P = ParamSpec("P")
T = TypeVar("T")

# Kernel threads that work for the instances' I/O: what Dom0 does on Xen.
_IO_THREADS = re.compile(r"(ksoftirqd/|kworker/\d+:\d+H|kworker/.*kblockd|jbd2/|vhost-|irq/)")
_IO_SOFTIRQS = ("NET_TX", "NET_RX", "BLOCK")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_RELIST_THREADS = 30  # readings after which kernel threads are listed anew; they come and go slowly
_REASONS = {
    errno.ENOENT: "this kernel or its set-up has no such file",
    errno.EACCES: "permission denied (run as root)",
    errno.EPERM: "permission denied (run as root)",
    errno.EOPNOTSUPP: "switched off in this kernel",
}


def attempt(absent: dict[str, str], name: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what `read` gives; on failure None, with the reason kept in `absent` under `name`."""
    try:
        return read(*args, **kwargs)
    except ParseError as error:
        absent[name] = str(error)
    except OSError as error:
        absent[name] = _REASONS.get(error.errno or 0, error.strerror or "cannot be read")
    return None


def read_interfaces(source: Source, process: str = "self") -> dict[str, InterfaceBytes]:
    """Bytes per interface in the network namespace of a process."""
    where = "/proc/net/dev" if process == "self" else f"/proc/{process}/net/dev"
    return parse_net_dev(source.read(where), where)


def read_task(source: Source, tid: int, *, with_io: bool = False) -> tuple[TaskCounters, int, int]:
    """One task's counters, its process id and that process's resident KB; OSError or ParseError when it is gone."""
    base = f"/proc/{tid}/task/{tid}"
    times = parse_schedstat(source.read(f"{base}/schedstat"), f"{base}/schedstat")
    status = parse_status(source.read(f"{base}/status"), f"{base}/status")
    io_bytes = attempt({}, "", _read_io, source, f"{base}/io") if with_io else None
    switches = status.voluntary + status.involuntary
    counters = TaskCounters(times.run_ns, times.wait_ns, times.timeslices, switches, io_bytes)
    return counters, status.process, status.rss_kb or 0


def _read_io(source: Source, path: str) -> int:
    return parse_task_io(source.read(path), path)


def read_tasks(source: Source, tids: Iterable[int], *, with_io: bool = False) -> tuple[dict[str, TaskCounters], float]:
    """Counters by task and the resident MB of all their processes; tasks that end meanwhile are left out."""
    tasks: dict[str, TaskCounters] = {}
    resident_kb: dict[int, int] = {}
    for tid in tids:
        try:
            tasks[str(tid)], process, rss_kb = read_task(source, tid, with_io=with_io)
        except (OSError, ParseError):
            continue  # ended between the listing and the reading; the collectors see that it is gone
        resident_kb[process] = rss_kb
    return tasks, sum(resident_kb.values()) / 1024


class HostReader:
    """Reads the whole host and its driver domain; keeps the list of kernel threads between readings."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._threads: list[tuple[int, str]] = []
        self._readings = 0

    def read(self, absent: dict[str, str]) -> tuple[DomainCounters | None, HostCounters | None]:
        """The driver domain taken as one virtual CPU, as Dom0 in the paper, and the host."""
        where = "/proc/stat"
        text = attempt(absent, "whole", self._source.read, where)
        stat = attempt(absent, "whole", parse_stat, text, where) if text is not None else None
        if stat is None:
            absent["driver"] = absent["whole"]
            return None, None
        softirqs = sum(stat.softirqs.get(name, 0) for name in _IO_SOFTIRQS)
        interrupt_ns = (stat.ticks["irq"] + stat.ticks["softirq"]) * _TICK_NS
        tasks, softirq_threads_ns = self._kernel_tasks()
        further = {"softirq_threads_ns": softirq_threads_ns}
        driver = DomainCounters(1, tasks, interrupt_ns=interrupt_ns, executions=softirqs, further=further)
        whole = HostCounters(softirqs, stat.busy * _TICK_NS, stat.ticks["steal"] * _TICK_NS, stat.cpus)
        return driver, whole

    def _kernel_tasks(self) -> tuple[dict[str, TaskCounters], int]:
        """The I/O threads, and the run time of those whose run time already stands in the softirq ticks."""
        if self._readings % _RELIST_THREADS == 0:
            self._threads = self._list_threads()
        self._readings += 1
        tasks: dict[str, TaskCounters] = {}
        softirq_threads_ns = 0
        for tid, name in self._threads:
            try:
                task, _, _ = read_task(self._source, tid)
            except (OSError, ParseError):
                continue
            if name.startswith("ksoftirqd/"):
                softirq_threads_ns += task.run_ns
                task = TaskCounters(0, task.wait_ns, task.timeslices, task.switches)
            tasks[f"{tid} {name}"] = task
        return tasks, softirq_threads_ns

    def _list_threads(self) -> list[tuple[int, str]]:
        """The kernel's I/O threads, children of kthreadd, which is always process 2."""
        children = attempt({}, "", self._source.read, "/proc/2/task/2/children") or ""
        found: list[tuple[int, str]] = []
        for tid in children.split():
            name = attempt({}, "", self._source.read, f"/proc/{tid}/comm")
            if name and _IO_THREADS.match(name):
                found.append((int(tid), name.strip()))
        return found
