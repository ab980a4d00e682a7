"""Alarms: the state of each host whose measured shares lie below the predicted ones; the only SQL on it.

One row per host, deleted once measurements agree again, so the table is no longer than the list of hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from advisor.store.schema import ID, VALUE, metadata
from advisor.store.statements import upsert

alarms = sa.Table(
    "alarms",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("last_s", sa.Double, nullable=False),  # when the last window ended that was looked at
    sa.Column("state", VALUE, nullable=False),
)


def get(connection: sa.Connection, host: str) -> Mapping[str, Any] | None:
    """The state of a host; None = there is none."""
    state: Mapping[str, Any] | None = connection.scalar(sa.select(alarms.c.state).where(alarms.c.host == host))
    return state


def put(connection: sa.Connection, host: str, last_s: float, state: Mapping[str, Any]) -> None:
    """Insert or replace the state of a host."""
    upsert(connection, alarms, [{"host": host, "last_s": last_s, "state": dict(state)}])


def delete(connection: sa.Connection, host: str) -> None:
    """Delete the state of a host."""
    connection.execute(sa.delete(alarms).where(alarms.c.host == host))


def load_all(connection: sa.Connection) -> dict[str, Mapping[str, Any]]:
    """Every state by host, in the order of hosts."""
    query = sa.select(alarms.c.host, alarms.c.state).order_by(alarms.c.host)
    return {row.host: row.state for row in connection.execute(query)}


def silent(connection: sa.Connection, before_s: float) -> dict[str, Mapping[str, Any]]:
    """The states of hosts of which no window was looked at since then."""
    query = sa.select(alarms.c.host, alarms.c.state).where(alarms.c.last_s < before_s)
    return {row.host: row.state for row in connection.execute(query)}
