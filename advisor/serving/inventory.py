"""The inventory of a service: hosts, instances and workloads, each change with its entry in the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection

from advisor.access.audit import Audit, Operation
from advisor.domain import (
    ANNOUNCED,
    Announced,
    Announcement,
    Host,
    Instance,
    Inventory,
    NamedSize,
    Page,
    WorkloadProfile,
)
from advisor.errors import NotFound, StaleGeneration
from advisor.inventories import announced, sync, writes
from advisor.inventories.announced import Around
from advisor.inventories.reading import Reading
from advisor.inventories.sync import SyncDiff
from advisor.inventories.writes import Only, anyway
from advisor.settings import CLOCK_SKEW
from advisor.store import counters, hosts, instances
from advisor.store.transactions import Transactions
from advisor.validation import is_storable, the_one

T = TypeVar("T")
FOLLOW_TRIES = 3  # at comparing with another system while others may write


class InventoryService:
    """Hosts, instances and workload profiles; thread-safe, and every change is in the audit log.

    `only_if` gets what is stored now (None = nothing) in the transaction of the change, and raises where that may not
    be changed.
    """

    def __init__(
        self, transactions: Transactions, audit: Audit, clock: Callable[[], datetime], fresh: timedelta
    ) -> None:
        self._read, self._write = transactions.read, transactions.write
        self._audit = audit
        self._clock = clock
        self._fresh = fresh

    def put_host(self, host: Host, *, only_if: Only[Host] = anyway, notes: list[str] | None = None) -> bool:
        """True when it is new; to `notes` goes a sentence for each instance there that loses a pin with a pCPU."""
        with self._change("host.put", host.id) as connection:
            return writes.put_host(connection, host, self._clock(), only_if, notes)

    def host(self, host_id: str) -> Host:
        """One host; NotFound when there is none such."""
        with self._read() as connection:
            return _found(hosts.get(connection, host_id), "host", host_id)

    def find_host(self, name: str) -> Host:
        """The host of this id, else the one that goes by this name; NotFound, or InvalidInput where several do."""
        with self._read() as connection:
            ids = hosts.called(connection, name) if is_storable(name) else ()
            found = hosts.get(connection, the_one(ids, "host", name))
            return _found(found, "host", name)

    def delete_host(self, host_id: str, *, only_if: Only[Host] = anyway) -> None:
        """Conflict while instances are on it, NotFound when there is none such."""
        with self._change("host.delete", host_id) as connection:
            writes.delete_host(connection, host_id, only_if)

    def hosts(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        kind: str | None = None,
        enabled: bool | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Host]:
        """All hosts, or those that have every one of these labels, are of this kind, are enabled or not."""
        with self._read() as connection:
            return hosts.list_page(
                connection, labels=labels or {}, kind=kind, enabled=enabled, cursor=cursor, limit=limit
            )

    def put_instance(self, instance: Instance, *, only_if: Only[Instance] = anyway) -> bool:
        """True when it is new; InvalidInput when its host does not exist or lacks a pCPU that it is pinned to."""
        with self._change("instance.put", instance.id, *filter(None, [instance.host])) as connection:
            return writes.put_instance(connection, instance, only_if)

    def instance(self, instance_id: str) -> Instance:
        """One instance; NotFound when there is none such."""
        with self._read() as connection:
            return _found(instances.get(connection, instance_id), "instance", instance_id)

    def find_instance(self, name: str) -> Instance:
        """The instance of this id, else the one that goes by this name; NotFound, or InvalidInput where several do."""
        with self._read() as connection:
            ids = instances.called(connection, name) if is_storable(name) else ()
            found = instances.get(connection, the_one(ids, "instance", name))
            return _found(found, "instance", name)

    def delete_instance(self, instance_id: str, *, only_if: Only[Instance] = anyway) -> None:
        """Forget it, wherever it is; NotFound when there is none such."""
        with self._change("instance.delete", instance_id) as connection:
            writes.delete_instance(connection, instance_id, only_if)

    def instances(
        self,
        *,
        host: str | None = None,
        workload: str | None = None,
        part: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Instance]:
        """All instances, or those on one host, of one workload, or with `part` in their id or their label `name`."""
        with self._read() as connection:
            return instances.list_page(connection, host=host, workload=workload, part=part, cursor=cursor, limit=limit)

    def whole(self) -> Inventory:
        """Everything that is stored now, as of one moment."""
        with self._read() as connection:
            return Inventory(
                hosts.load_all(connection), instances.load_all(connection), instances.load_workloads(connection)
            )

    def named(self, part: str, *, limit: int = 10) -> tuple[Instance, ...]:
        """Instances with `part` in their id or in their label `name`; what begins with it comes first."""
        with self._read() as connection:
            return instances.named(connection, part, limit)

    def flavors(self, part: str, *, limit: int = 10) -> tuple[NamedSize, ...]:
        """Sizes that instances have under the name of a flavor with `part` in it, those of most instances first."""
        with self._read() as connection:
            return instances.flavors(connection, part, limit)

    def put_workload(self, workload: WorkloadProfile, *, only_if: Only[WorkloadProfile] = anyway) -> bool:
        """True when there was no profile of this name on its platform, which is what `only_if` gets."""
        with self._change("workload.put", workload.name) as connection:
            return writes.put_workload(connection, workload, only_if)

    def workload(self, name: str, *, platform: str | None = None) -> WorkloadProfile:
        """The profile on one platform; without one the profile that holds everywhere, or else any.

        NotFound when there is none such.
        """
        with self._read() as connection:
            named = instances.workloads_named(connection, name)
        fitting = [profile for profile in named if platform in {None, profile.platform}]
        return _found(fitting[0] if fitting else None, "workload", name)

    def delete_workload(self, name: str, *, only_if: Only[WorkloadProfile] = anyway) -> None:
        """Forget it on every platform; instances that run it count as unknown from then on.

        `only_if` gets the profile that `workload` finds without a platform.
        """
        with self._change("workload.delete", name) as connection:
            writes.delete_workload(connection, name, only_if)

    def workloads(
        self, *, platform: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[WorkloadProfile]:
        """All profiles, or those of one platform ("" = those that hold everywhere)."""
        with self._read() as connection:
            return instances.list_workloads(connection, platform=platform, cursor=cursor, limit=limit)

    def put(self, inventory: Inventory, *, mode: str, generation: int | None, notes: list[str] | None = None) -> int:
        """Replace or merge the whole cloud in one transaction; returns the new generation.

        To `notes` goes a sentence for each stored instance that loses a pin with a pCPU of its host.
        StaleGeneration unless `generation` is None or the current one; InvalidInput writes nothing.
        """
        writes.check_all_labels(inventory)
        with self._change("inventory.put", mode=mode, **writes.sizes(inventory)) as connection:
            now = self._clock()
            return writes.put_all(connection, inventory, mode=mode, generation=generation, now=now, notes=notes)

    def follow(self, reading: Reading, *, dry_run: bool = False, again: timedelta | None = None) -> SyncDiff:
        """Bring the inventory to what another system reports; returns what that changed. A dry run writes nothing.

        `again` is how long the next read may take before the silence of its hosts counts: zero = there is none.
        """
        if reading.partial and not dry_run:
            return self._follow_changes(reading, again)
        # Comparing takes a second for 10,000 instances, so others may write meanwhile. Where they do so again and
        # again, it is compared once more while no other writer can.
        for _ in range(FOLLOW_TRIES):
            with self._read() as connection:
                stored, generation = sync.stored(connection)
            difference = sync.compare(reading, stored)
            if dry_run:
                return difference
            try:
                with self._write() as connection:
                    self._follow(connection, reading, difference, generation, again)
            except StaleGeneration:  # another writer was faster
                continue
            return difference
        with self._write() as connection:
            counters.hold(connection, "inventory")
            stored, generation = sync.stored(connection)
            difference = sync.compare(reading, stored)
            self._follow(connection, reading, difference, generation, again)
        return difference

    def _follow_changes(self, reading: Reading, again: timedelta | None) -> SyncDiff:
        now = self._clock()
        with self._write() as connection:
            counters.hold(connection, "inventory")
            stored, generation = sync.stored_around(connection, reading)
            difference = sync.compare(reading, stored)
            if instances.drop_pending(connection, reading.gone):  # of one that was deleted before it was seen on a host
                counters.bump(connection, "pending")
            if difference.is_nothing:
                sync.note_heard(connection, difference, now=now, fresh=self._fresh, again=again)
            else:
                self._follow(connection, reading, difference, generation, again)
        return difference

    def announce(self, announcement: Announcement) -> Announced:
        """Bring one host and its instances to what its agent reports; Conflict where two machines go by its name."""
        now = self._clock()
        with self._read() as connection:
            news, answer = announced.compare(announcement, self._around(connection, announcement, now), now)
            seen_at = hosts.sightings_of(connection, [announcement.host_id]).get(announcement.host_id)
        if news.is_nothing and seen_at is not None and timedelta(0) <= now - seen_at < announcement.again / 10:
            return answer  # nothing is new, not even that it was heard of
        if news.is_nothing:  # no request need wait for the disk, nor for others who change the inventory
            with self._write(synced=False) as connection:
                sync.note_heard(connection, news, now=now, fresh=self._fresh, again=announcement.again)
            return answer
        with self._write() as connection:
            counters.hold(connection, "inventory")
            news, answer = announced.compare(announcement, self._around(connection, announcement, now), now)
            generation = counters.read(connection).inventory
            generation = sync.write(connection, news, generation, now=now, fresh=self._fresh, again=announcement.again)
            if not news.is_nothing:
                counts = {kind: len(getattr(answer, kind)) for kind in ANNOUNCED}
                named = [announcement.host_id]
                self._audit.record(connection, "inventory.announce", named, generation=generation, **counts)
        return answer

    def _around(self, connection: Connection, announcement: Announcement, now: datetime) -> Around:
        """What an announcement may touch: its host with its instances, and every instance it reports with their
        hosts."""
        host = hosts.get(connection, announcement.host_id)
        residents = instances.on_hosts(connection, [announcement.host_id])
        instances_by_id = {instance.id: instance for instance in residents}
        instances_by_id |= {
            instance.id: instance
            for instance in instances.get_many(connection, announcement.names() - instances_by_id.keys())
        }
        unowned = announcement.uuids() - instances_by_id.keys() - announced.owners(instances_by_id.values()).keys()
        instances_by_id |= {instance.id: instance for instance in instances.of_uuids(connection, unowned)}
        where = {instance.host for instance in instances_by_id.values() if instance.host} | {announcement.host_id}
        seen, patience = hosts.sightings_of(connection, where), hosts.patience(connection, where)
        fresh_s = self._fresh.total_seconds()
        silent = {
            name
            for name, seen_at in seen.items()
            if seen_at > now + CLOCK_SKEW or (now - seen_at).total_seconds() > patience.get(name, fresh_s)
        }
        hosts_by_id = {known.id: known for known in hosts.get_many(connection, where)}
        owners = announced.owners(instances_by_id.values())
        return Around(host, instances_by_id, hosts_by_id, frozenset(silent), owners)

    def generation(self) -> int:
        """How often the inventory was written so far."""
        with self._read() as connection:
            return counters.read(connection).inventory

    def _follow(
        self, connection: Connection, reading: Reading, difference: SyncDiff, generation: int, again: timedelta | None
    ) -> None:
        sync.write(connection, difference, generation, now=self._clock(), fresh=self._fresh, again=again)
        now = counters.read(connection).inventory
        self._audit.record(connection, "inventory.follow", generation=now, source=reading.source, **difference.sizes())

    @contextmanager
    def _change(self, operation: Operation, *objects: str, **detail: Any) -> Iterator[Connection]:
        with self._write() as connection:
            yield connection
            self._audit.record_change(connection, operation, objects, **detail)


def _found(thing: T | None, what: str, name: str) -> T:
    if thing is None:
        raise NotFound(f"there is no {what} {name}")
    return thing
