"""Interfaces of instances of all kinds: start and stop them, wait for servers, run programs in or against them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from lab.campaign import Cpus, GuestSettings
from lab.resource_registry import ResourceRegistry
from lab.schedule import PlacedMember
from lab.workloads import Site, Workload
from profiler.backends.base import Backend

Transport = Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """The instances to build for one run. Instance `placed[i]` runs `workloads[i]`; scratch files go below `directory`.

    `link_mbit` is the rate of the uplink that `shared` instances share, None = they share no link. `line_mbit` is the
    rate of the line that everybody's traffic to the generators leaves by, also that of instances without shaping, None
    = as fast as the host; it is the link then. Who has no HTB class of its own queues there in one fifo of
    `queue_packets`. `driver_cpus` are the CPUs that do the host's I/O work for the instances (softirqs of a container's
    packets, QEMU's threads beside the vCPUs, vhost), None = where the kernel puts it. With `fill_idle` containers are
    accompanied by a program that works on each CPU whenever nobody else does.
    """

    registry: ResourceRegistry
    placed: tuple[PlacedMember, ...]
    workloads: tuple[Workload, ...]
    directory: Path
    link_mbit: float | None = None
    driver_cpus: Cpus | None = None
    guests: GuestSettings = field(default_factory=GuestSettings)
    line_mbit: float | None = None
    queue_packets: int = 1000
    fill_idle: bool = False


class Program(Protocol):
    """A program that was started in an instance, or against one."""

    @property
    def command(self) -> tuple[str, ...]: ...

    @property
    def returncode(self) -> int | None:
        """None while it runs."""

    def release(self) -> None:
        """Let a program that was started with `wait` begin."""

    def output(self) -> str: ...

    def errors(self) -> str:
        """The end of what it complained about, on one line."""

    def terminate(self) -> None:
        """Ask it to end, once, and do not wait for it."""

    def stop(self, patience_s: float = 1.0) -> None:
        """End it: politely, then by force; safe to repeat."""

    def check(self) -> None:
        """Raise RunError when it ended with a failure."""


class RunningInstance(Protocol):
    """A running instance."""

    @property
    def placed(self) -> PlacedMember: ...

    @property
    def workload(self) -> Workload: ...

    @property
    def site(self) -> Site: ...

    @property
    def lead_s(self) -> float:
        """How long the measuring program needs here from its release until it works."""

    def start(self, command: list[str], *, wait: bool = False) -> Program:
        """Start the program that works: inside the instance, or in the generators' namespace for served workloads."""

    def start_inside(self, command: list[str], *, wait: bool = False) -> Program: ...

    def listens(self, transport: Transport, port: int) -> bool:
        """Whether anything in the instance waits on this port."""


class Instances(Protocol):
    """Context manager: on entry all instances run and their servers are ready; on exit everything is removed."""

    @property
    def running(self) -> list[RunningInstance]: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def backend(self) -> Backend:
        """Reads exactly these instances."""

    def generator_ns(self) -> dict[str, int]:
        """CPU time so far of each instance's load generator, by instance."""

    def all_tasks_ns(self) -> int | None:
        """CPU time so far of every task on this host; None where that is not counted exactly."""

    def filler_ns(self) -> int:
        """CPU time so far of the programs that fill idle CPUs."""

    def host_cpus(self) -> frozenset[int]:
        """CPUs that instances run on, by the numbers under which this system has them; none where it has other CPUs."""


@runtime_checkable
class DescribedInstances(Protocol):
    """Instances that describe how they were made, beyond the campaign's settings."""

    def circumstances(self) -> dict[str, str]:
        """As text by name, for the dataset's description; the same for all runs of a campaign."""
