"""Hosts as stored, with the state of their memory; the only SQL on both."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from advisor.domain import Host, HostMemory, Page, codec
from advisor.settings import CLOCK_SKEW
from advisor.store import schema
from advisor.store.schema import (
    ID,
    VALUE,
    UtcTime,
    among,
    every,
    existing,
    keep_only,
    list_of,
    metadata,
    one_of,
    page,
    selected,
    upsert,
)

hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("pcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Double, nullable=False),
    sa.Column("threads_per_core", sa.Integer, nullable=False),
    sa.Column("cpu_mhz", sa.Double),
    sa.Column("l2_mb", sa.Double),
    sa.Column("l3_mb", sa.Double),
    sa.Column("nic_mbit", sa.Double),
    sa.Column("disk_gb", sa.Double),
    sa.Column("disk_kind", sa.String(16), nullable=False),
    sa.Column("numa", VALUE, nullable=False),
    sa.Column("driver_cpus", VALUE, nullable=False),
    sa.Column("labels", VALUE, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("cpu_overcommit", sa.Double, nullable=False),
    sa.Column("memory_overcommit", sa.Double, nullable=False),
    sa.Column("platform", ID, nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
    sa.Column("driver_overcommit", sa.Double, nullable=False, server_default="2.0"),
    sa.Column("disk_mb_s", sa.Double),
    sa.Column("mem_bw_mb_s", sa.Double),
    sa.Column("driver_weight", sa.Integer, nullable=False, server_default="256"),
    # Whether a source reports it again and again: an agent, a sync, a dated inventory. Then silence means something.
    sa.Column("reported", sa.Boolean, nullable=False, server_default=sa.false()),
    # After how many seconds its silence counts, where its source said so; else as the settings say.
    sa.Column("patience_s", sa.Double),
    sa.Column("cpu_ids", VALUE, nullable=False, server_default="[]"),
    sa.Column("isolated_cpus", VALUE, nullable=False, server_default="[]"),
    sa.Column("own_cpus", sa.Double, nullable=False, server_default="0"),
    # CPUs that its own work used of late, None = not measured, and up to when samples were read for that.
    sa.Column("measured_own_cpus", sa.Double),
    sa.Column("own_until_s", sa.Double),
    sa.Column("dedicated_cpus", VALUE, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("second_thread", sa.Double),
    sa.Column("turbo_mhz", sa.Double),
    sa.Column("disk_iops", sa.Double),
    sa.Column("siblings", VALUE, nullable=False, server_default=sa.text("'[]'")),
)


def put(connection: sa.Connection, items: Sequence[Host], seen_at: datetime, *, reported: bool = False) -> None:
    """Insert or replace hosts that were just heard of; `reported` = and will be again. It is never taken back."""
    more: dict[str, Any] = {"seen_at": seen_at, **({"reported": True} if reported else {})}
    rows = [codec.columns(host) | more for host in items]
    for row in rows:
        del row["probed"]  # is read from the results of probes, whoever puts the host
    upsert(connection, hosts, rows)


def get(connection: sa.Connection, host_id: str) -> Host | None:
    """The host of this id; None = there is none."""
    row = connection.execute(sa.select(hosts).where(hosts.c.id == host_id)).mappings().one_or_none()
    return None if row is None else _read(row)


def get_many(connection: sa.Connection, ids: Iterable[str]) -> tuple[Host, ...]:
    """Those of `ids` that are hosts, by id."""
    return tuple(sorted(map(_read, among(connection, hosts.c.id, ids)), key=lambda host: host.id))


def called(connection: sa.Connection, name: str) -> tuple[str, ...]:
    """The id where it is one, else ids of hosts that go by this name."""
    return (name,) if known(connection, [name]) else schema.called(connection, hosts, name)


def delete(connection: sa.Connection, host_id: str) -> bool:
    """False when there is no such host; IntegrityError while instances are on it."""
    return connection.execute(sa.delete(hosts).where(hosts.c.id == host_id)).rowcount > 0


def replace_all(connection: sa.Connection, items: Sequence[Host], seen_at: datetime, *, reported: bool = False) -> None:
    """Make these hosts the only ones."""
    keep_only(connection, hosts.c.id, (host.id for host in items))
    put(connection, items, seen_at, reported=reported)


def known(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that are hosts."""
    return existing(connection, hosts.c.id, ids)


def staying(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that are hosts; no other writer deletes them before this transaction ends."""
    locked = sa.select(hosts.c.id).order_by(hosts.c.id).with_for_update(read=True, key_share=True)
    return {row.id for row in selected(connection, locked, hosts.c.id, ids)}


def list_page(
    connection: sa.Connection,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    kind: str | None = None,
    enabled: bool | None = None,
    cursor: str | None,
    limit: int,
) -> Page[Host]:
    """One page of those with every one of `labels`, of this kind, enabled or not; None = any.

    A label's name may hold no quote and no backslash, with which it could not be named in a path into the JSON.
    """
    query = sa.select(hosts)
    for name, value in labels.items():
        query = query.where(hosts.c.labels[name].as_string() == value)
    if kind is not None:
        query = query.where(hosts.c.kind == kind)
    if enabled is not None:
        query = query.where(hosts.c.enabled == enabled)
    return page(connection, query, [hosts.c.id], _read, cursor=cursor, limit=limit)


def load_all(connection: sa.Connection) -> tuple[Host, ...]:
    """Every host, by id."""
    return tuple(map(_read, every(connection, sa.select(hosts).order_by(hosts.c.id))))


def sightings(connection: sa.Connection, now: datetime) -> Mapping[str, datetime | None]:
    """When each host was last heard of, None = not known: it was noted by a clock that was ahead."""
    rows = connection.execute(sa.select(hosts.c.id, hosts.c.seen_at))
    return {row.id: row.seen_at if row.seen_at <= now + CLOCK_SKEW else None for row in rows}


def sightings_of(connection: sa.Connection, ids: Iterable[str]) -> Mapping[str, datetime]:
    """When those of `ids` that are hosts were last heard of, as it was noted."""
    query = sa.select(hosts.c.id, hosts.c.seen_at)
    return {row.id: row.seen_at for row in selected(connection, query, hosts.c.id, ids)}


def patience(connection: sa.Connection, ids: Iterable[str] | None = None) -> Mapping[str, float]:
    """After how many seconds a host's silence counts: inf = never, as no source reports it again and again.

    One that is left out goes by the settings. `ids` None = of all hosts.
    """
    query = sa.select(hosts.c.id, hosts.c.reported, hosts.c.patience_s)
    rows: Iterable[Any] = connection.execute(query) if ids is None else selected(connection, query, hosts.c.id, ids)
    limits_s = {row.id: row.patience_s if row.reported else math.inf for row in rows}
    return {name: limit_s for name, limit_s in limits_s.items() if limit_s is not None}


def heard(
    connection: sa.Connection,
    times: Mapping[str, datetime],
    *,
    now: datetime,
    fresh: timedelta,
    again: timedelta | None = None,
) -> bool:
    """Note when hosts were heard of; True when one of them had no fresh data before and has some now.

    A note is replaced where it is older by a tenth of `fresh`, which saves writes, or lies in the future. `again` is
    within which time the next news come at the latest, zero = none are expected, None = within `fresh`; of several who
    tell of a host, the one who takes longest counts.
    """
    expected_s = None if again is None else again.total_seconds()
    reported = expected_s != 0
    replaced: list[str] = []
    renewed, latest = False, now + CLOCK_SKEW
    for row in connection.execute(_notes(connection.dialect.name), {"hosts": list_of(connection, times)}):
        unknown = row.seen_at > latest
        allowed = fresh if row.patience_s is None else timedelta(seconds=row.patience_s)
        slower = bool(expected_s) and (row.patience_s is None or row.patience_s < expected_s)
        first = reported and not row.reported
        if unknown or first or slower or times[row.id] - row.seen_at >= min(allowed, fresh) / 10:
            replaced.append(row.id)
            renewed |= slower
            renewed |= times[row.id] >= now - allowed and (unknown or row.seen_at < now - allowed)
    if replaced:
        seen = sa.bindparam("seen", type_=UtcTime)
        # Another writer may note a later time meanwhile; in one order, so that two never wait for each other.
        earlier = sa.or_(hosts.c.seen_at < seen, hosts.c.seen_at > latest)
        here = sa.and_(hosts.c.id == sa.bindparam("host"), earlier)
        rows = [{"host": host, "seen": times[host]} for host in replaced]
        connection.execute(sa.update(hosts).where(here).values(seen_at=seen), rows)
        if reported:
            new = sa.and_(hosts.c.id == sa.bindparam("host"), ~hosts.c.reported)
            connection.execute(sa.update(hosts).where(new).values(reported=True), [{"host": host} for host in replaced])
        if expected_s:
            less = sa.or_(hosts.c.patience_s.is_(None), hosts.c.patience_s < expected_s)
            where = sa.and_(hosts.c.id == sa.bindparam("host"), less)
            longer = sa.update(hosts).where(where).values(patience_s=expected_s)
            connection.execute(longer, [{"host": host} for host in replaced])
    return renewed


@cache
def _notes(dialect: str) -> sa.Select[Any]:
    query = sa.select(hosts.c.id, hosts.c.seen_at, hosts.c.reported, hosts.c.patience_s)
    return query.where(one_of(dialect, hosts.c.id, "hosts"))


@dataclass(frozen=True, slots=True)
class LearnedLoad:
    """The CPUs that a host's own work used of late, by samples up to a time (s); None = not measured."""

    id: str
    pcpus: int
    cpus: float | None
    until_s: float | None


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """The same where it was measured."""

    id: str
    pcpus: int
    cpus: float


_OWN_LOAD = (hosts.c.id, hosts.c.pcpus, hosts.c.measured_own_cpus, hosts.c.own_until_s)


def own_load_due(connection: sa.Connection, newest: Mapping[str, float], every_s: float) -> list[LearnedLoad]:
    """Those of these hosts, by when their newest sample was taken, of which the own load is to be learned again."""
    rows = connection.execute(_own_load(connection.dialect.name), {"hosts": list_of(connection, newest)})
    found = (LearnedLoad(*row) for row in rows)
    due = (row for row in found if row.until_s is None or newest[row.id] - row.until_s >= every_s)
    return sorted(due, key=attrgetter("id"))


@cache
def _own_load(dialect: str) -> sa.Select[Any]:
    return sa.select(*_OWN_LOAD).where(hosts.c.kind != "xen", one_of(dialect, hosts.c.id, "hosts"))


def own_loads(connection: sa.Connection) -> list[MeasuredLoad]:
    """Of all hosts of which it was measured."""
    query = sa.select(hosts.c.id, hosts.c.pcpus, hosts.c.measured_own_cpus)
    return [MeasuredLoad(*row) for row in connection.execute(query.where(hosts.c.measured_own_cpus.is_not(None)))]


def put_own_load(connection: sa.Connection, host_id: str, cpus: float, until_s: float) -> None:
    """Store what was measured by samples up to a time."""
    connection.execute(_PUT_OWN_LOAD, {"host": host_id, "cpus": cpus, "end_s": until_s})


_PUT_OWN_LOAD = (
    sa.update(hosts)
    .where(hosts.c.id == sa.bindparam("host"))
    .values(measured_own_cpus=sa.bindparam("cpus"), own_until_s=sa.bindparam("end_s"))
)


def _read(row: sa.RowMapping) -> Host:
    return codec.decode(Host, row)


# The state of each host's memory as its agent measured it lately; one row per host, the only SQL on it.

host_memory = sa.Table(
    "host_memory",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("until_s", sa.Double, nullable=False),  # samples taken up to then are in it
    sa.Column("state", VALUE, nullable=False),
)


def get_memory(connection: sa.Connection, hosts: Collection[str]) -> dict[str, tuple[float, HostMemory]]:
    """Of these hosts, up to when it was learned, and the state."""
    rows = connection.execute(_memory(connection.dialect.name), {"hosts": list_of(connection, hosts)})
    return {host: (until_s, codec.decode(HostMemory, state)) for host, until_s, state in rows}


@cache
def _memory(dialect: str) -> sa.Select[Any]:
    return sa.select(host_memory).where(one_of(dialect, host_memory.c.host, "hosts"))


def memory_since(connection: sa.Connection, since_s: float) -> dict[str, HostMemory]:
    """Of all hosts that were measured since a time."""
    query = sa.select(host_memory).where(host_memory.c.until_s >= since_s)
    return {row.host: codec.decode(HostMemory, row.state) for row in connection.execute(query)}


def put_memory(connection: sa.Connection, found: Mapping[str, tuple[float, HostMemory]]) -> None:
    """Insert or replace."""
    rows = [
        {"host": host, "until_s": until_s, "state": codec.encode(state)} for host, (until_s, state) in found.items()
    ]
    upsert(connection, host_memory, rows)


def expire_memory(connection: sa.Connection, before_s: float) -> None:
    """Forget hosts that were not measured since a time."""
    connection.execute(sa.delete(host_memory).where(host_memory.c.until_s < before_s))
