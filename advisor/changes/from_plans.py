"""From a plan, a tuning or an answer to the changes that carry it out on the cloud as it is now.

Commands are rendered anew from what each step sets, so that they fit what hosts report by now, whatever was printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.changes.controller import Executors, Meaning
from advisor.domain import (
    Band,
    Change,
    Command,
    Effect,
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    Plan,
    PlanStep,
    PredictedEffect,
    Recommendation,
    settings_there,
)
from advisor.errors import InvalidInput
from advisor.render import commands, tc, whole
from advisor.render.migrations import explicit
from advisor.render.names import NATIVE, target_of
from advisor.render.whole import HOST_TOOLS, cloud_tool
from profiler.observed import NetworkSettings, Pinning

MOST_CHANGES = 1_000
MOST_CONTROLS = 20
MOST_LEARNED = 500  # instances on changed hosts
FELT = 0.005  # of relative throughput: less is no effect that is worth a line


@dataclass(slots=True)
class _Cloud:
    """The cloud on the way: hosts and instances as they are after the steps so far."""

    hosts: dict[str, Host]
    instances: dict[str, Instance]

    def host(self, name: str | None) -> Host:
        if name not in self.hosts:
            raise InvalidInput(f"host {name} of the plan is not in the inventory: plan again", field="host")
        return self.hosts[name]

    def instance(self, name: str) -> Instance:
        if name not in self.instances:
            raise InvalidInput(f"instance {name} of the plan is not in the inventory: plan again", field="instance")
        return self.instances[name]

    def on(self, host: Host, *, but: str = "") -> list[Instance]:
        return [one for _, one in sorted(self.instances.items()) if one.host == host.id and one.id != but]


@dataclass(frozen=True, slots=True)
class _Rendered:
    """What is run on a host for an instance; with `to` the instance `moves` there, and the command is for people.
    `assumed` = what it has before is known."""

    host: Host
    instance: str
    command: Command
    moves: Instance | None = None
    to: Host | None = None
    assumed: bool = True


def changes_of(
    steps: Sequence[PlanStep], inventory: Inventory, executors: Executors, *, left: list[str] | None = None
) -> tuple[Change, ...]:
    """The changes of these steps in their order; InvalidInput where one cannot be carried out, with what to do.

    With `left` such a step is left out, and why goes there.
    """
    cloud = _Cloud({host.id: host for host in inventory.hosts}, {one.id: one for one in inventory.instances})
    changes: list[Change] = []
    for step in steps:
        before = {name: cloud.instances.get(name) for name in (step.instance, *step.changes)}
        try:
            changes += _of_step(step, cloud, executors, len(changes))
        except InvalidInput as error:
            if left is None:
                raise
            left.append(f"{step.subject} stays on {step.source}: {error.message}")
            cloud.instances |= {name: one for name, one in before.items() if one is not None}
    if len(changes) > MOST_CHANGES:
        raise InvalidInput(f"{len(changes)} changes are more than {MOST_CHANGES}: plan for fewer hosts", field="steps")
    return tuple(changes)


def _of_step(step: PlanStep, cloud: _Cloud, executors: Executors, first: int) -> list[Change]:
    changes: list[Change] = []
    for rendered in _rendered(step, cloud):
        command = rendered.command
        if rendered.moves is not None and rendered.to is not None:
            name, meaning = executors.moving(rendered.moves, rendered.host, rendered.to)
        elif command.argv:
            name, meaning = executors.meaning(rendered.host, command)
        else:
            what = f"step {step.subject} on {rendered.host.id} cannot be carried out"
            raise InvalidInput(f"{what}: {command.note}", field="steps")
        made = change_of(first + len(changes), rendered.host, name, meaning, rendered.instance, command)
        changes.append(made if rendered.assumed else replace(made, before={}))
    return changes


def scenes_of(steps: Sequence[PlanStep], inventory: Inventory) -> tuple[tuple[Instance, ...], tuple[Instance, ...]]:
    """Instances on the hosts that these steps change, as they are before and after; both empty where these are many."""
    cloud = _Cloud({host.id: host for host in inventory.hosts}, {one.id: one for one in inventory.instances})
    hosts = {name for step in steps for name in (step.host, step.source) if name}
    for step in steps:
        for _ in _rendered(step, cloud):
            pass
    there = tuple(one for one in inventory.instances if one.host in hosts)
    then = tuple(one for _, one in sorted(cloud.instances.items()) if one.host in hosts)
    return (there, then) if len(there) <= MOST_LEARNED else ((), ())


def change_of(
    number: int, host: Host, executor: str, meaning: Meaning, instance: str = "", command: Command | None = None
) -> Change:
    """A change on a host; the executor's own command counts for more than the rendered one."""
    return Change(
        number=number,
        host=host.id,
        instance=instance,
        kind=meaning.kind,
        executor=executor,
        target=meaning.target,
        before=meaning.before,
        after=meaning.after,
        command=meaning.command or (command.argv if command else ()),
        undo=meaning.undo or (command.undo if command else ()),
    )


def steps_of_answer(answer: Recommendation) -> tuple[PlanStep, ...]:
    """What an answer about an instance that runs already comes to; InvalidInput for another one."""
    instance = answer.request.instance
    if answer.present is None or answer.advised not in ("settings", "move"):
        advised = "a place for a new VM" if answer.advised == "place" else "to change nothing"
        message = f"answer {answer.id} advises {advised}: only settings and moves of running instances are carried out"
        raise InvalidInput(message, field="id")
    best = answer.best
    tuned = tuple(
        PlanStep(
            one.instance, best.host, action="settings" if one.instance else "driver_domain", source=best.host,
            settings=one.settings, driver_cpus=one.driver_cpus, driver_weight=one.driver_weight,
        )
        for one in best.tuning
    )  # fmt: skip
    own = PlanStep(
        instance.id, best.host, action="settings" if best.host == answer.present.host else "move",
        source=answer.present.host, settings=settings_there(instance, best), changes=best.changes,
    )  # fmt: skip
    return (*tuned, own)


def predicted_by_plan(plan: Plan, changes: Sequence[Change], inventory: Inventory) -> tuple[PredictedEffect, ...]:
    """What the plan says of every instance on the hosts that it changes, with the controls of each."""
    before = {effect.instance: effect for effects in plan.before.values() for effect in effects}
    hosts = {change.host for change in changes} | {step.source for step in plan.steps if step.source}
    pairs = [
        (before[effect.instance], effect)
        for host in sorted(hosts & plan.after.keys())
        for effect in plan.after[host]
        if effect.instance in before
    ]
    bands = {then.instance: (now.throughput_ratio, then.throughput_ratio) for now, then in pairs}
    return _with_controls(bands, hosts, changes, inventory)


def predicted_by_answer(
    answer: Recommendation, changes: Sequence[Change], inventory: Inventory
) -> tuple[PredictedEffect, ...]:
    """The same of an answer: the instance itself, and those on its host."""
    best, present = answer.best, answer.present
    effects: tuple[Effect, ...] = (best.new_vm, *best.neighbours)
    bands = {one.instance: (one.before, one.throughput_ratio) for one in effects if one.before is not None}
    if present is not None:
        name = answer.request.instance.id
        bands[name] = (present.new_vm.throughput_ratio, best.new_vm.throughput_ratio)
    return _with_controls(bands, {change.host for change in changes}, changes, inventory)


def _with_controls(
    bands: Mapping[str, tuple[Band, Band]], hosts: set[str], changes: Sequence[Change], inventory: Inventory
) -> tuple[PredictedEffect, ...]:
    changed = {change.instance for change in changes}
    there = {one.id: one for one in inventory.instances}
    return tuple(
        PredictedEffect(name, before, then, _controls(there[name], hosts, inventory))
        for name, (before, then) in sorted(bands.items())
        if name in there and (name in changed or abs(then.expected - before.expected) >= FELT)
    )


def _controls(one: Instance, hosts: set[str], inventory: Inventory) -> tuple[str, ...]:
    """Instances alike on hosts that stay as they are: of the same workload, else of the same size and load."""
    elsewhere = [other for other in inventory.instances if other.host is not None and other.host not in hosts]
    if one.workload is not None:
        alike = [other for other in elsewhere if other.workload == one.workload]
    else:
        alike = [other for other in elsewhere if other.vcpus == one.vcpus and _busy(other) == _busy(one) is not None]
    return tuple(sorted(other.id for other in alike)[:MOST_CONTROLS])


def _busy(one: Instance) -> int | None:
    """Its demand for CPUs as a class, quarters of its vCPUs; None = not known."""
    demand = one.demand.get("cpu")
    return None if demand is None else round(4 * demand.mean / one.vcpus)


def _rendered(step: PlanStep, cloud: _Cloud) -> Iterator[_Rendered]:
    """What is run for a step, in order; `cloud` is as it is after it."""
    match step.action:
        case "settings" | "move" if step.settings is not None:
            yield from _others(step, cloud)
            yield from _moved(step, cloud) if step.action == "move" else _set(cloud, step.instance, step.settings)
        case "move":
            yield from _moved(step, cloud)
        case "driver_domain":
            yield from _driven(step, cloud)
        case _:
            message = (
                f"a step that is to {step.action.replace('_', ' ')} {step.subject} is not carried out: do it by hand"
            )
            raise InvalidInput(message, field="steps")


def _others(step: PlanStep, cloud: _Cloud) -> Iterator[_Rendered]:
    for name, settings in sorted(step.changes.items()):
        yield from _set(cloud, name, settings)


def _set(cloud: _Cloud, name: str, settings: IsolationSettings) -> Iterator[_Rendered]:
    former = cloud.instance(name)
    host, then = cloud.host(former.host), replace(former, settings=settings)
    desired = explicit(former, then)
    for command in commands(host, then, former.settings, desired, neighbours=cloud.on(host, but=name)):
        yield _Rendered(host, name, command)
    cloud.instances[name] = then


def _driven(step: PlanStep, cloud: _Cloud) -> Iterator[_Rendered]:
    host = cloud.host(step.host)
    target = target_of(host, None)
    cpus = step.driver_cpus or host.driver_cpus
    yield from (_Rendered(host, "", one) for one in whole.driver_commands(host, cpus, cloud.on(host), target))
    weight = step.driver_weight if step.driver_weight is not None else host.driver_weight
    yield from (_Rendered(host, "", one) for one in whole.weigh_driver(host, weight, target))
    cloud.hosts[host.id] = replace(host, driver_cpus=cpus, driver_weight=weight)


def _moved(step: PlanStep, cloud: _Cloud) -> Iterator[_Rendered]:
    """A live migration: pins that would go along come off before, for they speak of the pCPUs of one host; a class on
    the uplink is there before it comes and goes when it has left; all else is set there."""
    former = cloud.instance(step.instance)
    source, target = cloud.host(former.host), cloud.host(step.host)
    if source.id != step.source:
        raise InvalidInput(
            f"{former.id} is on {source.id}, and not on {step.source} any more: plan again", field="steps"
        )
    runs = target_of(source, None)
    if source.kind != target.kind or runs != target_of(target, None):
        raise InvalidInput(f"no executor moves {former.id} from {source.id} to {target.id}", field="steps")
    tool = HOST_TOOLS[source.kind] if runs == NATIVE else cloud_tool(runs)
    unpins = former.settings.pinning is not None and (runs == NATIVE or cloud_tool(runs).PINS_TRAVEL)
    if unpins:
        yield from _set(cloud, former.id, replace(former.settings, pinning=Pinning(((),) * former.vcpus)))
    now = cloud.instance(former.id)
    wanted = step.settings or now.settings
    shapes = runs == NATIVE and tc.is_shaped(wanted.network) and tc.on_uplink(target, None)
    if shapes:
        yield from _shaped(cloud, target, now, NetworkSettings(), wanted.network)
    yield _Rendered(source, former.id, tool.migrate(former, source, target), former, target)
    left = now.settings.network
    there = replace(now.settings, pinning=None if unpins else now.settings.pinning)
    there = replace(there, network=wanted.network) if shapes else there
    cloud.instances[former.id] = replace(now, host=target.id, settings=there)
    if step.settings is not None:
        # What its pins are there depends on how many CPUs both hosts have: it is read, and not assumed.
        yield from (replace(one, assumed=False) for one in _set(cloud, former.id, step.settings))
    if runs == NATIVE and tc.is_shaped(left) and tc.on_uplink(source, None):
        yield from _shaped(cloud, source, now, left, NetworkSettings("none"))


def _shaped(
    cloud: _Cloud, host: Host, one: Instance, now: NetworkSettings | None, then: NetworkSettings | None
) -> Iterator[_Rendered]:
    """The class of an instance that comes to a host, or left it."""
    before, after = (IsolationSettings(network=network) for network in (now, then))
    for command in commands(host, one, before, after, neighbours=cloud.on(host, but=one.id)):
        yield _Rendered(host, one.id, command)
