"""What instances of all kinds are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lab.campaign import GuestSettings
from lab.network import Wiring
from lab.resource_registry import ResourceRegistry
from lab.schedule import PlacedMember
from lab.workloads import Workload

Transport = Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """The instances to build for one run. Instance `placed[i]` runs `workloads[i]`; scratch files go below `directory`.

    The `driver_cpus` of `wiring` do all of the host's I/O work for the instances: softirqs of a container's packets,
    QEMU's threads beside the vCPUs, vhost, a whole Dom0. With `fill_idle` a program beside the containers works on each
    CPU whenever no other program does. Containers get at most `host_cap_percent` together, 100 = one CPU, None = all.
    What the `host_groups` do is the host's I/O work, too, so their CPU time does not count as that of others.
    """

    registry: ResourceRegistry
    placed: tuple[PlacedMember, ...]
    workloads: tuple[Workload, ...]
    directory: Path
    wiring: Wiring = field(default_factory=Wiring)
    guests: GuestSettings = field(default_factory=GuestSettings)
    fill_idle: bool = False
    host_cap_percent: float | None = None
    host_groups: tuple[str, ...] = ()
