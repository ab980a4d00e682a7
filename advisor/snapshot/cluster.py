"""ClusterSnapshot: an immutable cloud at one moment as arrays, and incremental updates to the next moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.snapshot import layout
from advisor.snapshot.layout import HostArrays, lay_out, with_replaced_rows
from models.arrays import Bools, Floats, Ints
from models.data.cloud_classes import CloudClasses, completed
from models.data.scene import ProfileTable

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_NEVER = np.iinfo(np.int64).min
_NOTHING: Mapping[str, None] = MappingProxyType({})
_AS_SETTINGS: Mapping[str, float] = MappingProxyType({})
_NO_SUBJECTS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Names:
    """Where everything is, by name.

    `positions` are those of hosts; `placed` are instances with a host in the inventory; `coming` are pending
    placements; `seen` (H,) is when each host was last seen, in microseconds, and `patience` (H,) after how many seconds
    its silence counts: inf = never, as of a host that was written into a file, NaN = as the settings say.
    """

    positions: Mapping[str, int]
    placed: Mapping[str, Instance]
    coming: tuple[Instance, ...]
    seen: Ints
    patience: Floats
    table: bytes  # what the profile table says to every host
    classes: CloudClasses  # of all that are placed
    profiled: frozenset[str]  # workloads of which the use of CPUs is known


@dataclass(frozen=True, slots=True)
class ClusterSnapshot(HostArrays):
    """Hosts ordered by id with their residents, including pending placements, also as arrays (see HostArrays).

    `age_s` (H,) is the time since the host was last seen, inf = unknown.
    """

    hosts: tuple[Host, ...]
    workloads: tuple[WorkloadProfile, ...]
    age_s: Floats
    taken_at: datetime
    names: _Names

    @classmethod
    def build(
        cls,
        inventory: Inventory,
        *,
        seen: Mapping[str, datetime | None],
        pending: Sequence[Instance],
        taken_at: datetime,
        patience: Mapping[str, float] = _AS_SETTINGS,
        subjects: Mapping[str, int] = _NO_SUBJECTS,
    ) -> ClusterSnapshot:
        """Build the snapshot of a cloud.

        `seen` is when each host was last reported, None = unknown; `pending` are answers that count as placed;
        `patience` is after how many seconds a host's silence counts, inf = never, left out = as the settings say;
        `subjects` are those of which results were posted, as in ProfileTable.
        ValueError when an instance is pinned beyond its host's pCPUs.
        """
        hosts = tuple(sorted(inventory.hosts, key=attrgetter("id")))
        placed = {instance.id: instance for instance in inventory.instances if instance.host}
        ticks = np.array([_ticks(seen.get(host.id)) for host in hosts], dtype=np.int64)
        stays = np.array([patience.get(host.id, np.nan) for host in hosts], dtype=float)
        workloads, coming = tuple(inventory.workloads), _coming(pending, placed)
        return cls._whole(hosts, placed, coming, workloads, ticks, stays, taken_at, subjects)

    def changed(
        self,
        *,
        seen: Mapping[str, datetime | None],
        pending: Sequence[Instance],
        taken_at: datetime,
        hosts: Mapping[str, Host | None] = _NOTHING,
        instances: Mapping[str, Instance | None] = _NOTHING,
        workloads: Sequence[WorkloadProfile] | None = None,
        patience: Mapping[str, float] = _AS_SETTINGS,
        subjects: Mapping[str, int] | None = None,
    ) -> ClusterSnapshot:
        """The next snapshot, equal to one built anew; only changed hosts are laid out again.

        `hosts` and `instances` map ids to new values, None = deleted. `workloads` are all of them where any changed;
        `seen` has at least the new sightings, and `patience` is that of its hosts;
        `pending` are all of them, and so are `subjects`, None = as before.
        """
        placed = _patched(self.names.placed, instances)
        known = self.workloads if workloads is None else tuple(workloads)
        coming = _coming(pending, placed)
        new_hosts, source = self._hosts_with(hosts)
        positions = (
            {host.id: changed_positions for changed_positions, host in enumerate(new_hosts)}
            if hosts
            else self.names.positions
        )
        ticks = np.append(self.names.seen, _NEVER)[source]
        stays = np.append(self.names.patience, np.nan)[source]
        for name in seen.keys() & positions.keys():
            ticks[positions[name]] = _ticks(seen[name])
            stays[positions[name]] = patience.get(name, np.nan)
        former = self.scenes.table
        table = former if known == self.workloads else replace(ProfileTable.build(known), subjects=former.subjects)
        if subjects is not None and subjects != former.subjects:
            table = replace(table, subjects=subjects)
        width = self.scenes.driver_cpus.shape[1]
        if (
            not self.hosts
            or max((host.pcpus for host in new_hosts), default=0) != width
            or (table is not self.scenes.table and layout.table_fingerprint(table) != self.names.table)
        ):
            return self._whole(new_hosts, placed, coming, known, ticks, stays, taken_at, table.subjects)
        touched = self._touched(hosts, instances, placed, coming, known)
        if table.subjects != former.subjects:
            touched |= {
                host.id
                for host, residents in zip(self.hosts, self.residents, strict=True)
                if any(table.subject(instance) != former.subject(instance) for instance in residents)
            }
        profiled = _profiled(known) if known != self.workloads else self.names.profiled
        classes = self.names.classes.changed({name: placed.get(name) for name in instances})
        touched |= self._reclassed(placed, coming, classes, profiled)
        changed_positions = np.array(sorted(positions[name] for name in touched if name in positions), dtype=np.int64)
        changed_hosts = [new_hosts[position] for position in changed_positions.tolist()]
        there = self._residents(changed_hosts, instances, placed, coming)
        residents = [[completed(instance, classes, profiled) for instance in on_host] for on_host in there]
        laid_out = lay_out(changed_hosts, residents, table, width)
        return self._of(
            with_replaced_rows(self._with_table(table), source, laid_out, changed_positions),
            new_hosts,
            known,
            taken_at,
            _Names(positions, placed, coming, ticks, stays, self.names.table, classes, profiled),
        )

    def without(self, ids: Iterable[str]) -> ClusterSnapshot:
        """The same cloud without these instances, whether they are there or coming."""
        removed = dict.fromkeys(ids)
        coming = tuple(instance for instance in self.names.coming if instance.id not in removed)
        return self.changed(instances=removed, seen={}, pending=coming, taken_at=self.taken_at)

    def index(self, host_id: str) -> int | None:
        """The position of a host, None if unknown."""
        return self.names.positions.get(host_id)

    def where(self, instance_id: str) -> tuple[tuple[int, int], ...]:
        """The hosts on which an instance counts, with its slots; usually one or none."""
        names = {
            instance.host for instance in _counted(instance_id, self.names.placed, self.names.coming) if instance.host
        }
        hosts = sorted(self.names.positions[name] for name in names if name in self.names.positions)
        return tuple(
            (host, slot)
            for host in hosts
            for slot, instance in enumerate(self.residents[host])
            if instance.id == instance_id
        )

    @classmethod
    def _whole(
        cls,
        hosts: tuple[Host, ...],
        placed: Mapping[str, Instance],
        coming: tuple[Instance, ...],
        workloads: tuple[WorkloadProfile, ...],
        seen: Ints,
        patience: Floats,
        taken_at: datetime,
        subjects: Mapping[str, int],
    ) -> ClusterSnapshot:
        classes, profiled = CloudClasses.of(placed.values()), _profiled(workloads)
        by_host: dict[str, list[Instance]] = {host.id: [] for host in hosts}
        for instance in chain(placed.values(), coming):
            if instance.host in by_host:
                by_host[instance.host].append(completed(instance, classes, profiled))
        table = replace(ProfileTable.build(workloads), subjects=subjects)
        rows = lay_out(hosts, list(by_host.values()), table, max((host.pcpus for host in hosts), default=1))
        positions = {host.id: at for at, host in enumerate(hosts)}
        names = _Names(positions, placed, coming, seen, patience, layout.table_fingerprint(table), classes, profiled)
        return cls._of(rows, hosts, workloads, taken_at, names)

    @classmethod
    def _of(
        cls,
        rows: HostArrays,
        hosts: tuple[Host, ...],
        workloads: tuple[WorkloadProfile, ...],
        taken_at: datetime,
        names: _Names,
    ) -> ClusterSnapshot:
        age_s = np.maximum((_ticks(taken_at) - names.seen.astype(np.float64)) / 1e6, 0.0)
        age_s = np.where(names.seen == _NEVER, np.inf, age_s)
        return cls(
            **{field.name: getattr(rows, field.name) for field in fields(HostArrays)},
            hosts=hosts,
            workloads=workloads,
            age_s=age_s,
            taken_at=taken_at,
            names=names,
        )

    def with_class(self, instance: Instance) -> Instance:
        """An instance with the demand of its class where nothing is known of its own."""
        return completed(instance, self.names.classes, self.names.profiled)

    def is_silent(self, fresh_s: float) -> Bools:
        """(H,) whether news of a host are overdue; `fresh_s` is how long they may take where nothing else is known."""
        return self.age_s > self.allowed_age_s(fresh_s)

    def allowed_age_s(self, fresh_s: float) -> Floats:
        """(H,) how long news of each host may take, inf = for ever, where no source reports it again and again."""
        return np.where(np.isnan(self.names.patience), fresh_s, self.names.patience)

    def _hosts_with(self, put: Mapping[str, Host | None]) -> tuple[tuple[Host, ...], Ints]:
        """The hosts after additions and deletions, ordered by id, and the former position of each, -1 = new."""
        if not put:
            return self.hosts, np.arange(len(self.hosts))
        by_id: dict[str, Host | None] = {**{host.id: host for host in self.hosts}, **put}
        hosts = tuple(sorted((host for host in by_id.values() if host is not None), key=attrgetter("id")))
        return hosts, np.array([self.names.positions.get(host.id, -1) for host in hosts], dtype=np.int64)

    def _touched(
        self,
        hosts: Mapping[str, Host | None],
        instances: Mapping[str, Instance | None],
        placed: Mapping[str, Instance],
        coming: tuple[Instance, ...],
        workloads: tuple[WorkloadProfile, ...],
    ) -> set[str]:
        """Names of hosts that changed or whose residents changed."""
        before, after = _grouped(self.names.coming, "id"), _grouped(coming, "id")
        moved = [
            instance
            for name in before.keys() | after.keys()
            if before.get(name) != after.get(name)
            for instance in (*before.get(name, ()), *after.get(name, ()))
        ]
        for name in instances:
            moved += [
                instances_by_id[name] for instances_by_id in (self.names.placed, placed) if name in instances_by_id
            ]
        touched = {*hosts, *(instance.host for instance in moved if instance.host)}
        if workloads != self.workloads:
            profiles_before, profiles_after = _grouped(self.workloads, "name"), _grouped(workloads, "name")
            names = {
                name
                for name in profiles_before.keys() | profiles_after.keys()
                if profiles_before.get(name) != profiles_after.get(name)
            }
            for host, residents in zip(self.hosts, self.residents, strict=True):
                if any(instance.workload in names for instance in residents):
                    touched.add(host.id)
        return touched

    def _reclassed(
        self,
        placed: Mapping[str, Instance],
        coming: tuple[Instance, ...],
        classes: CloudClasses,
        profiled: frozenset[str],
    ) -> set[str]:
        """Names of hosts with residents of whose class something else is known now."""
        former = self.names.classes, self.names.profiled
        if classes is former[0] and profiled == former[1]:
            return set()
        guessed = [instance for instance in chain(placed.values(), coming) if "cpu" not in instance.demand]
        return {
            instance.host
            for instance in guessed
            if instance.host and completed(instance, *former).demand != completed(instance, classes, profiled).demand
        }

    def _residents(
        self,
        hosts: Iterable[Host],
        instances: Mapping[str, Instance | None],
        placed: Mapping[str, Instance],
        coming: tuple[Instance, ...],
    ) -> Iterator[list[Instance]]:
        """The current residents of each of these hosts."""
        hosts = list(hosts)
        by_host: dict[str, dict[str, Instance]] = {host.id: {} for host in hosts}
        new_hosts = [host.id for host in hosts if host.id not in self.names.positions]
        candidates = placed.keys() if new_hosts else {
            *instances,
            *(instance.id for host in hosts for instance in self.residents[self.names.positions[host.id]]),
        }  # fmt: skip
        for name in candidates:
            instance = placed.get(name)
            if instance is not None and instance.host in by_host:
                by_host[instance.host][name] = instance
        pending_by_host = _grouped(coming, "host")
        for host in hosts:
            yield [*by_host[host.id].values(), *pending_by_host.get(host.id, ())]

    def _with_table(self, table: ProfileTable) -> HostArrays:
        """These rows with profile numbers of another table, 0 = no longer there."""
        if table is self.scenes.table:
            return self
        number = np.zeros(len(self.scenes.table.values), dtype=np.int64)
        for key, row in self.scenes.table.rows.items():
            number[row] = table.rows.get(key, 0)
        return replace(self, scenes=replace(self.scenes, table=table, profile=number[self.scenes.profile]))


def _profiled(workloads: Iterable[WorkloadProfile]) -> frozenset[str]:
    return frozenset(workload.name for workload in workloads if "cpu" in workload.metrics)


def _ticks(when: datetime | None) -> int:
    """Exact microseconds since the epoch."""
    return _NEVER if when is None else (when - _EPOCH) // _TICK


def _coming(pending: Iterable[Instance], placed: Mapping[str, Instance]) -> tuple[Instance, ...]:
    """Pending placements whose instance is not yet on any host in the inventory."""
    return tuple(instance for instance in pending if instance.id not in placed)


def _patched(placed: Mapping[str, Instance], instances: Mapping[str, Instance | None]) -> Mapping[str, Instance]:
    """The placed instances after additions and deletions."""
    if not instances:
        return placed
    patched = dict(placed)
    for name, instance in instances.items():
        patched.pop(name, None)
        if instance is not None and instance.host:
            patched[name] = instance
    return patched


def _counted(name: str, placed: Mapping[str, Instance], coming: Iterable[Instance]) -> list[Instance]:
    """An instance as it counts on hosts: as placed, or as its pending placements say."""
    return [placed[name]] if name in placed else [instance for instance in coming if instance.id == name]


def _grouped(items: Iterable[T], key: str) -> dict[str, list[T]]:
    """Items by the value of a field, in order."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(getattr(item, key), []).append(item)
    return groups
