"""Steps of a plan → commands: a move to another host, a placement, another size, other settings; each with its undo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.domain import Command
from advisor.render import commands, tc, whole
from advisor.render.names import NATIVE, target_of
from advisor.render.whole import HOST_TOOLS, CloudTool, cloud_tool
from advisor.render.whole import plan as of_new_vm
from profiler.host_kinds import TRAITS
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

_ANYWHERE: tuple[int, ...] = ()


def resettle(
    former: Instance, then: Instance, source: Host, target: Host, left: Sequence[Instance], met: Sequence[Instance],
    changes: Mapping[str, IsolationSettings], driver_cpus: tuple[int, ...] | None,
) -> tuple[Command, ...]:  # fmt: skip
    """What brings a running instance to what is advised: on its own host, or on another one, where those it meets get
    their `changes` before it comes.

    `former` and `then` are how it is before and after, `left` the others at the source and `met` those at the target.
    """
    if source.id == target.id:
        desired = explicit(former, then)
        size = resize(target, former, then) if former.vcpus != then.vcpus else ()
        settled = of_new_vm(target, then, desired, met, changes, driver_cpus=driver_cpus, now=former.settings)
        return (*size, *settled)
    eased: list[Command] = []
    for resident in met if changes or driver_cpus else ():
        if resident.id in changes:
            beside = [other for other in met if other.id != resident.id]
            now = resident.settings
            eased += run_on(target, commands(target, resident, now, changes[resident.id], neighbours=beside))
    driven = tuple(whole.driver_commands(target, driver_cpus, met, target_of(target, None))) if driver_cpus else ()
    there = [replace(each, settings=changes.get(each.id, each.settings)) for each in met]
    size = resize(target, former, then) if former.vcpus != then.vcpus else ()
    return (*run_on(target, driven), *eased, *move(former, then, source, target, left, there), *size)


def explicit(former: Instance, then: Instance) -> IsolationSettings:
    """The settings of `then`; without a pinning where it has one now, any pCPU."""
    if former.settings.pinning is None or then.settings.pinning is not None:
        return then.settings
    return replace(then.settings, pinning=Pinning((_ANYWHERE,) * then.vcpus))


def move(
    former: Instance, then: Instance, source: Host, target: Host, left: Sequence[Instance], met: Sequence[Instance]
) -> tuple[Command, ...]:
    """What brings a running instance from `source` to `target` and sets there what it is to run under, in this order.

    `former` and `then` are how it is before and after, `left` those who stay at the source, `met` those it meets at the
    target. A command with a note that begins with "on" runs there. Without argv it says why there is no command.
    InvalidInput for names that a tool would read as something else.
    """
    runs = target_of(source, None)
    if source.kind != target.kind or runs != target_of(target, None):
        text = f"no tool moves a running instance from a {source.kind} host to a {target.kind} host of other tools"
        tool = TRAITS[source.kind].tool if runs == NATIVE else cloud_tool(runs).TOOL
        return (Command(tool, (), (), f"{text}: {then.id} is stopped on {source.id} and made anew on {target.id}"),)
    if runs != NATIVE:
        return tuple(_by_cloud(cloud_tool(runs), former, then, source, target, left, met))
    migration = HOST_TOOLS[source.kind].migrate(then, source, target)
    if not migration.argv:
        return (migration, *_arrived(then, target, met), *_unshaped(former, source, left))
    arrived = tuple(_arrived(then, target, met))
    # A class on the uplink needs no running instance: there before it, it holds from the first packet on.
    ready = tuple(command for command in arrived if command.argv and command.tool == "tc")
    return (
        *_unpinned(former, source, left),
        *ready,
        _live(migration, source, target),
        *(command for command in arrived if command not in ready),
        *_unshaped(former, source, left),
    )


def place(then: Instance, target: Host, met: Sequence[Instance]) -> tuple[Command, ...]:
    """What an instance that comes needs on its host; whoever starts it puts it there."""
    return of_new_vm(target, then, then.settings, met, {})


def settings(host: Host, former: Instance, then: Instance, beside: Sequence[Instance]) -> tuple[Command, ...]:
    """From the settings that an instance has to those it should have where it is."""
    return commands(host, then, former.settings, then.settings, neighbours=beside)


def resize(host: Host, former: Instance, then: Instance) -> tuple[Command, ...]:
    """Another number of vCPUs where it is."""
    runs = target_of(host, None)
    if runs != NATIVE:
        return (cloud_tool(runs).set_vcpus(host, former, then),)
    sets = HOST_TOOLS[host.kind].set_vcpus(former, then)
    return (replace(sets, note=f"on {host.id}; {sets.note}") if sets.argv else sets,)


def _live(migration: Command, source: Host, target: Host) -> Command:
    """The same, with what both hosts need; the tool is started where the instance is."""
    note = f"on {source.id}, its undo on {target.id}; both need each other's keys (ssh) and the same storage"
    return replace(migration, note=f"{note}; {migration.note}" if migration.note else note)


def _by_cloud(
    tool: CloudTool, former: Instance, then: Instance, source: Host, target: Host, left: Sequence[Instance],
    met: Sequence[Instance],
) -> Iterator[Command]:  # fmt: skip
    """The move, and what is to hold there; a pinning that would go along comes off before."""
    now = former.settings
    if tool.PINS_TRAVEL:
        yield from _unpinned(former, source, left)
        now = replace(now, pinning=None)
    yield tool.migrate(then, source, target)
    yield from commands(target, then, now, then.settings, neighbours=met)


def _unpinned(former: Instance, source: Host, left: Sequence[Instance]) -> Iterator[Command]:
    """Pins speak of the pCPUs of one host, and go along: they come off before."""
    if former.settings.pinning is not None:
        free = IsolationSettings(pinning=Pinning((_ANYWHERE,) * former.vcpus))
        yield from run_on(source, commands(source, former, former.settings, free, neighbours=left))


def _arrived(then: Instance, target: Host, met: Sequence[Instance]) -> Iterator[Command]:
    yield from run_on(target, place(then, target, met))


def _unshaped(former: Instance, source: Host, left: Sequence[Instance]) -> Iterator[Command]:
    """Its class on the uplink that it left."""
    if tc.is_shaped(former.settings.network) and tc.on_uplink(source, None):
        shaped, free = (
            IsolationSettings(network=network) for network in (former.settings.network, NetworkSettings("none"))
        )
        yield from run_on(source, commands(source, former, shaped, free, neighbours=left))


def run_on(host: Host, rendered: Sequence[Command]) -> Iterator[Command]:
    """The same commands with a note on which host they run."""
    for command in rendered:
        note = f"on {host.id}; {command.note}" if command.note else f"on {host.id}"
        yield replace(command, note=note) if command.argv else command
