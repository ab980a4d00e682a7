"""ClusterSnapshot: a cloud at one moment as arrays, one scene per host; never changed, but followed by another."""

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
from advisor.snapshot import fingerprints
from advisor.snapshot.layout import lay_out
from advisor.snapshot.rows import Rows, exchanged
from models.arrays import Floats, Ints
from models.data.scene import ProfileTable

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_NEVER = np.iinfo(np.int64).min
_NOTHING: Mapping[str, None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Names:
    """Who is where, by name: `positions` of hosts; instances `placed` by the inventory, on whatever host; those that
    are `coming` (answers still pending); and when each host was last seen, `seen` (H,) in microseconds."""

    positions: Mapping[str, int]
    placed: Mapping[str, Instance]
    coming: tuple[Instance, ...]
    seen: Ints
    table: bytes  # what the profile table says to every host


@dataclass(frozen=True, slots=True)
class ClusterSnapshot(Rows):
    """Hosts ordered by id with who is on them, answers still pending included, and the same as arrays (see Rows).

    `age_s` (H,) is how long ago the host was last seen, inf = unknown.
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
    ) -> ClusterSnapshot:
        """Lay out a cloud. `seen` is when each host was last reported, None = unknown; `pending` are answers that count
        as placed.

        ValueError when an instance is pinned beyond its host's pCPUs.
        """
        hosts = tuple(sorted(inventory.hosts, key=attrgetter("id")))
        placed = {one.id: one for one in inventory.instances if one.host}
        ticks = np.array([_ticks(seen.get(host.id)) for host in hosts], dtype=np.int64)
        return cls._whole(hosts, placed, _coming(pending, placed), tuple(inventory.workloads), ticks, taken_at)

    def changed(
        self,
        *,
        seen: Mapping[str, datetime | None],
        pending: Sequence[Instance],
        taken_at: datetime,
        hosts: Mapping[str, Host | None] = _NOTHING,
        instances: Mapping[str, Instance | None] = _NOTHING,
        workloads: Sequence[WorkloadProfile] | None = None,
    ) -> ClusterSnapshot:
        """The snapshot after this one, equal to one built whole; only hosts that something happened to are laid out.

        `hosts` and `instances` are what was put, or None for what was deleted; `workloads` are all of them, where they
        are not as before; `seen` are sightings, at least those that are not as before; `pending` are all of them.
        """
        placed = _patched(self.names.placed, instances)
        known = self.workloads if workloads is None else tuple(workloads)
        coming = _coming(pending, placed)
        there, source = self._hosts_with(hosts)
        positions = {host.id: at for at, host in enumerate(there)} if hosts else self.names.positions
        ticks = np.append(self.names.seen, _NEVER)[source]
        for name in seen.keys() & positions.keys():
            ticks[positions[name]] = _ticks(seen[name])
        table = self.scenes.table if known == self.workloads else ProfileTable.build(known)
        width = self.scenes.driver_cpus.shape[1]
        if (
            not self.hosts
            or max((host.pcpus for host in there), default=0) != width
            or (table is not self.scenes.table and fingerprints.of_table(table) != self.names.table)
        ):
            return self._whole(there, placed, coming, known, ticks, taken_at)
        touched = self._touched(hosts, instances, placed, coming, known)
        at = np.array(sorted(positions[name] for name in touched if name in positions), dtype=np.int64)
        new = [there[one] for one in at.tolist()]
        laid_out = lay_out(new, list(self._residents(new, instances, placed, coming)), table, width)
        return self._of(
            exchanged(self._with_table(table), source, laid_out, at),
            there,
            known,
            taken_at,
            _Names(positions, placed, coming, ticks, self.names.table),
        )

    def index(self, host_id: str) -> int | None:
        """Position of a host, None when it is not there."""
        return self.names.positions.get(host_id)

    def where(self, instance_id: str) -> tuple[tuple[int, int], ...]:
        """The hosts that an instance counts on and its slot there: mostly one or none."""
        names = {one.host for one in _counted(instance_id, self.names.placed, self.names.coming) if one.host}
        hosts = sorted(self.names.positions[name] for name in names if name in self.names.positions)
        return tuple(
            (host, slot) for host in hosts for slot, one in enumerate(self.residents[host]) if one.id == instance_id
        )

    @classmethod
    def _whole(
        cls,
        hosts: tuple[Host, ...],
        placed: Mapping[str, Instance],
        coming: tuple[Instance, ...],
        workloads: tuple[WorkloadProfile, ...],
        seen: Ints,
        taken_at: datetime,
    ) -> ClusterSnapshot:
        by_host: dict[str, list[Instance]] = {host.id: [] for host in hosts}
        for one in chain(placed.values(), coming):
            if one.host in by_host:
                by_host[one.host].append(one)
        table = ProfileTable.build(workloads)
        rows = lay_out(hosts, list(by_host.values()), table, max((host.pcpus for host in hosts), default=1))
        positions = {host.id: at for at, host in enumerate(hosts)}
        return cls._of(
            rows, hosts, workloads, taken_at, _Names(positions, placed, coming, seen, fingerprints.of_table(table))
        )

    @classmethod
    def _of(
        cls,
        rows: Rows,
        hosts: tuple[Host, ...],
        workloads: tuple[WorkloadProfile, ...],
        taken_at: datetime,
        names: _Names,
    ) -> ClusterSnapshot:
        age_s = np.maximum((_ticks(taken_at) - names.seen.astype(np.float64)) / 1e6, 0.0)
        return cls(
            **{field.name: getattr(rows, field.name) for field in fields(Rows)},
            hosts=hosts,
            workloads=workloads,
            age_s=np.where(names.seen == _NEVER, np.inf, age_s),
            taken_at=taken_at,
            names=names,
        )

    def _hosts_with(self, put: Mapping[str, Host | None]) -> tuple[tuple[Host, ...], Ints]:
        """The hosts after some were put or deleted, ordered by id, and where each was before, -1 = nowhere."""
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
        """Names of the hosts that are not what they were, or whose residents are not."""
        before, after = _grouped(self.names.coming, "id"), _grouped(coming, "id")
        moved = [
            one
            for name in before.keys() | after.keys()
            if before.get(name) != after.get(name)
            for one in (*before.get(name, ()), *after.get(name, ()))
        ]
        for name in instances:
            moved += [some[name] for some in (self.names.placed, placed) if name in some]
        touched = {*hosts, *(one.host for one in moved if one.host)}
        if workloads != self.workloads:
            were, are = _grouped(self.workloads, "name"), _grouped(workloads, "name")
            names = {name for name in were.keys() | are.keys() if were.get(name) != are.get(name)}
            for host, there in zip(self.hosts, self.residents, strict=True):
                if any(one.workload in names for one in there):
                    touched.add(host.id)
        return touched

    def _residents(
        self,
        hosts: Iterable[Host],
        instances: Mapping[str, Instance | None],
        placed: Mapping[str, Instance],
        coming: tuple[Instance, ...],
    ) -> Iterator[list[Instance]]:
        """Who is on each of these hosts now."""
        hosts = list(hosts)
        there: dict[str, dict[str, Instance]] = {host.id: {} for host in hosts}
        new = [host.id for host in hosts if host.id not in self.names.positions]
        candidates = placed.keys() if new else {
            *instances,
            *(one.id for host in hosts for one in self.residents[self.names.positions[host.id]]),
        }  # fmt: skip
        for name in candidates:
            one = placed.get(name)
            if one is not None and one.host in there:
                there[one.host][name] = one
        held = _grouped(coming, "host")
        for host in hosts:
            yield [*there[host.id].values(), *held.get(host.id, ())]

    def _with_table(self, table: ProfileTable) -> Rows:
        """These rows with the profiles' numbers in another table, 0 = no longer there."""
        if table is self.scenes.table:
            return self
        number = np.zeros(len(self.scenes.table.values), dtype=np.int64)
        for key, row in self.scenes.table.rows.items():
            number[row] = table.rows.get(key, 0)
        return replace(self, scenes=replace(self.scenes, table=table, profile=number[self.scenes.profile]))


def _ticks(when: datetime | None) -> int:
    """Microseconds since the epoch, exactly."""
    return _NEVER if when is None else (when - _EPOCH) // _TICK


def _coming(pending: Iterable[Instance], placed: Mapping[str, Instance]) -> tuple[Instance, ...]:
    """The pending answers that count: the inventory does not show their instance on any host yet."""
    return tuple(one for one in pending if one.id not in placed)


def _patched(placed: Mapping[str, Instance], instances: Mapping[str, Instance | None]) -> Mapping[str, Instance]:
    """The instances that have a host after some were put or deleted."""
    if not instances:
        return placed
    now = dict(placed)
    for name, one in instances.items():
        now.pop(name, None)
        if one is not None and one.host:
            now[name] = one
    return now


def _counted(name: str, placed: Mapping[str, Instance], coming: Iterable[Instance]) -> list[Instance]:
    """An instance as it counts on hosts: as placed, or as its pending answers place it."""
    return [placed[name]] if name in placed else [one for one in coming if one.id == name]


def _grouped(items: Iterable[T], key: str) -> dict[str, list[T]]:
    """Items by the value of a field, in their order."""
    found: dict[str, list[T]] = {}
    for one in items:
        found.setdefault(getattr(one, key), []).append(one)
    return found
