"""Samples and their means are packs: a row for each host and time in place of one for each value.

What is stored is moved, some hours of a host at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op

from advisor.store import packs

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

_DAY_S = 86_400
_SPAN_S = 6 * 3600  # of samples of a host that are moved at once
_MOST_IDS = 500


def upgrade() -> None:
    postgresql = op.get_bind().dialect.name == "postgresql"
    for name in ("sample_packs", "mean_packs"):
        op.create_table(
            name,
            sa.Column("host", sa.String(255), nullable=False),
            sa.Column("time_s", sa.Double, nullable=False),
            sa.Column("number", sa.Integer, nullable=False),
            sa.Column("data", sa.LargeBinary, nullable=False),
            sa.PrimaryKeyConstraint("host", "time_s", name=f"pk_{name}"),
            sqlite_with_rowid=False,
            postgresql_partition_by="RANGE (time_s)" if name == "sample_packs" else None,
        )
        if postgresql:  # it is compressed already
            op.execute(f"ALTER TABLE {name} ALTER COLUMN data SET STORAGE EXTERNAL")
    op.add_column("series", sa.Column("last_day", sa.Integer, nullable=False, server_default="0"))
    _move(op.get_bind())
    op.drop_table("samples")
    op.drop_table("rollups")
    op.drop_table("open_windows")  # samples of the last hours are in the database wherever the others are


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")


def _move(connection: sa.Connection) -> None:
    newest = "SELECT max(time_s) FROM (SELECT time_s FROM samples UNION ALL SELECT time_s FROM rollups) AS both_of_them"
    newest_s = connection.scalar(sa.text(newest))
    if newest_s is None:
        return
    connection.execute(sa.text("UPDATE series SET last_day = :day"), {"day": int(newest_s // _DAY_S)})
    for host in connection.scalars(sa.text("SELECT DISTINCT host FROM series")).all():
        ids = sorted(connection.scalars(sa.text("SELECT id FROM series WHERE host = :host"), {"host": host}))
        _move_of(connection, host, ids, "samples", "value")
        _move_of(connection, host, ids, "rollups", "mean, most, number")


def _move_of(connection: sa.Connection, host: str, ids: Sequence[int], table: str, columns: str) -> None:
    """The rows of these series in `table`, packed by time."""
    parts = [ids[begin : begin + _MOST_IDS] for begin in range(0, len(ids), _MOST_IDS)]
    listed: sa.BindParameter[list[int]] = sa.bindparam("ids", expanding=True)
    ends = sa.text(f"SELECT min(time_s), max(time_s) FROM {table} WHERE series IN :ids").bindparams(listed)  # noqa: S608
    query = sa.text(
        f"SELECT time_s, series, {columns} FROM {table} "  # noqa: S608
        "WHERE series IN :ids AND time_s >= :begin_s AND time_s < :end_s"
    ).bindparams(listed)
    found = [connection.execute(ends, {"ids": part}).one() for part in parts]
    times = [(first, last) for first, last in found if first is not None]
    if not times:
        return
    begin_s, last_s = min(first for first, _ in times) // _SPAN_S * _SPAN_S, max(last for _, last in times)
    into = "sample_packs" if table == "samples" else "mean_packs"
    for step in range(math.floor((last_s - begin_s) / _SPAN_S) + 1):
        span = {"begin_s": begin_s + step * _SPAN_S, "end_s": begin_s + (step + 1) * _SPAN_S}
        rows = [tuple(row) for part in parts for row in connection.execute(query, {"ids": part, **span})]
        if rows:
            _put(connection, into, host, np.array(rows, np.float64))


def _put(connection: sa.Connection, into: str, host: str, rows: np.ndarray) -> None:
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    begins = np.flatnonzero(np.diff(rows[:, 0], prepend=-1.0))
    packed: list[dict[str, Any]] = [
        {
            "host": host,
            "time_s": float(part[0, 0]),
            "number": len(part),
            "data": packs.pack(part[:, 1].astype(np.int64), *(column.copy() for column in part[:, 2:].T)),
        }
        for part in np.split(rows, begins[1:])
    ]
    if into == "sample_packs" and connection.dialect.name == "postgresql":
        for day in sorted({int(row["time_s"] // _DAY_S) for row in packed}):
            name = f"sample_packs_{datetime.fromtimestamp(day * _DAY_S, UTC):%Y%m%d}"
            bounds = f"FROM ({day * _DAY_S}) TO ({(day + 1) * _DAY_S})"
            op.execute(f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF sample_packs FOR VALUES {bounds}")
    statement = f"INSERT INTO {into} VALUES (:host, :time_s, :number, :data)"  # noqa: S608
    connection.execute(sa.text(statement), packed)
