"""The audit log, and its index by object; rows are added and expire, none is changed."""

from __future__ import annotations

import sqlalchemy as sa

from advisor.domain import AuditEntry, Page, codec
from advisor.store.schema import ID, VALUE, UtcTime, metadata, page

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", ID, primary_key=True),  # sorts by time
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("actor", ID, nullable=False),
    sa.Column("request_id", ID, nullable=False),  # empty = a command, not a request
    sa.Column("operation", sa.String(32), nullable=False),
    sa.Column("objects", VALUE, nullable=False),
    sa.Column("detail", VALUE, nullable=False),
    sa.Index("ix_audit_actor_id", "actor", "id"),
)
# Written out, and the same in the index and in the question: SQLite uses a partial index for nothing else.
_IS_EVENT = sa.text(
    "operation IN ('alarm.end', 'alarm.raise', 'change.carry_out', 'change.freeze', 'change.measure', 'change.plan',"
    " 'change.thaw', 'change.undo', 'host.delete', 'host.put', 'instance.delete', 'instance.put',"
    " 'inventory.announce', 'inventory.follow', 'inventory.put', 'model.activate', 'plan.answer',"
    " 'workload.delete', 'workload.put')"
)
sa.Index("ix_audit_events", audit.c.id, sqlite_where=_IS_EVENT, postgresql_where=_IS_EVENT)
audit_objects = sa.Table(
    "audit_objects",
    metadata,
    sa.Column("object", ID, primary_key=True),
    sa.Column("audit", ID, sa.ForeignKey(audit.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    sqlite_with_rowid=False,
)
_INSERT, _INSERT_OBJECTS = sa.insert(audit), sa.insert(audit_objects)  # made once: every change needs them


def add(connection: sa.Connection, entry: AuditEntry) -> None:
    """Append an entry."""
    connection.execute(_INSERT, codec.columns(entry))
    if entry.objects:
        named = [{"object": name, "audit": entry.id} for name in sorted(set(entry.objects))]
        connection.execute(_INSERT_OBJECTS, named)


def list_page(
    connection: sa.Connection, *, actor: str | None, named: str | None, cursor: str | None, limit: int
) -> Page[AuditEntry]:
    """Newest first; those of one actor, those that name one object."""
    query = sa.select(audit)
    if actor is not None:
        query = query.where(audit.c.actor == actor)
    if named is not None:
        query = query.join(audit_objects, audit_objects.c.audit == audit.c.id).where(audit_objects.c.object == named)
    return page(connection, query, [audit.c.id], _read, cursor=cursor, limit=limit, newest_first=True)


def events(connection: sa.Connection, after_id: str, before_id: str, *, most: int) -> tuple[AuditEntry, ...]:
    """The oldest entries of alarms, plans, models and the inventory with ids between these two, at most so many."""
    here = (audit.c.id > after_id, audit.c.id < before_id, _IS_EVENT)
    query = sa.select(audit).where(*here).order_by(audit.c.id).limit(most)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def purge(connection: sa.Connection, before_id: str, *, most: int) -> int:
    """Delete the oldest entries whose id sorts before this one, at most so many; returns how many went."""
    oldest = sa.select(audit.c.id).where(audit.c.id < before_id).order_by(audit.c.id).limit(most)
    return connection.execute(sa.delete(audit).where(audit.c.id.in_(oldest.scalar_subquery()))).rowcount


def _read(row: sa.RowMapping) -> AuditEntry:
    return AuditEntry(**{**row, "objects": tuple(row["objects"])})
