"""Reads containers of any kind: control groups for CPU and disk, tasks for scheduling, namespaces for traffic."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from profiler.backends.base import BackendError, Counters, DomainCounters, TaskCounters
from profiler.backends.linux import (
    GONE,
    HostReader,
    TaskReader,
    attempt,
    namespace_id,
    or_none,
    read_interfaces,
    read_parsed,
    veths_by_namespace,
)
from profiler.backends.lxc.control_groups import Groups, GroupsMissingError, find_groups, group_number
from profiler.backends.lxc.listing import ContainerListing, ListedContainer
from profiler.backends.sources import HostSource, LiveSource
from profiler.backends.stalls import (
    GroupMemory,
    HostMemory,
    HostQueues,
    InterfaceStalls,
    SlowCounters,
    TaskDelays,
    TaskWaits,
)
from profiler.names import instance_id
from profiler.observed import Instance, IsolationSettings, Pinning
from profiler.parse.proc import InterfaceBytes, parse_blkio_ticks, parse_statm
from profiler.parse.text import ParseError

# Reads a container's network traffic: at the host's ends of its veth pairs, or inside its namespace.

_KEEP_S = 60.0  # how long the owner of an interface is taken as known, while the interface exists
_HOSTS_OWN = "it uses the host's own network, where its traffic cannot be separated"
_UNSEEN = "it has no task whose network namespace could be read"
_MOVED = "its traffic is counted at another place since this reading"


class HostInterfaces:
    """The host's interfaces, read at most once per reading, and only when needed."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self.network: str | None = None  # the host's network namespace
        self.queues = HostQueues(source)
        self._bytes: dict[str, InterfaceBytes] | None = None
        self._veths: dict[str, list[str]] | None = None

    def begin(self) -> None:
        """A new reading."""
        self._bytes = self._veths = None
        self.queues.begin()
        # Where even root may not see the first process's namespace, it is our own.
        links = (or_none(self._source.link, f"/proc/{process}/ns/net") for process in ("1", "self"))
        self.network = next((link for link in links if link is not None), None)

    def total(self, names: tuple[str, ...]) -> int | None:
        """Bytes in both directions over these interfaces; None when one of them is not there."""
        counts = self.find(names)
        return None if counts is None else sum([link.received + link.sent for link in counts.values()])

    def find(self, names: tuple[str, ...]) -> dict[str, InterfaceBytes] | None:
        """What these interfaces counted; None when one of them is not there."""
        if self._bytes is None:
            self._bytes = or_none(read_interfaces, self._source) or {}
        counts = {name: self._bytes[name] for name in names if name in self._bytes}
        return counts if names and len(counts) == len(names) else None

    def ends_of(self, tid: int) -> tuple[str, ...]:
        """This side of the veth pairs whose other side is in the network namespace of a task."""
        if self._veths is None:
            self._veths = or_none(self._source.value, "veths by namespace", veths_by_namespace) or {}
        if not self._veths:
            return ()
        number = or_none(self._source.value, f"network namespace of {tid}", lambda: namespace_id(tid))
        return tuple(self._veths.get(str(number), ()))


class ContainerTraffic:
    """Bytes in and out of one container.

    The host's ends of its veth pairs are read where they are known to carry everything: that takes one file for all
    containers, and opens nothing in a container's namespace. Else its own namespace is read.
    """

    def __init__(self, source: HostSource, host: HostInterfaces) -> None:
        self._source = source
        self._host = host
        self._ends: tuple[str, ...] = ()
        self._task: int | None = None  # one in the container's network namespace
        self._looked_s = 0.0
        self._place: object = None  # where the last count was taken: counts of two places have no difference
        self._stalls = InterfaceStalls(host.queues)
        self._stalls_inside = InterfaceStalls(None)

    def read(self, tids: tuple[int, ...], now_s: float, absent: dict[str, str]) -> int | None:
        """Cumulative bytes; None, with a reason in `absent`, where unknown or not comparable with the last count."""
        if self._task not in tids or not 0 <= now_s - self._looked_s < _KEEP_S:
            self._look(tids, now_s, absent)
        total, place = self._host.total(self._ends), self._ends
        if total is None and self._ends:  # its interface was exchanged
            self._look(tids, now_s, absent)
            total, place = self._host.total(self._ends), self._ends
        if total is None and self._task is not None:
            inside = self._inside(self._task, absent)
            total, place = (None if inside is None else sum(inside.values())), ("inside",)
        if total is None:
            self._task = None
            return None
        moved = self._place is not None and self._place != place
        self._place = place
        if moved:
            absent["net_bytes"] = _MOVED
        return None if moved else total

    def read_stalls(self, counters: dict[str, int], gauges: dict[str, float], absent: dict[str, str]) -> None:
        """Add drops and backlog, from the place where its bytes were counted in the same reading, if any."""
        outside = self._host.find(self._ends)
        if outside is not None:
            self._stalls.read(outside, counters, gauges, absent)
        elif self._task is not None and (inside := self._interfaces(self._task, {})) is not None:
            absent["net_backlog_bytes"] = "its interfaces have no end on the host that carries everything"
            self._stalls_inside.read(inside, counters, gauges, absent)

    def _look(self, tids: tuple[int, ...], now_s: float, absent: dict[str, str]) -> None:
        """Find a task that shows the container's namespace, and the host's ends of its pairs."""
        self._looked_s = now_s
        self._ends = ()
        self._task = self._find_task(tids, absent)
        if self._task is None:
            return
        ends = self._host.ends_of(self._task)
        inside = self._inside(self._task, {}) if ends else None
        if inside is not None and sum(1 for count in inside.values() if count) <= len(ends):
            self._ends = ends  # no interface of another kind carried anything

    def _find_task(self, tids: tuple[int, ...], absent: dict[str, str]) -> int | None:
        if self._host.network is None:
            absent["net_bytes"] = "the host's own network namespace could not be read (run as root)"
            return None
        for tid in tids:
            network = or_none(self._source.link, f"/proc/{tid}/ns/net")
            if network == self._host.network:
                absent["net_bytes"] = _HOSTS_OWN
                return None
            if network is not None:
                return tid
        absent["net_bytes"] = _UNSEEN
        return None

    def _inside(self, tid: int, absent: dict[str, str]) -> dict[str, int] | None:
        """Bytes by interface in a task's network namespace, without the loopback."""
        counts = self._interfaces(tid, absent)
        return None if counts is None else {name: link.received + link.sent for name, link in counts.items()}

    def _interfaces(self, tid: int, absent: dict[str, str]) -> dict[str, InterfaceBytes] | None:
        counts = attempt(absent, "net_bytes", read_interfaces, self._source, str(tid))
        return None if counts is None else {name: link for name, link in counts.items() if name != "lo"}


# Reads one container repeatedly: counters of its group, tasks and traffic; caches what changes slowly.

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


class LxcBackend:
    """Containers on Linux, version 1 and 2 control groups.

    `known` maps group paths to instances and replaces the search for containers.
    """

    name = "lxc"

    def __init__(
        self,
        source: HostSource | None = None,
        host: str | None = None,
        known: Mapping[str, Instance] | None = None,
    ) -> None:
        self._source = source or LiveSource()
        try:
            self._groups: Groups = find_groups(self._source)
        except (GroupsMissingError, ParseError, OSError) as error:
            raise BackendError(f"containers cannot be read: {error}") from None
        self.host = host or instance_id(socket.gethostname() or "localhost")
        self._listing = ContainerListing(self._source, self._groups, self.host, known)
        self._host_interfaces = HostInterfaces(self._source)
        self._readers: dict[str, ContainerReader] = {}
        self._host_reader = HostReader(self._source)
        self._delays = TaskDelays(self._source)
        self._memory = HostMemory(self._source)

    def list_instances(self) -> list[Instance]:
        return [container.instance for container in self._containers(self._source.clock()[1])]

    def read_counters(self) -> Counters:
        time_s, monotonic_s = self._source.clock()
        absent: dict[str, str] = {}
        self._host_interfaces.begin()
        instances: dict[str, DomainCounters] = {}
        vanished: list[str] = []
        readers: dict[str, ContainerReader] = {}
        for container in self._containers(monotonic_s):
            path, name = container.path, container.instance.id
            reader = readers[path] = self._reader(container)
            try:
                instances[name] = reader.read(container, monotonic_s)
            except OSError as error:
                if error.errno not in GONE:
                    raise BackendError(f"group {path} cannot be read ({error.strerror}): run as root") from None
                vanished.append(name)
                self._listing.forget()
            except ParseError as error:
                raise BackendError(f"group {path} cannot be read: {error}") from None
        self._readers = readers
        driver, whole = self._host_reader.read(absent)
        whole = self._memory.beside(whole, monotonic_s)
        self._source.sweep(ended=bool(vanished))
        return Counters(self.host, time_s, monotonic_s, instances, driver, whole, absent, tuple(vanished))

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        containers = self._containers(self._source.clock()[1])
        path = next((container.path for container in containers if container.instance.id == instance.id), None)
        if path is None:
            self._listing.forget()  # the instance may be newer than the list
            raise BackendError(f"instance {instance.id} is not on this host (list them with: cotenant-profiler once)")
        cpus = or_none(self._groups.cpus, path)
        quota = or_none(self._groups.quota, path)
        limit = or_none(self._groups.disk_limit_bytes, path)
        return IsolationSettings(
            pinning=Pinning.all_on(cpus, instance.vcpus) if cpus else None,
            cap_percent=quota.percent if quota else None,
            weight=or_none(self._groups.weight, path),
            disk_limit_mb_s=limit / 1e6 if limit else None,
        )

    def threads(self) -> Mapping[str, tuple[int, ...]]:
        names = {container.path: container.instance.id for container in self._containers(self._source.clock()[1])}
        return {names[path]: reader.threads for path, reader in self._readers.items() if path in names}

    def counted_groups(self) -> Mapping[str, str]:
        folders: dict[str, str] = {}
        for container in self._containers(self._source.clock()[1]):
            folder = self._groups.counted_folder(container.path)
            if folder and or_none(self._source.names, folder) is not None:
                folders[container.instance.id] = folder
        return folders

    def scheduling_groups(self) -> Mapping[int, str]:
        """Each container's group and those below it. In version 2 a group without the cpu controller is its parent."""
        numbers: dict[int, str] = {}
        for container in self._containers(self._source.clock()[1]):
            for path in (container.path, *container.below):
                number = or_none(group_number, self._source, self._groups.scheduler_folder(path))
                if number is not None:
                    numbers[number] = container.instance.id
        return numbers

    def close(self) -> None:
        self._source.close()

    def _reader(self, container: ListedContainer) -> ContainerReader:
        reader = self._readers.get(container.path)
        if reader is None:
            traffic = ContainerTraffic(self._source, self._host_interfaces)
            reader = ContainerReader(self._source, self._groups, traffic, self._delays)
        return reader

    def _containers(self, now_s: float) -> list[ListedContainer]:
        try:
            return self._listing.at(now_s)
        except OSError as error:
            raise BackendError(f"control groups cannot be listed ({error.strerror})") from None
