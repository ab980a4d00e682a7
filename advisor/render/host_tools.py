"""What the tool of each kind of hypervisor can set; each kind has one module, and one entry here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from advisor.domain import Command
from advisor.render import kvm, lxc, xen
from advisor.render.change import RenderOptions, SettingsChange, Step
from profiler.host_kinds import HostKind
from profiler.observed import Host, Instance


class HostTool(Protocol):
    """Commands of one kind of hypervisor, each with its undo. A command without argv says why there is none."""

    def steps(self, change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
        """Pins, weight, cap and disk limit of what runs."""
        ...

    def interface(self, change: SettingsChange) -> Iterator[Step] | None:
        """The network limit at the instance's own interface, where tc cannot shape the uplink; None = it cannot be."""
        ...

    def definition(self, change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
        """What to write down, so that the instance starts with its settings."""
        ...

    def migrate(self, instance: Instance, source: Host, target: Host) -> Command:
        """The live migration, started on `source`."""
        ...

    def set_vcpus(self, former: Instance, then: Instance) -> Command:
        """Another number of vCPUs where it is."""
        ...

    def move_driver(
        self, host: Host, now: tuple[int, ...], then: tuple[int, ...], residents: Sequence[Instance]
    ) -> Iterator[Command]:
        """What moves the driver domain from the pCPUs `now` to those of `then`."""
        ...


HOST_TOOLS: Mapping[HostKind, HostTool] = MappingProxyType({"xen": xen, "kvm": kvm, "lxc": lxc})
