"""Which tool runs the commands on a host, and all settings of an instance or a host as commands, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Protocol

from advisor import plug_ins
from advisor.domain import Command, IsolationSettings
from advisor.errors import InvalidInput
from advisor.render import kvm, lxc, tc, xen
from advisor.render.change import Phase, RenderOptions, SettingsChange, Step
from advisor.render.names import DEFAULT_SCHEDULER, NATIVE, RENDER, SCHEDULER, cgroup_version, target_of
from advisor.render.tc import is_shaped
from profiler.host_kinds import TRAITS, HostKind
from profiler.observed import Host, Instance, NetworkSettings, format_cpus

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


# What stands in the way of carrying settings out as commands: a label that is missing, or what a tool cannot say.


def unmet(
    host: Host,
    instances: Sequence[Instance],
    changes: Mapping[str, IsolationSettings],
    driver_cpus: tuple[int, ...] | None = None,
) -> tuple[str, ...]:
    """Why commands cannot give these instances of `host` their `changes` (by id), or its driver domain these CPUs.

    One phrase for each reason, in the order of the instances; () = nothing stands in the way. Options are the host's
    own, as in `plan` without any.
    """
    return tuple(dict.fromkeys(_reasons(host, instances, changes, driver_cpus)))


def _reasons(
    host: Host,
    instances: Sequence[Instance],
    changes: Mapping[str, IsolationSettings],
    driver_cpus: tuple[int, ...] | None,
) -> Iterator[str]:
    try:
        tools = Tools.of(host, None, None, None, None)
        for command in driver_commands(host, driver_cpus, instances, tools.target) if driver_cpus else ():
            if not command.argv:
                yield command.note
        for instance in instances:
            if instance.id in changes:
                change = SettingsChange(host, instance, instance.settings, changes[instance.id])
                for step in (*tools.cpu_and_disk(change), *tools.network(change, None)):
                    if step.needs:
                        yield f"needs {step.needs} to be carried out"
                    elif not step.command.argv:
                        yield step.command.note
    except InvalidInput as error:  # a name or a label that no command may hold; without commands it is no fault
        yield error.message


class Moment(IntEnum):
    """When a step of the plan runs; within a moment, in the order of the residents.

    An instance that only gives up CPUs disturbs no other. One that moves onto new ones is held back before, so that no
    instance there meets it without its limits. The new VM comes when all residents are where it was predicted to find
    them.
    """

    GIVES_UP_CPUS = 0
    TIGHTENS_BEFORE_IT_MOVES = 1
    MOVES = 2
    LOOSENS = 3
    TIGHTENS = 4
    NEW_VM = 5
    NOTE = 6


def plan(
    host: Host,
    new_vm: Instance,
    desired: IsolationSettings,
    residents: Sequence[Instance],
    changes: Mapping[str, IsolationSettings],
    *,
    scheduler: str | None = None,
    cgroup: int | None = None,
    uplink: str | None = None,
    target: str | None = None,
    driver_cpus: tuple[int, ...] | None = None,
    now: IsolationSettings | None = None,
) -> tuple[Command, ...]:
    """What to run so that `new_vm` comes to `host` with the settings `desired`, and residents get their `changes` (by
    id, what their settings leave out stays), in this order; undo goes backwards.

    `residents` are all others who are on the host, with the settings that hold now; `now` are those of the instance
    in question where it is there already, None = it comes, and nothing holds for it yet. The driver domain first moves
    to `driver_cpus`, None = it stays. Only what differs is rendered. Beside the commands stand, without argv, the texts
    that make the settings last: those of
    the new VM before its own commands, which need it to run. Options and errors are those of `commands`; InvalidInput
    also for changes to an instance that is not on the host, and for a new VM that is.
    """
    known = {resident.id for resident in residents}
    strangers = sorted(set(changes) - known)
    if strangers:
        raise InvalidInput(f"instance {strangers[0]} is to be changed and is not on host {host.id}", field="changes")
    if new_vm.id in known:
        raise InvalidInput(f"instance {new_vm.id} is on host {host.id} already", field="instance.id")
    tools = Tools.of(host, target, scheduler, cgroup, uplink)
    settled = replace(host, driver_cpus=driver_cpus) if driver_cpus else host  # where emulator threads go with a pin
    entering = SettingsChange(settled, new_vm, now or IsolationSettings(), desired, comes=now is None)
    staying = [
        SettingsChange(settled, resident, resident.settings, changes[resident.id])
        for resident in residents
        if resident.id in changes and _differs(resident.settings, changes[resident.id])
    ]
    timed_steps: list[tuple[Moment, Step]] = []
    for change in _one_after_another(staying):
        timed_steps += [(_moment(change, step.phase), step) for step in tools.cpu_and_disk(change)]
        timed_steps += [(Moment.NOTE, step) for step in tools.definition(change)]
    lasting = Moment.NEW_VM if now is None else Moment.NOTE
    if now is None or _differs(now, desired):
        timed_steps += [(lasting, step) for step in tools.definition(entering)]
    for change, others in _networks(staying, entering, residents):
        steps = tools.network(change, others)
        timed_steps += [(Moment.NEW_VM if change is entering else _by_phase(step.phase), step) for step in steps]
    own = sorted(tools.cpu_and_disk(entering), key=lambda step: step.phase)
    timed_steps += [(Moment.NEW_VM, step) for step in own]
    moved = driver_commands(host, driver_cpus, residents, tools.target) if driver_cpus else ()
    return (*moved, *(step.command for _, step in sorted(timed_steps, key=lambda timed: timed[0])))


def _differs(now: IsolationSettings, desired: IsolationSettings) -> bool:
    return any(getattr(desired, f.name) not in (None, getattr(now, f.name)) for f in fields(desired))


def _moment(change: SettingsChange, phase: Phase) -> Moment:
    if _reached(change):
        if phase is Phase.PIN:
            return Moment.MOVES
        if phase is Phase.TIGHTEN:
            return Moment.TIGHTENS_BEFORE_IT_MOVES
    return _by_phase(phase)


def _by_phase(phase: Phase) -> Moment:
    return {
        Phase.PIN: Moment.GIVES_UP_CPUS,
        Phase.LOOSEN: Moment.LOOSENS,
        Phase.TIGHTEN: Moment.TIGHTENS,
        Phase.NOTE: Moment.NOTE,
    }[phase]


def _reached(change: SettingsChange) -> frozenset[int]:
    """pCPUs that the instance may use afterwards and not now."""
    return frozenset().union(*(then - now for _, now, then in change.moved_vcpus()))


def _left(change: SettingsChange) -> frozenset[int]:
    """pCPUs that it uses now and not afterwards."""
    return frozenset().union(*(now - then for _, now, then in change.moved_vcpus()))


def _one_after_another(changes: Sequence[SettingsChange]) -> Iterator[SettingsChange]:
    """Who moves onto CPUs that another is about to leave comes after it; where they change places, as they stand."""
    waiting = list(changes)
    while waiting:
        chosen = next((change for change in waiting if not _meets(change, waiting)), waiting[0])
        waiting = [change for change in waiting if change is not chosen]
        yield chosen


def _meets(change: SettingsChange, waiting: Sequence[SettingsChange]) -> bool:
    return any(_reached(change) & _left(other) for other in waiting if other is not change)


def _networks(
    staying: Sequence[SettingsChange], entering: SettingsChange, residents: Sequence[Instance]
) -> Iterator[tuple[SettingsChange, tuple[Instance, ...]]]:
    """Changes with the instances that they find shaped on the uplink: first who leaves it, the new VM last.

    The tree must stay while any instance has a class in it, now or at the end, so one that leaves also sees those to
    come.
    """
    then = {change.instance.id: change.desired.network or change.current.network for change in (*staying, entering)}
    done: set[str] = set()
    leaving = [c for c in staying if is_shaped(c.current.network) and not is_shaped(then[c.instance.id])]
    order = [*leaving, *(c for c in staying if c not in leaving and is_shaped(c.current.network))]
    order += [c for c in staying if c not in order]
    for change in (*order, entering):
        all_instances = (*residents, entering.instance)
        others = []
        for other in all_instances:
            now = other.settings.network if other is not entering.instance else None
            later = then.get(other.id, now)
            if other.id != change.instance.id:
                soon = later if change in leaving or other.id in done else None
                others.append(_with_network(other, now if is_shaped(now) else soon))
        done.add(change.instance.id)
        yield change, tuple(others)


def _with_network(instance: Instance, network: NetworkSettings | None) -> Instance:
    return replace(instance, settings=IsolationSettings(network=network))
