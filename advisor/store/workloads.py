"""Workloads: the table of named solo profiles, one row per workload and platform; the only SQL about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from advisor.domain import Page, WorkloadProfile, codec
from advisor.store.schema import ID, VALUE, metadata
from advisor.store.statements import among, page, upsert

workloads = sa.Table(
    "workloads",
    metadata,
    sa.Column("name", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),  # empty = holds on every platform
    sa.Column("metrics", VALUE, nullable=False),
    sa.Column("origin", sa.String(32), nullable=False),
)


def put(connection: sa.Connection, items: Sequence[WorkloadProfile]) -> None:
    """Insert or replace."""
    upsert(connection, workloads, [codec.columns(profile) for profile in items])


def named(connection: sa.Connection, name: str) -> tuple[WorkloadProfile, ...]:
    """The profiles with this name, the one that holds everywhere first."""
    query = sa.select(workloads).where(workloads.c.name == name).order_by(workloads.c.platform)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def get_many(connection: sa.Connection, names: Iterable[str]) -> tuple[WorkloadProfile, ...]:
    """The profiles with these names, by name and platform."""
    profiles = map(_read, among(connection, workloads.c.name, names))
    return tuple(sorted(profiles, key=lambda profile: (profile.name, profile.platform)))


def delete(connection: sa.Connection, name: str) -> bool:
    """Delete a workload on every platform; False when there is none."""
    return connection.execute(sa.delete(workloads).where(workloads.c.name == name)).rowcount > 0


def replace_all(connection: sa.Connection, items: Sequence[WorkloadProfile]) -> None:
    """Make these profiles the only ones."""
    connection.execute(sa.delete(workloads))
    put(connection, items)


def list_page(
    connection: sa.Connection, *, platform: str | None = None, cursor: str | None, limit: int
) -> Page[WorkloadProfile]:
    """One page of those of a platform; None = any."""
    query = sa.select(workloads)
    if platform is not None:
        query = query.where(workloads.c.platform == platform)
    keys = [workloads.c.name, workloads.c.platform]
    return page(connection, query, keys, _read, cursor=cursor, limit=limit)


def load_all(connection: sa.Connection) -> tuple[WorkloadProfile, ...]:
    query = sa.select(workloads).order_by(workloads.c.name, workloads.c.platform)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def _read(row: sa.RowMapping) -> WorkloadProfile:
    return codec.decode(WorkloadProfile, row)
