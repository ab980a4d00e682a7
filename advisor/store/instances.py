"""Instances as stored, pending answers that count on their host until it shows them, and named workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from advisor.domain import Instance, IsolationSettings, NamedSize, Page, WorkloadProfile, codec
from advisor.settings import CLOCK_SKEW
from advisor.store import schema
from advisor.store.hosts import hosts
from advisor.store.schema import (
    ID,
    VALUE,
    UtcTime,
    among,
    chunks,
    every,
    existing,
    keep_only,
    metadata,
    page,
    selected,
    upsert,
)
from profiler.demand import Demand, DemandOrigin, Resource

BY_HAND: frozenset[DemandOrigin] = frozenset({"given", "trace"})  # beats what was measured; see `_read`
FULL_LOAD = 1.0  # of who says nothing else; another load is a word about demand, too

instances = sa.Table(
    "instances",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Double, nullable=False),
    sa.Column("disk_gb", sa.Double, nullable=False),
    sa.Column("host", ID, sa.ForeignKey(hosts.c.id), index=True),
    sa.Column("workload", ID),  # by name only: an instance may run what was never measured
    sa.Column("load", sa.Double, nullable=False),
    sa.Column("settings", VALUE, nullable=False),
    sa.Column("service", sa.String(16), nullable=False),
    sa.Column("min_throughput_ratio", sa.Double),
    sa.Column("labels", VALUE, nullable=False),
    sa.Column("max_latency_ratio", sa.Double),
    sa.Column("max_time_short", sa.Double),
    sa.Column("exclusive", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("dedicated_vcpus", sa.Integer, nullable=False, server_default="0"),
    sa.Column("demand", VALUE, nullable=False, server_default=sa.text("'{}'")),
    # What our own windows say, which no `put` changes, and where the counter `demand` stood when that was news.
    sa.Column("measured", VALUE, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("measured_at", sa.BigInteger, nullable=False, server_default="0", index=True),
)
Measured = Mapping[Resource, Demand]


def put(connection: sa.Connection, items: Sequence[Instance]) -> None:
    """Insert or replace; IntegrityError when a host does not exist."""
    upsert(connection, instances, [codec.columns(instance) for instance in items])


_ONE = sa.select(instances).where(instances.c.id == sa.bindparam("instance_id"))  # made once: every question asks


def get(connection: sa.Connection, instance_id: str) -> Instance | None:
    """The instance of this id; None = there is none."""
    row = connection.execute(_ONE, {"instance_id": instance_id}).mappings().one_or_none()
    return None if row is None else _read(row)


def get_many(connection: sa.Connection, ids: Iterable[str]) -> tuple[Instance, ...]:
    """Those of `ids` that are instances, by id."""
    return tuple(sorted(map(_read, among(connection, instances.c.id, ids)), key=lambda instance: instance.id))


def of_uuids(connection: sa.Connection, uuids: Iterable[str]) -> tuple[Instance, ...]:
    """Those whose label `uuid` is one of these, by id; reads every row where there are any."""
    rows = selected(connection, sa.select(instances), instances.c.labels["uuid"].as_string(), uuids)
    return tuple(sorted((_read(row._mapping) for row in rows), key=attrgetter("id")))


def called(connection: sa.Connection, name: str) -> tuple[str, ...]:
    """The id where it is one, else ids of instances that go by this name."""
    return (name,) if known(connection, [name]) else schema.called(connection, instances, name)


def delete(connection: sa.Connection, instance_id: str) -> bool:
    """False when there is no such instance."""
    return connection.execute(sa.delete(instances).where(instances.c.id == instance_id)).rowcount > 0


def keep(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Delete every instance but these."""
    keep_only(connection, instances.c.id, ids)


def places(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str | None]:
    """Of those of `ids` that are instances the host, None = none."""
    rows = selected(connection, sa.select(instances.c.id, instances.c.host), instances.c.id, ids)
    return {row.id: row.host for row in rows}


def unplace(connection: sa.Connection) -> None:
    """Take every instance off its host, within a transaction that puts them back."""
    connection.execute(sa.update(instances).values(host=None))


def known(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that are instances."""
    return existing(connection, instances.c.id, ids)


def on_hosts(connection: sa.Connection, host_ids: Iterable[str]) -> tuple[Instance, ...]:
    """Everything on these hosts, by id."""
    return tuple(sorted(map(_read, among(connection, instances.c.host, host_ids)), key=lambda instance: instance.id))


def aliases(connection: sa.Connection, host_ids: Iterable[str]) -> Mapping[tuple[str, str], str]:
    """Of these hosts: host and name on the hypervisor (label `domain`) → id, where that is another one."""
    query = sa.select(instances.c.id, instances.c.host, instances.c.labels)
    rows = selected(connection, query, instances.c.host, host_ids)
    return {(row.host, row.labels["domain"]): row.id for row in rows if row.labels.get("domain", row.id) != row.id}


def list_page(
    connection: sa.Connection,
    *,
    host: str | None,
    workload: str | None = None,
    part: str | None = None,
    cursor: str | None,
    limit: int,
) -> Page[Instance]:
    """One page of those on a host, of a workload, and with this part in their id or in their label `name`, whatever its
    case; None = any."""
    query = sa.select(instances)
    if part is not None:
        names = (instances.c.id, instances.c.labels["name"].as_string())
        query = query.where(sa.or_(*(name.icontains(part, autoescape=True) for name in names)))
    if workload is not None:
        query = query.where(instances.c.workload == workload)
    if host is not None:
        query = query.where(instances.c.host == host)
    return page(connection, query, [instances.c.id], _read, cursor=cursor, limit=limit)


def named(connection: sa.Connection, part: str, limit: int) -> tuple[Instance, ...]:
    """Those with `part` in their id or in their label `name`, whatever its case; what begins with it comes first."""
    columns = (instances.c.id, instances.c.labels["name"].as_string())
    first = sa.or_(*(sa.func.coalesce(column.istartswith(part, autoescape=True), sa.false()) for column in columns))
    there = sa.or_(*(column.icontains(part, autoescape=True) for column in columns))
    query = sa.select(instances).where(there).order_by(sa.case((first, 0), else_=1), instances.c.id).limit(limit)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def flavors(connection: sa.Connection, part: str, limit: int) -> tuple[NamedSize, ...]:
    """Flavors by name that instances have (label `flavor_name` of OpenStack, else `flavor`) and whose name has `part`,
    those of most instances first."""
    labels, sizes = instances.c.labels, (instances.c.vcpus, instances.c.memory_mb)
    name = sa.func.coalesce(labels["flavor_name"].as_string(), labels["flavor"].as_string())
    query = (
        sa.select(name.label("name"), *sizes)
        .where(name.icontains(part, autoescape=True))
        .group_by(name, *sizes)
        .order_by(sa.func.count().desc(), name, *sizes)
        .limit(limit)
    )
    return tuple(NamedSize(row.name, row.vcpus, row.memory_mb) for row in connection.execute(query))


def load_all(connection: sa.Connection) -> tuple[Instance, ...]:
    """Every instance, by id."""
    return tuple(map(_read, every(connection, sa.select(instances).order_by(instances.c.id))))


def measured(connection: sa.Connection, ids: Iterable[str]) -> dict[str, tuple[int, Measured]]:
    """Of those of `ids` that are instances their vCPUs and what is known of their measured demand, by resource."""
    query = sa.select(instances.c.id, instances.c.vcpus, instances.c.measured)
    rows = selected(connection, query, instances.c.id, ids)
    return {row.id: (row.vcpus, _demands(row.measured)) for row in rows}


def published(connection: sa.Connection, ids: Iterable[str]) -> dict[str, tuple[int, Mapping[Resource, Any]]]:
    """The same as it is stored, in plain values."""
    rows = connection.execute(_published(connection.dialect.name), {"names": schema.list_of(connection, ids)})
    return {name: (vcpus, measured) for name, vcpus, measured in rows.all()}


@cache
def _published(dialect: str) -> sa.Select[Any]:
    query = sa.select(instances.c.id, instances.c.vcpus, instances.c.measured)
    return query.where(schema.one_of(dialect, instances.c.id, "names"))


def tell_measured(
    connection: sa.Connection, news: Mapping[str, Mapping[Resource, Demand | Mapping[str, Any]]], counter: int
) -> None:
    """Replace what is known of the measured demand of these, which was news when the counter moved to `counter`."""
    rows = [{"name": name, "demands": dict(news[name]), "counter": counter} for name in sorted(news)]
    if rows:
        connection.execute(_PUBLISH, rows)


_PUBLISH = (
    sa.update(instances)
    .where(instances.c.id == sa.bindparam("name"))
    .values(measured=sa.bindparam("demands", type_=VALUE), measured_at=sa.bindparam("counter"))
)


def measured_since(connection: sa.Connection, counter: int) -> tuple[Instance, ...]:
    """Those of whose measured demand there was news after the counter stood there."""
    rows = connection.execute(sa.select(instances).where(instances.c.measured_at > counter)).mappings()
    return tuple(map(_read, rows))


def _read(row: sa.RowMapping) -> Instance:
    """An instance with its measured demand where neither a demand nor a load was given by hand."""
    instance = codec.decode(Instance, row)
    if not row["measured"] or instance.load != FULL_LOAD:
        return instance
    by_hand = {resource for resource, demand in instance.demand.items() if demand.origin in BY_HAND}
    from_agents = _demands(row["measured"]).items()
    from_windows = {
        resource: demand.within(instance.vcpus) for resource, demand in from_agents if resource not in by_hand
    }
    return replace(instance, demand={**instance.demand, **from_windows})


def _demands(stored: Mapping[Resource, object]) -> Measured:
    return {resource: codec.decode(Demand, value) for resource, value in stored.items()}


# Pending answers: instances just advised to a host, which count there until the inventory shows them or time is up.

pending = sa.Table(
    "pending",
    metadata,
    sa.Column("instance", ID, primary_key=True),  # a second answer for the same instance replaces the first
    sa.Column("host", ID, sa.ForeignKey(hosts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("recommendation", ID, nullable=False),
    sa.Column("placed", VALUE, nullable=False),  # the instance as advised: on its host, with its settings
    sa.Column("profile", VALUE),  # what the question said of its workload, where it was no named one
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("changes", VALUE, nullable=False, server_default="{}"),
    sa.Column("driver_cpus", VALUE),
)


@dataclass(frozen=True, slots=True)
class Pending:
    """One answer that the inventory does not show yet; `placed.host` is the advised host. Without a `recommendation` a
    scheduler placed the instance by itself, and reported it.

    `changes` are the settings that the answer gives to residents of that host, `driver_cpus` the pCPUs that it gives to
    the driver domain, None = as they are.
    """

    recommendation: str
    placed: Instance
    profile: WorkloadProfile | None
    expires_at: datetime
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    driver_cpus: tuple[int, ...] | None = None

    @property
    def host(self) -> str:
        """The advised host."""
        return self.placed.host or ""


def hold_pending(connection: sa.Connection, answers: Sequence[Pending]) -> None:
    """Keep answers; IntegrityError when a host is gone."""
    rows = [{"instance": answer.placed.id, "host": answer.host, **codec.columns(answer)} for answer in answers]
    upsert(connection, pending, rows)


def drop_pending(connection: sa.Connection, instance_ids: Iterable[str]) -> bool:
    """Forget answers, since the inventory shows these instances or they are gone; whether there were any."""
    deletes = [sa.delete(pending).where(pending.c.instance.in_(part)) for part in chunks(sorted(set(instance_ids)))]
    return sum(connection.execute(delete).rowcount for delete in deletes) > 0


def purge_pending(connection: sa.Connection, now: datetime, reserve: timedelta) -> None:
    """Delete what does not hold its host any more."""
    connection.execute(sa.delete(pending).where(sa.not_(_holds(now, reserve))))


def load_pending(
    connection: sa.Connection, now: datetime, reserve: timedelta, known: Iterable[Pending] = ()
) -> tuple[Pending, ...]:
    """What holds its host now, by instance; `reserve` is for how long an answer does. Of those that are `known` from
    before nothing else is read: an answer about an instance that replaces another one ends later."""
    former = {(answer.placed.id, answer.host, answer.recommendation, answer.expires_at): answer for answer in known}
    columns = pending.c.instance, pending.c.host, pending.c.recommendation, pending.c.expires_at
    query = sa.select(*columns).where(_holds(now, reserve)).order_by(pending.c.instance)
    by_instance = {row.instance: former.get(tuple(row)) for row in connection.execute(query)}
    new = [name for name, answer in by_instance.items() if answer is None]
    by_instance |= {row["instance"]: codec.decode(Pending, row) for row in among(connection, pending.c.instance, new)}
    return tuple(answer for answer in by_instance.values() if answer is not None)


def answered_since(connection: sa.Connection, since: datetime, reserve: timedelta) -> bool:
    """Whether an answer was held since then, rather than what a scheduler reported by itself."""
    later = sa.and_(pending.c.recommendation != "", pending.c.expires_at > since + reserve)
    return connection.execute(sa.select(pending.c.instance).where(later).limit(1)).first() is not None


def _holds(now: datetime, reserve: timedelta) -> sa.ColumnElement[bool]:
    """Not expired; what lasts longer than anything held now was held by a clock that was ahead."""
    return sa.and_(pending.c.expires_at > now, pending.c.expires_at <= now + reserve + CLOCK_SKEW)


# Workloads: the table of named solo profiles, one row per workload and platform; the only SQL about them.

workloads = sa.Table(
    "workloads",
    metadata,
    sa.Column("name", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),  # empty = holds on every platform
    sa.Column("metrics", VALUE, nullable=False),
    sa.Column("origin", sa.String(32), nullable=False),
)


def put_workload(connection: sa.Connection, items: Sequence[WorkloadProfile]) -> None:
    """Insert or replace."""
    upsert(connection, workloads, [codec.columns(profile) for profile in items])


def workloads_named(connection: sa.Connection, name: str) -> tuple[WorkloadProfile, ...]:
    """The profiles with this name, the one that holds everywhere first."""
    query = sa.select(workloads).where(workloads.c.name == name).order_by(workloads.c.platform)
    return tuple(_workload(row) for row in connection.execute(query).mappings())


def get_workloads(connection: sa.Connection, names: Iterable[str]) -> tuple[WorkloadProfile, ...]:
    """The profiles with these names, by name and platform."""
    profiles = map(_workload, among(connection, workloads.c.name, names))
    return tuple(sorted(profiles, key=lambda profile: (profile.name, profile.platform)))


def delete_workload(connection: sa.Connection, name: str) -> bool:
    """Delete a workload on every platform; False when there is none."""
    return connection.execute(sa.delete(workloads).where(workloads.c.name == name)).rowcount > 0


def replace_workloads(connection: sa.Connection, items: Sequence[WorkloadProfile]) -> None:
    """Make these profiles the only ones."""
    connection.execute(sa.delete(workloads))
    put_workload(connection, items)


def list_workloads(
    connection: sa.Connection, *, platform: str | None = None, cursor: str | None, limit: int
) -> Page[WorkloadProfile]:
    """One page of those of a platform; None = any."""
    query = sa.select(workloads)
    if platform is not None:
        query = query.where(workloads.c.platform == platform)
    keys = [workloads.c.name, workloads.c.platform]
    return page(connection, query, keys, _workload, cursor=cursor, limit=limit)


def load_workloads(connection: sa.Connection) -> tuple[WorkloadProfile, ...]:
    """Every profile of a workload, by name and platform."""
    query = sa.select(workloads).order_by(workloads.c.name, workloads.c.platform)
    return tuple(_workload(row) for row in connection.execute(query).mappings())


def _workload(row: sa.RowMapping) -> WorkloadProfile:
    return codec.decode(WorkloadProfile, row)
