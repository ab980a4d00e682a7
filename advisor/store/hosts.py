"""Hosts: the table, and when each was last heard of; the only SQL about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from advisor.domain import Host, Page
from advisor.store import codec
from advisor.store.schema import ID, VALUE, UtcTime, metadata
from advisor.store.statements import among, chunks, existing, keep_only, page, upsert

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
)


def put(connection: sa.Connection, items: Sequence[Host], seen_at: datetime) -> None:
    """Insert or replace hosts that were just heard of."""
    upsert(connection, hosts, [codec.encode(host) | {"seen_at": seen_at} for host in items])


def get(connection: sa.Connection, host_id: str) -> Host | None:
    row = connection.execute(sa.select(hosts).where(hosts.c.id == host_id)).mappings().one_or_none()
    return None if row is None else _read(row)


def get_many(connection: sa.Connection, ids: Iterable[str]) -> tuple[Host, ...]:
    """Those of `ids` that are hosts, by id."""
    return tuple(sorted(map(_read, among(connection, hosts.c.id, ids)), key=lambda host: host.id))


def delete(connection: sa.Connection, host_id: str) -> bool:
    """False when there is no such host; IntegrityError while instances are on it."""
    return connection.execute(sa.delete(hosts).where(hosts.c.id == host_id)).rowcount > 0


def replace_all(connection: sa.Connection, items: Sequence[Host], seen_at: datetime) -> None:
    """Make these hosts the only ones."""
    keep_only(connection, hosts.c.id, (host.id for host in items))
    put(connection, items, seen_at)


def known(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that are hosts."""
    return existing(connection, hosts.c.id, ids)


def list_page(connection: sa.Connection, *, cursor: str | None, limit: int) -> Page[Host]:
    return page(connection, sa.select(hosts), [hosts.c.id], _read, cursor=cursor, limit=limit)


def load_all(connection: sa.Connection) -> tuple[Host, ...]:
    return tuple(_read(row) for row in connection.execute(sa.select(hosts).order_by(hosts.c.id)).mappings())


def sightings(connection: sa.Connection) -> Mapping[str, datetime]:
    """When each host was last heard of."""
    return {row.id: row.seen_at for row in connection.execute(sa.select(hosts.c.id, hosts.c.seen_at))}


def heard(connection: sa.Connection, times: Mapping[str, datetime], *, every: timedelta) -> Mapping[str, datetime]:
    """Note when hosts were heard of, where that is at least `every` later than the last note (it saves writes).

    Returns the notes that were replaced.
    """
    replaced: dict[str, datetime] = {}
    for some in chunks(sorted(times)):
        for row in connection.execute(sa.select(hosts.c.id, hosts.c.seen_at).where(hosts.c.id.in_(some))):
            if times[row.id] - row.seen_at >= every:
                replaced[row.id] = row.seen_at
    if replaced:
        statement = sa.update(hosts).where(hosts.c.id == sa.bindparam("host")).values(seen_at=sa.bindparam("seen"))
        connection.execute(statement, [{"host": host, "seen": times[host]} for host in replaced])
    return replaced


def _read(row: sa.RowMapping) -> Host:
    return codec.decode(Host, row)
