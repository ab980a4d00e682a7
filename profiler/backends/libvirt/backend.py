"""Reads KVM and QEMU guests under libvirt: bytes from bulk statistics, the scheduler's counts from vCPU threads.

The statistics of all guests come from one call, the counts from small files. Nothing on the host is changed: the
connection is read-only.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from profiler import host_kinds
from profiler.backends.base import BackendError, Counters, DomainCounters, HostCounters, TaskCounters
from profiler.backends.host_description import cpu_model, default_page_kib
from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.backends.libvirt.guests import (
    DomainProcesses,
    GuestStalls,
    HiddenError,
    QemuProcess,
    find_scheduling_groups,
    read_settings,
    xml_key,
)
from profiler.backends.linux import GONE, HostReader, TaskReader, attempt, or_none, read_parsed, reason
from profiler.backends.sources import HostSource, LiveSource
from profiler.backends.stalls import HostMemory, HostQueues, SlowCounters
from profiler.names import instance_id, name_label
from profiler.observed import REQUIRE_LABEL, Instance, IsolationSettings
from profiler.parse.libvirt import (
    ALIVE,
    DomainDescription,
    DomainRecord,
    DomainStats,
    parse_domain,
    parse_records,
    parse_stats,
    parse_vcpu_times,
)
from profiler.parse.proc import parse_counter, parse_status, parse_task_io
from profiler.parse.text import ParseError

# Chooses the counter of a domain's disk traffic: QEMU's own, which delays QEMU, or the kernel's where both agree.


class Disks:
    """Decides once for each start of a domain, because the two counts begin at different values.

    To count drives libvirt asks every QEMU, whose main loop stops meanwhile. Where a domain's drives bypass the page
    cache, /proc/<pid>/io of QEMU counts the same bytes (and what QEMU itself writes to logs). It needs root.
    """

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._by_kernel: dict[str, tuple[int, bool]] = {}  # uuid → domain, and whether the kernel counts for it

    @property
    def ask_libvirt(self) -> bool:
        """Whether the next bulk query includes drives: a domain needs it, or no domain is known yet."""
        return not self._by_kernel or not all(kernel for _, kernel in self._by_kernel.values())

    def keep(self, uuids: set[str]) -> None:
        """Forget all domains but these."""
        self._by_kernel = {uuid: known for uuid, known in self._by_kernel.items() if uuid in uuids}

    def bytes(
        self,
        record: DomainRecord,
        stats: DomainStats,
        described: DomainDescription | None,
        process: QemuProcess | None,
        absent: dict[str, str],
    ) -> int | None:
        """Bytes read and written; None with the reason in `absent`."""
        domain, by_kernel = self._by_kernel.get(record.uuid, (record.id, None))
        if domain != record.id or by_kernel is None:
            by_kernel = bool(described and described.direct_disks and self._of_process(process, {}) is not None)
            self._by_kernel[record.uuid] = (record.id, by_kernel)
        if by_kernel:
            return self._of_process(process, absent)
        if "disk_bytes" in stats.absent:
            absent["disk_bytes"] = stats.absent["disk_bytes"]
        return stats.disk_bytes

    def _of_process(self, process: QemuProcess | None, absent: dict[str, str]) -> int | None:
        if process is None:
            absent["disk_bytes"] = "its QEMU process is not seen"
            return None
        return read_parsed(absent, "disk_bytes", self._source, f"/proc/{process.pid}/io", parse_task_io)


# Substitutes for Xen's event channel on KVM: exits and injected interrupts, or wake-ups of QEMU's threads.

# Sums over all VMs that run (kernel: virt/kvm/kvm_main.c, vcpu_stat_get).
KVM_COUNTERS = ("/sys/kernel/debug/kvm/exits", "/sys/kernel/debug/kvm/irq_injections")
_ENDED = "a VM ended and took its counts out of KVM's sums"


class Events:
    """Makes a count that only grows of sources that do not; stays with the source that the first reading found.

    `kvm` False: the guests are emulated, so that KVM's sums are those of other guests.
    """

    def __init__(self, source: HostSource, *, kvm: bool = True) -> None:
        self._source = source
        self._kvm: bool | None = None if kvm else False
        self._last = 0
        self._wakes = 0
        self._threads: dict[str, tuple[int, int]] = {}  # timeslices and voluntary switches by thread

    def read(self, threads: Mapping[str, TaskCounters], absent: dict[str, str], hidden: str = "") -> int | None:
        """Events so far; `threads` are all QEMU threads by number, `hidden` says why some of them are not seen."""
        if self._kvm is None:
            self._kvm = self._kvm_total({}) is not None
        if self._kvm:
            return self._by_kvm(absent)
        if hidden:
            absent["events"] = hidden
            return None
        return self._by_wakes(threads, absent)

    def _kvm_total(self, absent: dict[str, str]) -> int | None:
        try:
            return sum(parse_counter(self._source.read(path), path) for path in KVM_COUNTERS)
        except (OSError, ParseError) as error:
            absent["events"] = reason(error)
            return None

    def _by_kvm(self, absent: dict[str, str]) -> int | None:
        total = self._kvm_total(absent)
        if total is None:
            return None
        ended, self._last = total < self._last, total
        if ended:  # how much was lost is unknown, and so are the events of this reading
            absent["events"] = _ENDED
            return None
        return total

    def _by_wakes(self, threads: Mapping[str, TaskCounters], absent: dict[str, str]) -> int | None:
        """Voluntary switches: each ends with a wake by an eventfd, a signal, a timer or a lock.

        `status` is read only of threads that ran, as it costs several times as much as `schedstat`. The history of a
        thread that is seen for the first time is not counted.
        """
        seen: dict[str, tuple[int, int]] = {}
        for tid, task in threads.items():
            before = self._threads.get(tid)
            if before is not None and before[0] == task.timeslices:
                seen[tid] = before
                continue
            where = f"/proc/{tid}/task/{tid}/status"
            try:
                voluntary = parse_status(self._source.read(where), where).voluntary
            except (OSError, ParseError) as error:
                if isinstance(error, OSError) and error.errno in GONE:
                    continue  # it ended
                absent["events"] = reason(error)
                return None
            self._wakes += max(0, voluntary - before[1]) if before is not None else 0
            seen[tid] = (task.timeslices, voluntary)
        self._threads = seen
        return self._wakes


_LOOK_AGAIN_S = 55.0  # memory and vCPUs of a running guest may be changed


@dataclass(slots=True)
class _Reading:
    """What one reading has found so far; `hidden` are running domains whose threads are not seen, with the reason."""

    instances: dict[str, DomainCounters] = field(default_factory=dict)
    emulators: dict[str, TaskCounters] = field(default_factory=dict)
    hidden: dict[str, tuple[DomainRecord, str]] = field(default_factory=dict)
    vanished: set[str] = field(default_factory=set)
    absent: dict[str, str] = field(default_factory=dict)


class LibvirtBackend:
    """Guests of libvirt's QEMU driver, accelerated by KVM or not.

    A guest is its vCPU threads. QEMU's other threads (main loop, I/O threads, vhost) and the host kernel's I/O work are
    the driver domain, with as many virtual CPUs as the host has, for they run on any.
    """

    name = "libvirt"

    def __init__(
        self, source: HostSource | None = None, host: str | None = None, connection: LibvirtConnection | None = None
    ) -> None:
        self._source = source or LiveSource()
        self._connection = connection or LibvirtConnection()
        self.host = host or instance_id(socket.gethostname() or "localhost")
        try:
            self._source.value("libvirt version", self._connection.version)
        except OSError as error:
            self._connection.close()
            raise BackendError(self._unreadable(error)) from None
        self._processes = DomainProcesses(self._source)
        self._tasks = TaskReader(self._source)
        self._events = Events(self._source)
        self._host_reader = HostReader(self._source)
        self._starts: dict[str, tuple[str, int]] = {}  # name → uuid and id of the domain in the reading before
        self._descriptions: dict[str, tuple[int, DomainDescription | None, float]] = {}  # id, and when it was read
        self._disks = Disks(self._source)
        self._queues = HostQueues(self._source)
        self._memory = HostMemory(self._source)
        self._stalls: dict[str, GuestStalls] = {}  # by uuid
        self._now_s: float | None = None  # when this reading was, on the monotonic clock
        self._reads_slow = True  # whether this reading takes the counters that are read every ten seconds
        self._vcpus: dict[str, tuple[int, ...]] = {}  # threads of each instance in the reading before
        self._by_threads: dict[str, bool] = {}  # by instance, whether the reading before took its CPU time from threads

    def list_instances(self) -> list[Instance]:
        instances: list[Instance] = []
        for record in _alive(self._listed()):
            described = self._described(record, _LOOK_AGAIN_S)
            vcpus, memory_mb = (described.vcpus, described.memory_mb) if described else (1, 0.0)
            labels = {"uuid": record.uuid, **name_label(record.name), **(self._labels(described) if described else {})}
            name = instance_id(record.name)
            instances.append(Instance(name, vcpus=vcpus, memory_mb=memory_mb, host=self.host, labels=labels))
        return sorted(instances, key=lambda instance: instance.id)

    def _labels(self, described: DomainDescription) -> dict[str, str]:
        """Its labels with the rules that depend on this host: its huge pages, and CPUs like those that it has."""
        labels = dict(described.labels)
        if described.huge_page_kib is not None:
            kib = described.huge_page_kib or default_page_kib(self._source)
            labels |= host_kinds.needs(described.memory_mb, kib)
        if described.cpu.whole_host and (model := cpu_model(self._source)):
            labels[f"{REQUIRE_LABEL}cpu_model"] = model
        return labels

    def read_counters(self) -> Counters:
        drives = self._disks.ask_libvirt
        try:
            records = self._records(
                "libvirt domstats",
                self._connection.all_stats if self._reads_slow else lambda: self._connection.stats(drives=drives),
            )
        except OSError as error:
            raise BackendError(self._unreadable(error)) from None
        time_s, monotonic_s = self._source.clock()  # now: libvirt's answer took longer than all that follows
        before_s, self._now_s = self._now_s, monotonic_s
        self._queues.begin()
        reading = _Reading(vanished={instance_id(record.name) for record in records if record.state not in ALIVE})
        counts = self._read_domains(reading, _alive(records))
        self._ask_for_hidden(reading)
        self._drop_changed(reading)
        next_s = 2 * monotonic_s - (monotonic_s if before_s is None else before_s)
        self._reads_slow = any(stalls.slow.is_due(next_s) for stalls in self._stalls.values())
        driver, whole = self._read_host(reading, counts)
        whole = self._memory.beside(whole, monotonic_s)
        self._source.sweep(ended=bool(reading.vanished))
        absent, vanished = reading.absent, tuple(sorted(reading.vanished))
        return Counters(self.host, time_s, monotonic_s, reading.instances, driver, whole, absent, vanished)

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        record = next((record for record in _alive(self._listed()) if instance_id(record.name) == instance.id), None)
        if record is None:
            raise BackendError(f"instance {instance.id} is not on this host (list them with: cotenant-profiler once)")
        return read_settings(self._source, self._connection, record)

    def threads(self) -> Mapping[str, tuple[int, ...]]:
        return self._vcpus

    def counted_groups(self) -> Mapping[str, str]:
        """None: a guest's own work is that of its vCPUs, and they are fewer than CPUs."""
        return {}

    def scheduling_groups(self) -> Mapping[int, str]:
        return find_scheduling_groups(self._source, self._vcpus)

    def close(self) -> None:
        self._connection.close()
        self._source.close()

    def _records(self, key: str, ask: Callable[[], object]) -> list[DomainRecord]:
        try:
            return parse_records(self._source.value(key, ask), key)
        except ParseError as error:
            raise BackendError(self._unreadable(error)) from None

    def _listed(self) -> list[DomainRecord]:
        """The domains, by the cheapest query; some recordings hold them only in the statistics."""
        try:
            try:
                return self._records("libvirt domains", self._connection.domains)
            except FileNotFoundError:
                return self._records("libvirt domstats", self._connection.domains)
        except OSError as error:
            raise BackendError(self._unreadable(error)) from None

    def _unreadable(self, error: OSError | ParseError) -> str:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return f"libvirt at {self._connection.uri} cannot be read: {why or 'no reason given'}"

    def _described(self, record: DomainRecord, at_most_s: float = math.inf) -> DomainDescription | None:
        """The domain's XML, read once for each start of the domain, and again where it is older than `at_most_s`.

        None when it cannot be read.
        """
        now_s = self._source.clock()[1]
        known = self._descriptions.get(record.uuid)
        if known is None or known[0] != record.id or now_s - known[2] > at_most_s:
            key = xml_key(record)
            xml = or_none(self._source.value, key, lambda: self._connection.xml(record.uuid))
            described = or_none(parse_domain, xml, key) if isinstance(xml, str) else None
            if described is None and known is not None and known[0] == record.id:
                described = known[1]
            known = self._descriptions[record.uuid] = (record.id, described, now_s)
        return known[1]

    def _read_domains(self, reading: _Reading, alive: list[DomainRecord]) -> dict[str, TaskCounters]:
        """Read every domain whose threads are seen; returns the counts of all QEMU threads, by number."""
        before, self._starts = self._starts, {record.name: (record.uuid, record.id) for record in alive}
        uuids = {record.uuid for record in alive}
        self._descriptions = {uuid: known for uuid, known in self._descriptions.items() if uuid in uuids}
        self._stalls = {uuid: stalls for uuid, stalls in self._stalls.items() if uuid in uuids}
        self._disks.keep(uuids)
        self._processes.begin(uuids)
        seen: list[tuple[DomainRecord, str, QemuProcess]] = []
        for record in alive:
            name = instance_id(record.name)
            start = (record.uuid, record.id)
            if before.get(record.name, start) != start:
                reading.vanished.add(name)  # it started anew since: its counters do not compare with the last ones
                continue
            self._described(record)  # at the first reading, so that recordings hold it
            process = self._process(reading, record, name)
            if process is not None:
                seen.append((record, name, process))
        self._vcpus = {name: tuple(process.vcpus) for _, name, process in seen}
        unread: dict[str, str] = {}
        counts = self._tasks.read((tid for _, _, process in seen for tid in process.names), unread)
        for record, name, process in seen:
            self._read_domain(reading, record, name, process, counts, unread)
        return counts

    def _process(self, reading: _Reading, record: DomainRecord, name: str) -> QemuProcess | None:
        try:
            return self._processes.process(record)
        except HiddenError as error:
            reading.hidden[name] = record, str(error)
        except (OSError, ParseError) as error:
            if isinstance(error, OSError) and error.errno in GONE:
                reading.vanished.add(name)
            else:
                reading.hidden[name] = record, reason(error)
        return None

    def _read_domain(
        self,
        reading: _Reading,
        record: DomainRecord,
        name: str,
        process: QemuProcess,
        counts: Mapping[str, TaskCounters],
        unread: Mapping[str, str],
    ) -> None:
        tasks = {vcpu: counts[str(tid)] for tid, vcpu in process.vcpus.items() if str(tid) in counts}
        if len(tasks) < len(process.vcpus) and unread:
            reading.hidden[name] = record, unread["tasks"]
        elif not tasks:
            if self._processes.lives(process):
                reading.hidden[name] = record, "this kernel counts no scheduler times (CONFIG_SCHED_INFO)"
            else:
                reading.vanished.add(name)
        else:
            reading.instances[name] = self._domain(record, tasks, process)
            others = {f"{name} {tid} {thread}": counts.get(str(tid)) for tid, thread in process.others.items()}
            reading.emulators |= {key: task for key, task in others.items() if task is not None}

    def _domain(
        self,
        record: DomainRecord,
        tasks: dict[str, TaskCounters],
        process: QemuProcess | None,
        cpu_ns: int | None = None,
    ) -> DomainCounters:
        stats = parse_stats(record.stats)
        described = self._described(record)
        absent = {name: why for name, why in stats.absent.items() if name != "disk_bytes"}
        disk_bytes = self._disks.bytes(record, stats, described, process, absent)
        rss_mb = self._processes.rss_mb(process, absent) if process else None
        slow = self._slow_counters(record, process)
        # one thread may run all vCPUs of a guest, where TCG is not multi-threaded
        vcpus = max(len(tasks), described.vcpus if described and len(tasks) <= 1 else 1)
        return DomainCounters(
            vcpus,
            tasks,
            cpu_ns,
            net_bytes=stats.net_bytes,
            disk_bytes=disk_bytes,
            further=slow.counters,
            further_since=slow.since,
            gauges={**slow.gauges, **({} if rss_mb is None else {"rss_mb": rss_mb})},
            absent={**absent, **slow.absent},
        )

    def _slow_counters(self, record: DomainRecord, process: QemuProcess | None) -> SlowCounters:
        """A domain's counters that are read every ten seconds, as read last; only some queries of libvirt hold them."""
        stalls = self._stalls.get(record.uuid)
        if stalls is None or stalls.domain != record.id:
            stalls = self._stalls[record.uuid] = GuestStalls(self._source, record.id, self._queues)
        now_s = self._now_s or 0.0
        if self._reads_slow and stalls.slow.is_due(now_s):
            described = self._described(record)
            stalls.read(record, process, described.vcpus if described else 0, now_s)
        return stalls.slow

    def _ask_for_hidden(self, reading: _Reading) -> None:
        """Ask libvirt for the CPU time of domains whose threads are not seen; it knows no executions and waiting."""
        if not reading.hidden:
            return
        absent: dict[str, str] = {}
        answer = attempt(absent, "vcpus", self._source.value, "libvirt vcpustats", self._connection.vcpu_stats)
        records = attempt(absent, "vcpus", parse_records, answer) if answer is not None else None
        by_uuid = {record.uuid: record.stats for record in records or ()}
        for name, (record, why) in reading.hidden.items():
            stats = by_uuid.get(record.uuid)
            cpu_ns = attempt(absent, "vcpus", parse_vcpu_times, stats) if stats is not None else None
            if cpu_ns is None:
                reading.absent[name] = f"{why}; {absent.get('vcpus', 'libvirt no longer lists it')}"
                continue
            domain = self._domain(record, {}, None, cpu_ns)
            reading.instances[name] = replace(domain, absent={**domain.absent, "tasks": why, "rss_mb": why})

    def _drop_changed(self, reading: _Reading) -> None:
        """Drop instances whose CPU time comes from another source than before: the two do not compare."""
        before = self._by_threads
        self._by_threads = {name: name not in reading.hidden for name in reading.instances}
        for name, by_threads in self._by_threads.items():
            if before.get(name, by_threads) != by_threads:
                del reading.instances[name]
                reading.vanished.add(name)

    def _read_host(
        self, reading: _Reading, counts: Mapping[str, TaskCounters]
    ) -> tuple[DomainCounters | None, HostCounters | None]:
        """The driver domain (the kernel's part and QEMU's part) and the host."""
        driver, whole = self._host_reader.read(reading.absent)
        if driver is None or whole is None:
            return driver, whole
        absent = dict(whole.absent)
        hidden = next((why for _, why in reading.hidden.values()), "")
        whole = replace(whole, events=self._events.read(counts, absent, hidden), absent=absent)
        if hidden:
            reading.absent["driver"] = f"threads of {len(reading.hidden)} instances are not seen: {hidden}"
            return None, whole
        return replace(driver, vcpus=whole.pcpus, tasks={**driver.tasks, **reading.emulators}), whole


def _alive(records: list[DomainRecord]) -> list[DomainRecord]:
    return [record for record in records if record.state in ALIVE]
