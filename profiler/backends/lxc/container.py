"""Reads one container repeatedly: counters of its group, tasks and traffic; caches what changes slowly."""

from __future__ import annotations

import os

from profiler.backends.base import DomainCounters, TaskCounters
from profiler.backends.linux import GONE, TaskReader, attempt, or_none, read_parsed
from profiler.backends.lxc.control_groups import Groups
from profiler.backends.lxc.listing import ListedContainer
from profiler.backends.lxc.traffic import ContainerTraffic
from profiler.backends.memory import GroupMemory
from profiler.backends.source import HostSource
from profiler.backends.stalls import SlowCounters, TaskDelays, TaskWaits
from profiler.parse.proc import parse_blkio_ticks, parse_statm
from profiler.parse.text import ParseError

_SLOWLY_S = 29.5  # with a reading per second, resident memory is read in every thirtieth
_LIST_AGAIN = 5  # readings after which a group's tasks are listed anew without a sign of a change …
_UNEXPLAINED_NS = 20_000  # … or at once when the group used more CPU time than its known tasks did
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


class ContainerReader:
    """Counters of one container.

    Every reading reads what the eight metrics are made of: run time, tasks, block I/O and traffic. Kernel time,
    throttled time, pressure, delays and drops are read in the first two readings and then every ten seconds, over which
    their rates are taken; resident memory, and whether the group counts block I/O, every thirty seconds.
    """

    def __init__(self, source: HostSource, groups: Groups, traffic: ContainerTraffic, delays: TaskDelays) -> None:
        self._source = source
        self._groups = groups
        self._traffic = traffic
        self._delays = delays
        self._tasks = TaskReader(source)
        self._tids: tuple[int, ...] = ()
        self._list_in = 0  # readings
        self._known: dict[str, TaskCounters] = {}  # of the last reading, where all of it could be read
        self._run_ns = 0  # of the known tasks
        self._cpu_ns = 0
        self._slow, self._disk_waits, self._memory = SlowCounters(), TaskWaits(), GroupMemory()
        self._looked_s: float | None = None
        self._rss_mb: float | None = None
        self._counts_disk = True  # kernels since 6.10 count a group's block I/O only after a limit was set on the disk

    @property
    def threads(self) -> tuple[int, ...]:
        """Its tasks as of the last reading."""
        return self._tids

    def read(self, container: ListedContainer, now_s: float) -> DomainCounters:
        """Counters now, at `now_s` on the monotonic clock.

        Raises OSError when its group is gone or cannot be read, ParseError when its list of tasks is garbled.
        """
        path = container.path
        absent: dict[str, str] = {}
        if self._looked_s is None or not 0 <= now_s - self._looked_s < _SLOWLY_S:
            self._look(container, now_s)
        cpu_ns = attempt(absent, "cpu_ns", self._groups.cpu_ns, path)
        used_ns = None if cpu_ns is None else cpu_ns - self._cpu_ns
        if used_ns is not None and used_ns < 0:  # another group with the same name: the old counts are not its own
            self._slow, self._disk_waits, self._list_in = SlowCounters(), TaskWaits(), 0
            self._memory = GroupMemory()
        self._cpu_ns = cpu_ns or self._cpu_ns
        disk_bytes = self._disk_bytes(path, absent)
        tasks = self._read_tasks(container, used_ns, absent, with_io=disk_bytes is None)
        tids = self._tids
        if tids and not tasks:
            absent.setdefault("tasks", f"none of its {len(tids)} tasks shows its scheduler counts")
        if disk_bytes is None:  # the tasks' own counts take its place
            if "tasks" not in absent and all([task.io_bytes is not None for task in tasks.values()]):  # noqa: C419
                absent.pop("disk_bytes", None)
            else:
                absent["disk_bytes"] = "neither its group nor its tasks show block I/O (run as root)"
        net_bytes = self._traffic.read(tids, now_s, absent)
        if self._slow.is_due(now_s):
            self._read_slowly(path, now_s)
        rss = {} if self._rss_mb is None else {"rss_mb": self._rss_mb}
        return DomainCounters(
            container.instance.vcpus, tasks, cpu_ns, net_bytes=net_bytes, disk_bytes=disk_bytes,
            further=self._slow.counters, further_since=self._slow.since,
            gauges={**self._slow.gauges, **rss}, absent={**absent, **self._slow.absent},
        )  # fmt: skip

    def _read_slowly(self, path: str, now_s: float) -> None:
        """Read the counters beyond the eight metrics."""
        absent: dict[str, str] = {}
        gauges: dict[str, float] = {}
        counters = self._groups.further(path, absent)
        for name in ("cpu", "io", "memory"):
            pressure_us = attempt(absent, f"psi_{name}_us", self._groups.pressure_us, path, name)
            if pressure_us is not None:
                counters[f"psi_{name}_us"] = pressure_us
        memory = attempt(absent, "swap_mb", self._groups.memory, path)
        if memory is not None:
            self._memory.add(*memory, counters, gauges)
        if why := self._delays.off(now_s):
            absent["disk_wait_us"] = why
        else:
            counters["disk_wait_us"] = _TICK_US * self._disk_waits.add(self._waited_ticks(), now_s)
        self._traffic.read_stalls(counters, gauges, absent)
        self._slow.take(counters, gauges, absent, now_s)

    def _waited_ticks(self) -> dict[str, int]:
        """For how long each of its tasks has waited for block I/O, in ticks by path of its `stat`."""
        waited: dict[str, int] = {}
        for tid in self._tids:
            path = f"/proc/{tid}/task/{tid}/stat"
            ticks = read_parsed({}, path, self._source, path, parse_blkio_ticks)
            if ticks is not None:
                waited[path] = ticks
        return waited

    def _read_tasks(
        self, container: ListedContainer, used_ns: int | None, absent: dict[str, str], *, with_io: bool
    ) -> dict[str, TaskCounters]:
        """Counters of its tasks.

        Run times of groups and tasks agree to the ns, so a group that used none has no task that ran. Tasks are listed
        anew when one ended, when the group used time that its known tasks did not, and every few readings.
        """
        if self._list_in > 0 and used_ns is not None and self._known:
            self._list_in -= 1
            if used_ns == 0:
                return self._known
            tasks = self._tasks.read(self._tids, {}, with_io=with_io)
            run_ns = sum([task.run_ns for task in tasks.values()])
            if len(tasks) == len(self._tids) and used_ns - (run_ns - self._run_ns) <= _UNEXPLAINED_NS:
                self._known, self._run_ns = tasks, run_ns
                return tasks
        tids = self._groups.tasks(container.path)
        for below in container.below:
            tids = tids + (or_none(self._groups.tasks, below) or ())  # a group that vanished has none
        self._tids, self._list_in = tuple(tids), _LIST_AGAIN - 1
        tasks = self._tasks.read(self._tids, absent, with_io=with_io)
        self._known = tasks if len(tasks) == len(self._tids) else {}
        self._run_ns = sum([task.run_ns for task in tasks.values()])
        return tasks

    def _look(self, container: ListedContainer, now_s: float) -> None:
        """Read what changes slowly."""
        self._looked_s, self._counts_disk = now_s, True
        try:
            groups = (container.path, *container.below)
            pages = sum(self._resident_pages(pid) for path in groups for pid in self._groups.processes(path))
            self._rss_mb = pages * _PAGE_MB
        except (OSError, ParseError):
            self._rss_mb = None

    def _resident_pages(self, pid: int) -> int:
        path = f"/proc/{pid}/statm"
        try:
            return parse_statm(self._source.read(path), path)
        except OSError as error:
            if error.errno in GONE:
                return 0
            raise

    def _disk_bytes(self, path: str, absent: dict[str, str]) -> int | None:
        if not self._counts_disk:
            return None
        disk_bytes = attempt(absent, "disk_bytes", self._groups.disk_bytes, path)
        self._counts_disk = disk_bytes is not None
        return disk_bytes
