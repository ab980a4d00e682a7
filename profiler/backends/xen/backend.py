"""Reads Xen from Dom0: domains by xl, the scheduler's times by xentrace, I/O and events from Dom0's files."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping

from profiler.backends.base import BackendError, Counters, DomainCounters, HostCounters, TaskCounters
from profiler.backends.commands import TIMEOUT_S, run_tool
from profiler.backends.linux import attempt, or_none
from profiler.backends.sources import HostSource, LiveSource
from profiler.backends.stalls import CounterGrowth, DiskRequests, HostQueues, InterfaceStalls, SlowCounters
from profiler.backends.xen import DEFAULT_MODE, Mode
from profiler.backends.xen.io import DEVICES, OTHERS, Attached, IoCounters, IoReader, attached_devices, renamed_vifs
from profiler.backends.xen.scheduling import CpuClock, SchedulerTrace
from profiler.names import NO_CAP_PERCENT, NO_RATE_MBIT, instance_id, name_label, real_limit
from profiler.observed import Instance, IsolationSettings, NetworkSettings, Pinning
from profiler.parse.cgroup import parse_xen_balloon
from profiler.parse.proc import DiskTimes, parse_block_stat, parse_counter
from profiler.parse.text import ParseError
from profiler.parse.xen import (
    ListedDomain,
    XlInfo,
    parse_physical_device,
    parse_sched,
    parse_vcpu_list,
    parse_xenstore,
    parse_xl_info,
    parse_xl_list,
    vif_rate_mbit,
)

# Isolation settings of a Xen domain: affinity, weight and cap from xl, interface rates from xenstore.

Tool = Callable[..., str]

_SHARES = {"credit": "sched-credit", "credit2": "sched-credit2"}


def read_isolation(tool: Tool, host: XlInfo, domain: ListedDomain) -> IsolationSettings:
    """Settings of one domain; `tool` gives what a command prints. What cannot be read is None."""
    share = or_none(_share, tool, host, domain.domid)
    weight, cap = share or (None, None)
    return IsolationSettings(
        pinning=or_none(_pinning, tool, domain.domid),
        cap_percent=cap,
        weight=weight,
        network=or_none(_network, tool, domain.domid),
    )


def _pinning(tool: Tool, domid: int) -> Pinning | None:
    """By hard affinity: soft affinity (`cpus_soft`) only says where it is better to run."""
    where = "xl vcpu-list"
    vcpus = parse_vcpu_list(tool("xl", "vcpu-list"), where)
    listed = {number: vcpu for (domain, number), vcpu in vcpus.items() if domain == domid}
    if not listed or sorted(listed) != list(range(len(listed))):
        raise ParseError(where, where, 1, f"vCPUs of domain {domid} are missing")
    online = [vcpu for _, vcpu in sorted(listed.items()) if vcpu.cpu is not None]
    hard = tuple(vcpu.hard or () for vcpu in online)
    return Pinning(hard) if any(hard) else None


def _share(tool: Tool, host: XlInfo, domid: int) -> tuple[int, float | None] | None:
    """Weight and cap; None with schedulers that have neither, and for domains in a pool of another scheduler."""
    command = _SHARES.get(host.scheduler)
    if command is None:
        return None
    share = parse_sched(tool("xl", command), f"xl {command}").get(domid)
    return (
        None
        if share is None
        else (share.weight, None if not share.cap_percent else real_limit(float(share.cap_percent), NO_CAP_PERCENT))
    )


def _network(tool: Tool, domid: int) -> NetworkSettings | None:
    """The rate to which netback limits what a guest sends; what it receives is not limited."""
    nodes = parse_xenstore(tool("xenstore-ls", "-f", "/local/domain/0/backend/vif"), "xenstore-ls")
    rate = vif_rate_mbit(nodes, domid)
    return NetworkSettings("dedicated", rate) if real_limit(rate, NO_RATE_MBIT) else None


# Stalls of one guest of Xen, read every ten seconds in Dom0: disk requests, blkback's queue, drops of its vifs.

_BLOCK = "/sys/dev/block"


class XenGuestStalls:
    """Reads one domain, reading after reading."""

    def __init__(self, source: HostSource, queues: HostQueues) -> None:
        self.slow = SlowCounters()
        self._source = source
        self._disks, self._full = DiskRequests(), CounterGrowth()
        self._interfaces = InterfaceStalls(queues)

    def read(self, io: IoCounters, shared: Mapping[str, int], now_s: float) -> None:
        """Read its backends; `shared` says how many disks of all guests lie on each device of Dom0."""
        counters: dict[str, int] = {}
        gauges: dict[str, float] = {}
        absent: dict[str, str] = {}
        if "net_bytes" not in io.absent:
            self._interfaces.read(io.interfaces, counters, gauges, absent)
        if io.devices and "disk_bytes" not in io.absent:
            times = attempt(absent, "disk_wait_us", self._disk_times, io.devices, shared)
            if times is not None:
                self._disks.add(times, counters)
            full = attempt(absent, "disk_queue_full", self._times_full, io.devices)
            if full is not None:
                counters["disk_queue_full"] = self._full.add(full)
        self.slow.take(counters, gauges, absent, now_s)

    def _disk_times(self, devices: tuple[str, ...], shared: Mapping[str, int]) -> dict[str, DiskTimes]:
        times: dict[str, DiskTimes] = {}
        for name in devices:
            device = physical_device(self._source, name)
            if shared.get(device, 0) > 1:
                raise ParseError("disk", device, 1, "the disks of several guests lie on this device")
            where = f"{_BLOCK}/{device}/stat"
            times[device] = parse_block_stat(self._source.read(where), where)
        return times

    def _times_full(self, devices: tuple[str, ...]) -> dict[str, int]:
        """How often blkback found a request and had no room for it (drivers/block/xen-blkback: st_oo_req)."""
        paths = [f"{DEVICES}/{name}/statistics/oo_req" for name in devices]
        return {path: parse_counter(self._source.read(path), path) for path in paths}


def physical_device(source: HostSource, name: str) -> str:
    """Major and minor number of the block device of Dom0 that a disk lies on. Raises OSError and ParseError."""
    where = f"{DEVICES}/{name}/physical_device"
    return parse_physical_device(source.read(where), where)


_DOM0 = 0
_STUB = "-dm"  # libxl names the device-model domain of guest X so; its work belongs to the driver, not to a guest
_RELIST = 10  # readings after which domains are listed anew even without a sign of a change
_RELOOK = 60  # … and devices in xenstore, which takes a request per node …
_RETRY = 5  # … but sooner when domains or devices are new
_Hints = frozenset[tuple[int, frozenset[int], frozenset[int]]]
_ROOM_S = 0.5  # a tool gets at least so long, even late in a reading


class XenBackend:
    """Domains of a Xen host, read from its Dom0 as root.

    `trace` says what xentrace is asked for: `runstate` the changes of run state (executions, waiting, switches);
    `full` also the hypercalls of paravirtual guests (event-channel operations, granted pages), at several times the
    cost; `off` nothing: then CPU time comes from `xl list`, and what needs the scheduler is absent. Xen has a single
    trace: another xentrace cannot run meanwhile.
    """

    name = "xen"

    def __init__(self, source: HostSource | None = None, host: str | None = None, trace: Mode = DEFAULT_MODE) -> None:
        self._source = source or LiveSource()
        self._deadline = time.monotonic() + TIMEOUT_S
        try:
            if "control_d" not in self._source.read("/proc/xen/capabilities"):
                raise BackendError("this is a guest of Xen and not its Dom0: run the profiler in Dom0")
            self._info = parse_xl_info(self._tool("xl", "info"), "xl info")
        except ParseError as error:
            raise BackendError(f"Xen cannot be read: {error}") from None
        except OSError as error:
            raise BackendError(f"Xen cannot be read: {_explained(error)}") from None
        self.host = host or instance_id(socket.gethostname() or "localhost")
        self._trace = SchedulerTrace(self._source, self._info.cpu_mhz, trace)
        self._io = IoReader(self._source)
        self._cpu = CpuClock()
        self._domains: dict[int, ListedDomain] = {}
        self._guests: dict[str, ListedDomain] = {}
        self._hints: _Hints = frozenset()  # domains and their devices in Dom0 when they were listed
        self._readings = 0
        self._listed_at = self._looked_at = -_RELOOK
        self._stale = True  # devices have changed since xenstore was read
        self._looked: frozenset[int] = frozenset()  # domains that were there when devices were looked for
        self._attached: dict[int, Attached] = {}
        self._balloons_kb: dict[int, int] = {}  # that balloons took from domains, as of the last look in xenstore
        self._queues = HostQueues(self._source)
        self._stalls: dict[int, XenGuestStalls] = {}

    def list_instances(self) -> list[Instance]:
        self._begin()
        self._list()
        return [
            Instance(
                identifier,
                vcpus=max(1, row.vcpus),
                memory_mb=row.memory_mb,
                host=self.host,
                labels={**({"uuid": row.uuid} if row.uuid else {}), **name_label(row.name)},
            )
            for identifier, row in self._guests.items()
        ]

    def read_counters(self) -> Counters:
        self._begin()
        self._trace.drain()  # before the clock: the trace must not hold records younger than the reading
        time_s, monotonic_s = self._source.clock()
        self._trace.advance(monotonic_s)
        devices = self._io.read()
        absent: dict[str, str] = {}
        upcalls = attempt(absent, "events", self._io.events)
        before = self._guests
        self._relist(frozenset((domain, io.vifs, io.disks) for domain, io in devices.items()))
        self._settle()
        if self._look():  # interfaces were found to have other names
            devices = self._io.read()
        self._cpu.count(self._domains, self._trace)
        tasks = self._tasks()
        slow = self._read_slowly(devices, monotonic_s)
        instances = {
            identifier: self._domain(
                row, tasks, self._complete(row.domid, devices.get(row.domid, devices[OTHERS])), slow[row.domid]
            )
            for identifier, row in self._guests.items()
        }
        still = self._domains.keys()
        vanished = tuple(name for name, row in before.items() if name not in self._guests and row.domid in still)
        self._readings += 1
        self._source.sweep()
        driver = self._driver(tasks)
        return Counters(self.host, time_s, monotonic_s, instances, driver, self._whole(upcalls, absent), {}, vanished)

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        self._begin()
        self._list()
        row = self._guests.get(instance.id)
        if row is None:
            raise BackendError(f"instance {instance.id} is not on this host (list them with: cotenant-profiler once)")
        return read_isolation(self._tool, self._info, row)

    def close(self) -> None:
        """End xentrace and close all files."""
        self._trace.close()
        self._source.close()

    def _begin(self) -> None:
        """All tools of one call share one time limit."""
        self._deadline = time.monotonic() + TIMEOUT_S

    def _tool(self, *argv: str) -> str:
        def run() -> str:
            return run_tool(argv, max(_ROOM_S, self._deadline - time.monotonic()))

        return str(self._source.value(" ".join(argv), run))

    def _list(self) -> None:
        try:
            self._domains = parse_xl_list(self._tool("xl", "list", "-v"), "xl list")
            self._guests = _guests(self._domains)
        except ParseError as error:
            raise BackendError(f"domains cannot be listed: {error}") from None
        except FileNotFoundError as error:  # a recording holds a listing only for some of its readings
            if not self._domains:
                raise BackendError(f"domains cannot be listed: {_explained(error)}") from None
        except OSError as error:
            raise BackendError(f"domains cannot be listed: {_explained(error)}") from None

    def _relist(self, hints: _Hints) -> None:
        """List domains when there are signs of a change, when CPU time is needed, and now and then."""
        traced = not self._trace.problem and self._cpu.traced and self._trace.states.domains <= set(self._domains)
        if traced and hints == self._hints and self._readings - self._listed_at < _RELIST:
            return
        self._list()
        self._stale = self._stale or hints != self._hints or not self._looked >= set(self._domains)
        self._hints, self._listed_at = hints, self._readings
        self._trace.states.keep(self._domains)

    def _settle(self) -> None:
        """Ask xl for the state of vCPUs that have not changed it since the trace began."""
        states = self._trace.states
        known = states.times()
        if self._trace.problem or all(len(known.get(row.domid, ())) >= row.vcpus for row in self._domains.values()):
            return
        vcpus = or_none(lambda: parse_vcpu_list(self._tool("xl", "vcpu-list"), "xl vcpu-list")) or {}
        for (domain, number), vcpu in vcpus.items():
            if domain in self._domains:
                states.settle(domain, number, vcpu.state)

    def _look(self) -> bool:
        """Look in xenstore for devices that this Dom0's kernel does not drive, now and then and after changes.

        True = the names of interfaces changed.
        """
        since = self._readings - self._looked_at
        if since < _RETRY or (since < _RELOOK and not self._stale):
            return False
        self._looked_at, renamed = self._readings, self._io.renamed
        nodes = or_none(lambda: parse_xenstore(self._tool("xenstore-ls", "-f", "/local/domain"), "xenstore-ls"))
        if nodes is not None:
            self._stale = False
            self._looked, self._attached = frozenset(self._domains), attached_devices(nodes)
            balloons = {domain: or_none(parse_xen_balloon, nodes, domain) for domain in self._domains}
            self._balloons_kb = {domain: taken for domain, taken in balloons.items() if taken is not None}
            self._io.renamed = renamed_vifs(nodes)
        return self._io.renamed != renamed

    def _read_slowly(self, devices: Mapping[int, IoCounters], now_s: float) -> dict[int, SlowCounters]:
        """Every guest's counters that are read every ten seconds, as read last."""
        guests = [row.domid for row in self._guests.values()]
        self._stalls = {
            domain: self._stalls.get(domain) or XenGuestStalls(self._source, self._queues) for domain in guests
        }
        due = [domain for domain in guests if self._stalls[domain].slow.is_due(now_s)]
        if due:
            self._queues.begin()
            disks = [name for io in devices.values() for name in io.devices]
            shared = Counter(or_none(physical_device, self._source, name) or "" for name in disks)
            for domain in due:
                io = self._complete(domain, devices.get(domain, devices[OTHERS]))
                self._stalls[domain].read(io, shared, now_s)
        return {domain: stalls.slow for domain, stalls in self._stalls.items()}

    def _tasks(self) -> dict[int, dict[str, TaskCounters]]:
        if self._trace.problem:
            return {}
        return {
            domain: {
                f"d{domain}v{number}": TaskCounters(times.run_ns, times.wait_ns, times.executions)
                for number, times in vcpus.items()
            }
            for domain, vcpus in self._trace.states.times().items()
        }

    def _domain(
        self,
        row: ListedDomain,
        tasks: Mapping[int, Mapping[str, TaskCounters]],
        io: IoCounters,
        slow: SlowCounters,
    ) -> DomainCounters:
        absent = dict(io.absent)
        balloon_kb = self._balloons_kb.get(row.domid)
        balloon = {} if balloon_kb is None else {"balloon_mb": balloon_kb / 1024}
        own_tasks = tasks.get(row.domid, {})
        if self._trace.problem:
            absent["tasks"] = f"{self._trace.problem}; CPU time comes from xl list, in steps of 0.1 s"
        elif len(own_tasks) < row.vcpus:
            absent["tasks"] = "xentrace has not shown all of its vCPUs yet"
        return DomainCounters(
            max(1, row.vcpus),
            own_tasks,
            self._cpu.total_ns(row.domid),
            net_bytes=io.net_bytes,
            disk_bytes=io.disk_bytes,
            pages=io.pages,
            further=slow.counters,
            further_since=slow.since,
            gauges={**slow.gauges, **balloon, "rss_mb": float(row.memory_mb)},
            absent={**absent, **slow.absent},
        )

    def _complete(self, domain: int, io: IoCounters) -> IoCounters:
        """The counters without those that do not cover all of the domain's devices."""
        if domain in self._looked:
            missing = self._attached.get(domain, Attached()).missing(io)
        else:
            why = "xenstore was not read since it started: whether another domain drives its devices is unknown"
            missing = {} if io.net_bytes or io.disk_bytes else {"net_bytes": why, "disk_bytes": why}
        if not missing:
            return io
        return IoCounters(
            None if "net_bytes" in missing else io.net_bytes,
            None if "disk_bytes" in missing else io.disk_bytes,
            None,
            {**missing, **io.absent, "pages": next(iter(missing.values()))},
            interfaces=io.interfaces,
            devices=io.devices,
        )

    def _driver(self, tasks: Mapping[int, Mapping[str, TaskCounters]]) -> DomainCounters:
        """Dom0. Its pages are those it mapped and copied where hypercalls are traced, else those of its guests."""
        traced = self._trace.full and not self._trace.problem
        pages = self._trace.states.grant_pages.get(_DOM0, 0) if traced else None
        why = "" if traced else "hypercalls are not traced: its pages are those of its guests"
        io = IoCounters(None, None, pages, {} if traced else {"pages": why})
        return self._domain(self._domains[_DOM0], tasks, io, SlowCounters())

    def _whole(self, upcalls: int | None, absent: dict[str, str]) -> HostCounters:
        """The physical host. Steal is 0: whether Xen itself is a guest cannot be seen."""
        trace, switches = self._trace, None
        if trace.problem:
            absent["switches"] = trace.problem
        else:
            switches = trace.states.switches
        if trace.full:
            upcalls = None if trace.problem else trace.states.event_ops
            if trace.problem:
                absent["events"] = trace.problem
        return HostCounters(upcalls, self._cpu.busy_ns, 0, self._info.pcpus, switches, absent)


def _guests(domains: Mapping[int, ListedDomain]) -> dict[str, ListedDomain]:
    """Running domains by id, in order, without Dom0 and without those that emulate devices for others."""
    names = {row.name for row in domains.values()}
    guests: dict[str, ListedDomain] = {}
    for row in domains.values():
        stub = row.name.endswith(_STUB) and row.name.removesuffix(_STUB) in names
        if row.domid != _DOM0 and not row.gone and not stub:
            guests.setdefault(instance_id(row.name), row)
    return dict(sorted(guests.items()))


def _explained(error: OSError) -> str:
    """The error, and what to do about it."""
    if isinstance(error, FileNotFoundError):
        missing = error.filename or "a file"
        return f"{missing} is missing (run in Dom0 with Xen's tools installed and xenfs mounted on /proc/xen)"
    if isinstance(error, PermissionError):
        return f"{error.filename or 'it'} may not be read: run as root in Dom0"
    if isinstance(error, TimeoutError):
        return f"{error.strerror}: is xenstored running?"
    return f"{error.strerror or error} (run as root in Dom0)"
