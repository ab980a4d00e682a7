"""What instances of all kinds are made from, and the interface of the programs in them or against them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from lab.campaign import Cpus, GuestSettings
from lab.resource_registry import ResourceRegistry
from lab.schedule import PlacedMember
from lab.workloads import Workload

Transport = Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """The instances to build for one run. Instance `placed[i]` runs `workloads[i]`; scratch files go below `directory`.

    `link_mbit` is the rate of the uplink that `shared` instances share, None = they share no link. `line_mbit` is the
    rate of the line by which all traffic to the generators leaves, also that of instances without shaping; it is then
    the shared link, too. None = as fast as the host. Instances without an HTB class of their own queue there in one
    fifo of `queue_packets`. `driver_cpus` are the CPUs that do the host's I/O work for the instances (softirqs of a
    container's packets, QEMU's threads beside the vCPUs, vhost), None = where the kernel puts it. With `fill_idle` a
    program beside the containers works on each CPU whenever nobody else does.
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
