"""What the tool of each cloud can set; each cloud has one module, and one entry here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from advisor.domain import Command
from advisor.render import cloudstack, kubevirt, openstack, proxmox
from advisor.render.change import RenderOptions, SettingsChange, Step
from profiler.observed import Host, Instance


class CloudTool(Protocol):
    """Commands of one cloud, each with its undo. A command without argv says why there is none."""

    TOOL: str
    PINS_TRAVEL: bool  # whether an instance that moves keeps a pinning, which then speaks of the wrong host's CPUs

    def steps(self, change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
        """Pins, weight, cap and disk limit."""
        ...

    def network(self, change: SettingsChange) -> Iterator[Step]:
        """The limit on what it sends."""
        ...

    def migrate(self, instance: Instance, source: Host, target: Host) -> Command:
        """The live migration."""
        ...

    def set_vcpus(self, host: Host, former: Instance, then: Instance) -> Command:
        """Another number of vCPUs where it is."""
        ...


CLOUD_TOOLS: Mapping[str, CloudTool] = MappingProxyType(
    {"openstack": openstack, "cloudstack": cloudstack, "proxmox": proxmox, "kubernetes": kubevirt}
)
