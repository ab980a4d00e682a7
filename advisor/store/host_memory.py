"""The state of each host's memory as its agent measured it lately; one row per host, the only SQL on it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlalchemy as sa

from advisor.domain import HostMemory, codec
from advisor.store.schema import ID, VALUE, metadata
from advisor.store.statements import selected, upsert

host_memory = sa.Table(
    "host_memory",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("until_s", sa.Double, nullable=False),  # samples taken up to then are in it
    sa.Column("state", VALUE, nullable=False),
)


def get(connection: sa.Connection, hosts: Collection[str]) -> dict[str, tuple[float, HostMemory]]:
    """Of these hosts, up to when it was learned, and the state."""
    rows = selected(connection, sa.select(host_memory), host_memory.c.host, hosts)
    return {row.host: (row.until_s, codec.decode(HostMemory, row.state)) for row in rows}


def since(connection: sa.Connection, since_s: float) -> dict[str, HostMemory]:
    """Of all hosts that were measured since a time."""
    query = sa.select(host_memory).where(host_memory.c.until_s >= since_s)
    return {row.host: codec.decode(HostMemory, row.state) for row in connection.execute(query)}


def put(connection: sa.Connection, found: Mapping[str, tuple[float, HostMemory]]) -> None:
    """Insert or replace."""
    rows = [
        {"host": host, "until_s": until_s, "state": codec.encode(state)} for host, (until_s, state) in found.items()
    ]
    upsert(connection, host_memory, rows)


def expire(connection: sa.Connection, before_s: float) -> None:
    """Forget hosts that were not measured since a time."""
    connection.execute(sa.delete(host_memory).where(host_memory.c.until_s < before_s))
