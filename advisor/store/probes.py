"""Probes: the newest result of each probe of a host, of an instance or of a pair; the only SQL about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from advisor.domain import Page, ProbeReport, codec
from advisor.store import counters
from advisor.store.hosts import hosts
from advisor.store.schema import ID, VALUE, UtcTime, insert, metadata, page, parameters, selected
from profiler.observed import ProbeResult

probes = sa.Table(
    "probes",
    metadata,
    sa.Column("host", ID, sa.ForeignKey(hosts.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("instance", ID, primary_key=True),  # empty = of the host itself
    sa.Column("peer", ID, primary_key=True),  # empty = it has no far end, or one that is in no inventory
    sa.Column("probe", ID, primary_key=True),
    sa.Column("taken_at", UtcTime, nullable=False, index=True),
    sa.Column("result", VALUE, nullable=False),  # the whole ProbeResult
)


def put(connection: sa.Connection, reports: Sequence[ProbeReport]) -> int:
    """Keep each where nothing as new is stored of its host, instance, peer and probe; returns how many were kept.

    No two of `reports` are of the same.
    """
    if not reports:
        return 0
    rows = [
        {
            "host": report.host,
            "instance": report.instance,
            "peer": report.peer,
            "probe": report.result.probe,
            "taken_at": report.taken_at,
            "result": report.result,
        }
        for report in sorted(reports, key=lambda report: report.key)
    ]
    statement = insert(connection, probes, list(rows[0]))
    statement = statement.on_conflict_do_update(
        index_elements=[column.name for column in probes.primary_key],
        set_={name: statement.excluded[name] for name in ("taken_at", "result")},
        where=probes.c.taken_at < statement.excluded.taken_at,
    )
    counted = connection.execution_options(preserve_rowcount=True)
    return counted.execute(statement, parameters(connection, probes, rows)).rowcount


def list_page(
    connection: sa.Connection,
    *,
    host: str | None,
    instance: str | None,
    probe: str | None,
    cursor: str | None,
    limit: int,
) -> Page[ProbeReport]:
    """One page of those of a host, an instance, a probe; None = any, and "" as instance = of hosts themselves."""
    query = sa.select(probes)
    for column, wanted in ((probes.c.host, host), (probes.c.instance, instance), (probes.c.probe, probe)):
        if wanted is not None:
            query = query.where(column == wanted)
    keys = [probes.c.host, probes.c.instance, probes.c.peer, probes.c.probe]
    return page(connection, query, keys, _read, cursor=cursor, limit=limit)


def of_hosts(connection: sa.Connection, ids: Iterable[str] | None = None) -> tuple[ProbeReport, ...]:
    """Those of these hosts themselves, by host, far end and probe; `ids` None = of all hosts."""
    query = sa.select(probes).where(probes.c.instance == "").order_by(*probes.primary_key)
    rows: Iterable[Any] = connection.execute(query) if ids is None else selected(connection, query, probes.c.host, ids)
    return tuple(_read(row._mapping) for row in rows)


def alone(connection: sa.Connection, instance_ids: Iterable[str]) -> tuple[ProbeReport, ...]:
    """Those inside of these instances that name no peer."""
    query = sa.select(probes).where(probes.c.peer == "")
    return tuple(_read(row._mapping) for row in selected(connection, query, probes.c.instance, instance_ids))


def expire(connection: sa.Connection, before: datetime) -> int:
    """Forget what was taken before a time; returns how many went. For readers their hosts have changed."""
    old = probes.c.taken_at < before
    if not connection.scalar(sa.select(sa.exists().where(old))):
        return 0
    generation = counters.bump(connection, "inventory")
    host_ids = connection.scalars(sa.select(probes.c.host).where(old, probes.c.instance == "").distinct())
    counters.note_changes(connection, generation, "host", list(host_ids))
    return connection.execute(sa.delete(probes).where(old)).rowcount


def _read(row: sa.RowMapping) -> ProbeReport:
    result = codec.decode(ProbeResult, row["result"])
    return ProbeReport(row["host"], result, row["taken_at"], row["instance"], row["peer"])
