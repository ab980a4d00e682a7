"""Instances: the table of what runs where; the only SQL about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from advisor.domain import Instance, Page
from advisor.store import codec
from advisor.store.hosts import hosts
from advisor.store.schema import ID, VALUE, metadata
from advisor.store.statements import among, existing, keep_only, page, upsert

instances = sa.Table(
    "instances",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Double, nullable=False),
    sa.Column("disk_gb", sa.Double, nullable=False),
    sa.Column("host", ID, sa.ForeignKey(hosts.c.id), index=True),
    sa.Column("workload", ID),  # by name only: an instance may run what nobody has measured
    sa.Column("load", sa.Double, nullable=False),
    sa.Column("settings", VALUE, nullable=False),
    sa.Column("service", sa.String(16), nullable=False),
    sa.Column("min_throughput_ratio", sa.Double),
    sa.Column("labels", VALUE, nullable=False),
    sa.Column("max_latency_ratio", sa.Double),
    sa.Column("exclusive", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("demand", VALUE, nullable=False, server_default=sa.text("'{}'")),
)


def put(connection: sa.Connection, items: Sequence[Instance]) -> None:
    """Insert or replace; IntegrityError when a host does not exist."""
    upsert(connection, instances, [codec.encode(instance) for instance in items])


def get(connection: sa.Connection, instance_id: str) -> Instance | None:
    row = connection.execute(sa.select(instances).where(instances.c.id == instance_id)).mappings().one_or_none()
    return None if row is None else _read(row)


def get_many(connection: sa.Connection, ids: Iterable[str]) -> tuple[Instance, ...]:
    """Those of `ids` that are instances, by id."""
    return tuple(sorted(map(_read, among(connection, instances.c.id, ids)), key=lambda one: one.id))


def delete(connection: sa.Connection, instance_id: str) -> bool:
    """False when there is no such instance."""
    return connection.execute(sa.delete(instances).where(instances.c.id == instance_id)).rowcount > 0


def keep(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Delete every instance but these."""
    keep_only(connection, instances.c.id, ids)


def unplace(connection: sa.Connection) -> None:
    """Take every instance off its host, within a transaction that puts them back."""
    connection.execute(sa.update(instances).values(host=None))


def known(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that are instances."""
    return existing(connection, instances.c.id, ids)


def on_hosts(connection: sa.Connection, host_ids: Iterable[str]) -> tuple[Instance, ...]:
    """Everything on these hosts, by id."""
    return tuple(sorted(map(_read, among(connection, instances.c.host, host_ids)), key=lambda one: one.id))


def list_page(
    connection: sa.Connection, *, host: str | None, workload: str | None = None, cursor: str | None, limit: int
) -> Page[Instance]:
    """One page of those on a host and of a workload; None = any."""
    query = sa.select(instances)
    if workload is not None:
        query = query.where(instances.c.workload == workload)
    if host is not None:
        query = query.where(instances.c.host == host)
    return page(connection, query, [instances.c.id], _read, cursor=cursor, limit=limit)


def load_all(connection: sa.Connection) -> tuple[Instance, ...]:
    query = sa.select(instances).order_by(instances.c.id)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def _read(row: sa.RowMapping) -> Instance:
    return codec.decode(Instance, row)
