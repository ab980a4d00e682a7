"""Writes to the inventory with the checks that span several rows; each moves the generation in its own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import Connection

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.errors import Conflict, InvalidInput, NotFound, StaleGeneration
from advisor.render import check_labels
from advisor.settings import CLOCK_SKEW
from advisor.store import counters, hosts, instances
from advisor.validation import check_name, check_unique, check_value, fitted, misfit

MODES = ("replace", "merge")
T = TypeVar("T")
Only = Callable[[T | None], None]  # gets what is there (None = nothing) under the lock; raises where it may not change


def anyway(_there: object) -> None:
    """Whatever is there may be changed."""


def put_host(
    connection: Connection, host: Host, now: datetime, only_if: Only[Host] = anyway, notes: list[str] | None = None
) -> bool:
    """Insert or replace a host. Pins of instances there to a pCPU that it no longer has are cut, or end: `notes` says
    so."""
    check_value(host)
    check_labels(host)
    generation = counters.bump(connection, "inventory")
    counters.note_changes(connection, generation, "host", [host.id])
    only_if(hosts.get(connection, host.id))
    _cut_pins(connection, host, instances.on_hosts(connection, [host.id]), generation, notes)
    is_new = not hosts.known(connection, [host.id])
    hosts.put(connection, [host], now)
    return is_new


def delete_host(connection: Connection, host_id: str, only_if: Only[Host] = anyway) -> None:
    """Conflict while instances are on it."""
    counters.note_changes(connection, counters.bump(connection, "inventory"), "host", [host_id])
    only_if(hosts.get(connection, host_id))
    residents = instances.on_hosts(connection, [host_id])
    if residents:
        raise Conflict(
            f"host {host_id} still holds {len(residents)} instances, {residents[0].id} among them; move them first"
        )
    if not hosts.delete(connection, host_id):
        raise NotFound(f"there is no host {host_id}")


def put_instance(connection: Connection, instance: Instance, only_if: Only[Instance] = anyway) -> bool:
    """Insert or replace an instance; InvalidInput when its host does not exist or lacks a pCPU that it is pinned to."""
    check_value(instance)
    check_labels(instance)
    counters.note_changes(connection, counters.bump(connection, "inventory"), "instance", [instance.id])
    only_if(instances.get(connection, instance.id))
    if instance.host is not None:
        host = hosts.get(connection, instance.host)
        if host is None:
            message = f"instance {instance.id}: there is no host {instance.host}; put the host first"
            raise InvalidInput(message, field="host")
        _check_fit(host, [instance])
        instances.drop_pending(connection, [instance.id])
    is_new = not instances.known(connection, [instance.id])
    instances.put(connection, [instance])
    return is_new


def delete_instance(connection: Connection, instance_id: str, only_if: Only[Instance] = anyway) -> None:
    """Take an instance out of the inventory; NotFound where there is none, and what `only_if` raises."""
    counters.note_changes(connection, counters.bump(connection, "inventory"), "instance", [instance_id])
    only_if(instances.get(connection, instance_id))
    if not instances.delete(connection, instance_id):
        raise NotFound(f"there is no instance {instance_id}")


def put_workload(connection: Connection, workload: WorkloadProfile, only_if: Only[WorkloadProfile] = anyway) -> bool:
    """Insert or replace the profile on its platform, which is the one that `only_if` gets."""
    check_value(workload)
    check_name(workload)
    counters.note_changes(connection, counters.bump(connection, "inventory"), "workload", [workload.name])
    former = [
        profile
        for profile in instances.workloads_named(connection, workload.name)
        if profile.platform == workload.platform
    ]
    only_if(former[0] if former else None)
    instances.put_workload(connection, [workload])
    return not former


def delete_workload(connection: Connection, name: str, only_if: Only[WorkloadProfile] = anyway) -> None:
    """Forget a workload on every platform; instances that run it count as unknown from then on.

    `only_if` gets the profile that holds everywhere, or else the first.
    """
    counters.note_changes(connection, counters.bump(connection, "inventory"), "workload", [name])
    profiles = instances.workloads_named(connection, name)
    only_if(profiles[0] if profiles else None)
    if not instances.delete_workload(connection, name):
        raise NotFound(f"there is no workload {name}")


def put_all(
    connection: Connection,
    inventory: Inventory,
    *,
    mode: str,
    generation: int | None,
    now: datetime,
    notes: list[str] | None = None,
) -> int:
    """Write a whole cloud and return the new generation; StaleGeneration unless `generation` is the current one.

    Pins of instances that are stored, and not named, to a pCPU that their host no longer has are cut, or end: `notes`
    says so.

    `merge` adds and replaces. `replace` also deletes hosts and instances that are not named; profiles are knowledge
    that syncs seldom carry, so they are replaced only when the inventory brings any.
    """
    _check_inventory(inventory, mode)
    current = counters.bump(connection, "inventory")
    if generation is not None and generation != current - 1:
        message = f"the inventory is at generation {current - 1}, not {generation}: read it again and send your change"
        raise StaleGeneration(message, field="generation")
    seen_at, dated = _observed_at(inventory, now), inventory.observed_at is not None
    if mode == "replace":
        counters.begin_changes_anew(connection, current)
        instances.keep(connection, (instance.id for instance in inventory.instances))
        instances.unplace(connection)  # so that no host which is about to go is still referred to
        hosts.replace_all(connection, inventory.hosts, seen_at, reported=dated)
        if inventory.workloads:
            instances.replace_workloads(connection, inventory.workloads)
    else:
        counters.note_changes(connection, current, "host", [host.id for host in inventory.hosts])
        counters.note_changes(connection, current, "instance", [instance.id for instance in inventory.instances])
        counters.note_changes(connection, current, "workload", {profile.name for profile in inventory.workloads})
        hosts.put(connection, inventory.hosts, seen_at, reported=dated)
        instances.put_workload(connection, inventory.workloads)
    _check_hosts(
        inventory, hosts.known(connection, (instance.host for instance in inventory.instances if instance.host))
    )
    instances.put(connection, inventory.instances)
    _fit(connection, inventory, current, notes)
    instances.drop_pending(connection, (instance.id for instance in inventory.instances if instance.host))
    return current


def sizes(inventory: Inventory) -> dict[str, int]:
    """How many of each there are in it."""
    return {noun: len(getattr(inventory, noun)) for noun in ("hosts", "instances", "workloads")}


def check_all_labels(inventory: Inventory) -> None:
    """Refuse labels of which no command could be made; a sync keeps what is stored, and asks for what its source
    reports."""
    for noun in ("hosts", "instances"):
        for at, item in enumerate(getattr(inventory, noun)):
            try:
                check_labels(item)
            except InvalidInput as error:
                raise InvalidInput(error.message, field=f"{noun}[{at}].{error.field}") from error


def _check_inventory(inventory: Inventory, mode: str) -> None:
    if mode not in MODES:
        raise InvalidInput(f"mode {mode!r} is none of {', '.join(MODES)}", field="mode")
    check_value(inventory)
    check_unique((host.id for host in inventory.hosts), "host")
    check_unique((instance.id for instance in inventory.instances), "instance")
    names = (
        (f"{profile.name} on {profile.platform}" if profile.platform else profile.name)
        for profile in inventory.workloads
    )
    check_unique(names, "workload")
    for workload in inventory.workloads:
        check_name(workload)


def _observed_at(inventory: Inventory, now: datetime) -> datetime:
    observed_at = inventory.observed_at or now
    if observed_at.tzinfo is None:
        observed_at = observed_at.replace(tzinfo=UTC)
    if observed_at > now + CLOCK_SKEW:
        message = f"observed_at {observed_at.isoformat()} is in the future; check the clock of the sender"
        raise InvalidInput(message, field="observed_at")
    return min(observed_at, now)


def _check_hosts(inventory: Inventory, known: set[str]) -> None:
    for instance in inventory.instances:
        if instance.host is not None and instance.host not in known:
            raise InvalidInput(f"instance {instance.id} is on unknown host {instance.host}", field="instances")


def _fit(connection: Connection, inventory: Inventory, generation: int, notes: list[str] | None) -> None:
    """Whatever was touched from either side: a host may have lost pCPUs, an instance may have moved."""
    named = {instance.id for instance in inventory.instances}
    touched = {host.id for host in inventory.hosts} | {
        instance.host for instance in inventory.instances if instance.host
    }
    residents: dict[str | None, list[Instance]] = {}
    for instance in instances.on_hosts(connection, touched):
        residents.setdefault(instance.host, []).append(instance)
    for host in hosts.get_many(connection, touched):
        there = residents.get(host.id, ())
        _check_fit(host, [one for one in there if one.id in named])
        _cut_pins(connection, host, [one for one in there if one.id not in named], generation, notes)


def _cut_pins(
    connection: Connection, host: Host, residents: Iterable[Instance], generation: int, notes: list[str] | None
) -> None:
    cut = [(left, note) for left, note in (fitted(host, one) for one in residents) if note]
    if cut:
        instances.put(connection, [left for left, _ in cut])
        counters.note_changes(connection, generation, "instance", [left.id for left, _ in cut])
    if notes is not None:
        notes += [note for _, note in cut]


def _check_fit(host: Host, residents: Iterable[Instance]) -> None:
    problem = misfit(host, residents)
    if problem:
        raise InvalidInput(problem, field="pinning")
