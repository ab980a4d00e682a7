"""Who runs the commands on a host: by kind of hypervisor, by entry point of a cloud, in driver domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from advisor import plug_ins
from advisor.domain import Command
from advisor.errors import InvalidInput
from advisor.render import kvm, lxc, tc, xen
from advisor.render.change import RenderOptions, SettingsChange, Step
from advisor.render.names import DEFAULT_SCHEDULER, NATIVE, RENDER, SCHEDULER, cgroup_version, target_of
from profiler.host_kinds import TRAITS, HostKind
from profiler.observed import Host, Instance, format_cpus

# What the tool of each kind of hypervisor can set; each kind has one module, and one entry here.


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


# What the tool of each cloud can set; each has one module, and an entry point of the group `cotenant.renderers`.


class CloudTool(Protocol):
    """Commands of one cloud, each with its undo; a module, or an object. A command without argv says why there is none.

    What changes are made of stands in `advisor.render.change`, and what helps to write them in `names`, `groups` and
    `policing` beside it.
    """

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


def cloud_tool(name: str) -> CloudTool:
    """The tool of a cloud by the name that `names.target_of` took; InvalidInput where it cannot be imported."""
    tool: CloudTool = plug_ins.load(plug_ins.RENDERERS, name, "commands of", f"host.labels.{RENDER}")
    return tool


@dataclass(frozen=True, slots=True)
class Tools:
    """`target` is native, or the name of a cloud."""

    target: str
    options: RenderOptions

    @classmethod
    def of(cls, host: Host, target: str | None, scheduler: str | None, cgroup: int | None, uplink: str | None) -> Tools:
        """What is not given stands in the host's labels; InvalidInput for a target or a version that does not exist."""
        if cgroup not in (1, 2, None):
            raise InvalidInput(f"control groups have version 1 or 2, not {cgroup}", field="cgroup")
        version = cgroup or cgroup_version(host)
        options = RenderOptions(
            scheduler or host.labels.get(SCHEDULER) or DEFAULT_SCHEDULER,
            version or 2,
            uplink,
            cgroup_assumed=not version,
        )
        return cls(target_of(host, target), options)

    def cpu_and_disk(self, change: SettingsChange) -> Iterator[Step]:
        """Pins, weight, cap and disk limit."""
        if self.target != NATIVE:
            return cloud_tool(self.target).steps(change, self.options)
        return HOST_TOOLS[change.host.kind].steps(change, self.options)

    def network(self, change: SettingsChange, neighbours: Sequence[Instance] | None) -> Iterator[Step]:
        """The network limit: on the uplink where it can be shaped, else where the target can."""
        if self.target != NATIVE:
            return cloud_tool(self.target).network(change)
        if not tc.on_uplink(change.host, self.options.uplink):
            limited = HOST_TOOLS[change.host.kind].interface(change)
            if limited is not None:
                return limited
        return tc.steps(change, self.options.uplink, neighbours)

    def definition(self, change: SettingsChange) -> Iterator[Step]:
        """What keeps the settings over a restart; clouds keep theirs."""
        if self.target != NATIVE:
            return iter(())
        return HOST_TOOLS[change.host.kind].definition(change, self.options)


# Where the driver domain runs → commands: Dom0's vCPUs on Xen, the emulator threads of every guest on KVM.


def driver_commands(host: Host, cpus: tuple[int, ...], residents: Sequence[Instance], target: str) -> Iterator[Command]:
    """What moves the driver domain of `host` to these pCPUs, each with its undo; nothing where it is there already.

    A container's host has no driver domain, and a cloud's tools cannot say it.
    """
    everywhere = host.shared_cpus or tuple(host.cpus)
    now, then = (tuple(sorted(some or everywhere)) for some in (host.driver_cpus, cpus))
    if now == then or not TRAITS[host.kind].has_driver_domain:
        return
    if target != NATIVE:
        words = f"keep the driver domain of {host.id} to CPUs {format_cpus(then)} with the host's own tools"
        yield Command(target, (), (), words)
    else:
        yield from HOST_TOOLS[host.kind].move_driver(host, now, then, residents)


def weigh_driver(host: Host, weight: int, target: str) -> Iterator[Command]:
    """What gives the driver domain of `host` this scheduler weight, with its undo; nothing where it has that already,
    or shares the control groups of its guests."""
    if weight == host.driver_weight or not TRAITS[host.kind].driver_apart:
        return
    if target != NATIVE:
        words = f"give the driver domain of {host.id} the weight {weight} with the host's own tools"
        yield Command(target, (), (), words)
    else:
        yield from xen.weigh_driver(host, weight, host.labels.get(SCHEDULER) or DEFAULT_SCHEDULER)
