"""Locks that PostgreSQL needs and SQLite, which has one writer at a time, does not; held until the transaction ends."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa

What = Literal["tables", "series", "observed", "border", "rollups", "held", "stays", "controls"]

# Keys of advisory locks are the database's own: these are ours, one for each thing that no row stands for.
_KEYS: dict[What, int] = {
    "tables": 0x636F7401,
    "series": 0x636F7402,
    "observed": 0x636F7403,
    "border": 0x636F7404,
    "rollups": 0x636F7405,
    "held": 0x636F7406,
    "stays": 0x636F7407,
    "controls": 0x636F7408,
}


def alone(connection: sa.Connection, name: What) -> None:
    """Wait until no other process holds this, alone or shared, and keep all others out."""
    _lock(connection, sa.func.pg_advisory_xact_lock(_KEYS[name]))


def shared(connection: sa.Connection, name: What) -> None:
    """Hold this together with others who share it; whoever wants it alone waits."""
    _lock(connection, sa.func.pg_advisory_xact_lock_shared(_KEYS[name]))


def _lock(connection: sa.Connection, function: sa.Function[None]) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(function))
