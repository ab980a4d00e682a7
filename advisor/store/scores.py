"""Scores: what was delivered to each instance in its last window, and the scores of hosts and the cloud over time.

One row per instance, replaced with each window; one row per host and window, and one of the cloud (host "").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from advisor.domain import ScoreSummary
from advisor.store.schema import ID, insert_new, metadata, upsert

CLOUD = ""  # in place of a host
_AT_ONCE = 5_000  # rows that are written in one statement
_COUNTS = ("under_20", "under_40", "under_60", "under_80", "under_100")

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("host", ID, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False, index=True),  # when the window ended
    sa.Column("delivered", sa.Double),  # run / (run + wait), null = not measured, or it says nothing
    sa.Column("stalled", sa.Double),  # part of the time in which it stalled for memory, null = not measured
)
scores = sa.Table(
    "scores",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("time_s", sa.Double, primary_key=True, autoincrement=False, index=True),  # when the window ended
    sa.Column("mean", sa.Double, nullable=False),
    sa.Column("lowest", sa.Double, nullable=False),
    sa.Column("measured", sa.Integer, nullable=False),
    *(sa.Column(name, sa.Integer, nullable=False) for name in _COUNTS),
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What an instance got on a host in the window that ended at `time_s`, as parts 0-1; None = not measured."""

    host: str
    time_s: float
    delivered: float | None
    stalled: float | None


def put_deliveries(connection: sa.Connection, found: Mapping[str, Delivery]) -> None:
    """Insert or replace those of these instances."""
    rows = [
        {
            "instance": name,
            "host": one.host,
            "time_s": one.time_s,
            "delivered": one.delivered,
            "stalled": one.stalled,
        }
        for name, one in found.items()
    ]
    upsert(connection, deliveries, rows)


def deliveries_since(connection: sa.Connection, since_s: float) -> dict[str, Delivery]:
    """By instance, those of windows that ended since a time."""
    columns = (deliveries.c[name] for name in ("instance", "host", "time_s", "delivered", "stalled"))
    rows = connection.execute(sa.select(*columns).where(deliveries.c.time_s >= since_s))
    return {name: Delivery(*row) for name, *row in rows}


def has_window(connection: sa.Connection, time_s: float) -> bool:
    """Whether the scores of a window are stored."""
    query = sa.select(scores.c.host).where(scores.c.host == CLOUD, scores.c.time_s == time_s)
    return connection.scalar(query) is not None


def keep(connection: sa.Connection, time_s: float, found: Mapping[str, ScoreSummary]) -> None:
    """Store the scores of a window, by host; those that are stored stay."""
    rows = [
        {
            "host": host,
            "time_s": time_s,
            "mean": of.mean,
            "lowest": of.lowest,
            "measured": of.measured,
            **dict(zip(_COUNTS, of.counts, strict=True)),
        }
        for host, of in sorted(found.items())
        if of.mean is not None
    ]
    for start in range(0, len(rows), _AT_ONCE):
        insert_new(connection, scores, rows[start : start + _AT_ONCE])


def history(connection: sa.Connection, host: str, since_s: float) -> list[tuple[float, ScoreSummary]]:
    """The windows of a host, or of the cloud, that ended after a time: end in s and scores, the oldest first."""
    query = sa.select(scores).where(scores.c.host == host, scores.c.time_s > since_s).order_by(scores.c.time_s)
    return [
        (row.time_s, ScoreSummary.of([row._mapping[name] for name in _COUNTS], row.mean, row.lowest, row.measured))
        for row in connection.execute(query)
    ]


def expire(connection: sa.Connection, hosts_before_s: float, cloud_before_s: float) -> None:
    """Forget windows of hosts and of the cloud that ended before these times, and deliveries as old as the former."""
    old_host = (scores.c.host != CLOUD) & (scores.c.time_s < hosts_before_s)
    connection.execute(sa.delete(scores).where(old_host | (scores.c.time_s < cloud_before_s)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.time_s < hosts_before_s))
