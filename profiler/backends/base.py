"""The interface between hypervisors and collectors: the Backend protocol and the cumulative counters it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from profiler.observed import Instance, IsolationSettings


class BackendError(Exception):
    """A backend cannot work on this host; the message says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class TaskCounters:
    """The scheduler's counts for one thread of a container or one vCPU; each time slice begins with a switch to it.

    `io_bytes` is only set where the host keeps no count of block I/O per instance.
    """

    run_ns: int
    wait_ns: int
    timeslices: int
    io_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DomainCounters:
    """Cumulative counters of one instance or of the driver domain.

    `cpu_ns` is the host's own account of all run time, vanished tasks included; None = sum the tasks.
    `pages` counts exchanged pages where the hypervisor does (Xen's rings); None = they are computed from the bytes.
    `interrupt_ns` and `executions` are run time and execution periods outside any task (softirqs of the driver domain).
    `tasks` are a container's threads or a VM's vCPUs, by a lasting name; unknown where `absent` has "tasks".
    `further` holds cumulative counters beyond the eight metrics, suffix = unit (`_ns`, `_us`); where a backend reads
    them less often than the others, `further_since` holds the values of the reading before and how many seconds before
    that was. `gauges` holds current values. `absent` says why a counter is None or missing.
    """

    vcpus: int
    tasks: Mapping[str, TaskCounters]
    cpu_ns: int | None = None
    interrupt_ns: int = 0
    executions: int = 0
    net_bytes: int | None = None
    disk_bytes: int | None = None
    pages: int | None = None
    further: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    further_since: tuple[Mapping[str, int], float] | None = None


@dataclass(frozen=True, slots=True)
class HostCounters:
    """Cumulative counters of the whole host; ns are summed over CPUs.

    `events` are event-channel events or what stands in for them, None = not counted here. `switches` are switches of
    control among instances where the hypervisor counts them; None = they are summed over the tasks. `further`,
    `further_since` and `gauges` are about memory, as those of `DomainCounters`.
    """

    events: int | None
    busy_ns: int
    steal_ns: int
    pcpus: int
    switches: int | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    further: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    further_since: tuple[Mapping[str, int], float] | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """One reading of everything at (nearly) one time.

    `time_s` is the epoch time for people and databases, `monotonic_s` the clock that rates are computed with.
    `driver` or `whole` is None when the host does not show it; `absent` says why. `vanished` names instances that went
    away while being read.
    """

    host: str
    time_s: float
    monotonic_s: float
    instances: Mapping[str, DomainCounters]
    driver: DomainCounters | None
    whole: HostCounters | None
    absent: Mapping[str, str] = field(default_factory=dict)
    vanished: tuple[str, ...] = ()


class Backend(Protocol):
    """Reads one kind of hypervisor. No method changes anything on the host."""

    @property
    def name(self) -> str:
        """`lxc`, `xen`, `libvirt` or `recorded`."""

    @property
    def host(self) -> str:
        """Id of the host that is read."""

    def list_instances(self) -> list[Instance]:
        """Every running instance, ordered by id."""

    def read_counters(self) -> Counters:
        """Read all instances in bulk; an instance that vanishes meanwhile is named in `vanished`, never an error."""

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        """What holds this instance back now; a setting that cannot be read is None."""

    def close(self) -> None:
        """Stop every tool and close every file that reading keeps open; harmless when called twice."""


@runtime_checkable
class ThreadedBackend(Protocol):
    """A backend whose instances are threads of this kernel."""

    def threads(self) -> Mapping[str, tuple[int, ...]]:
        """Threads of each instance as of the last reading: the vCPUs of a guest, all tasks of a container."""

    def counted_groups(self) -> Mapping[str, str]:
        """Folder of the control group by which the kernel's perf events can count an instance; those without one are
        left out, and are counted by their threads."""


@runtime_checkable
class GroupedBackend(Protocol):
    """A backend whose instances are control groups to the CPU scheduler of this kernel."""

    def scheduling_groups(self) -> Mapping[int, str]:
        """Instance by the number of a group (its inode in the tree of the cpu controller); others are left out."""
