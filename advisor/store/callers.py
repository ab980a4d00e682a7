"""What is kept of callers: the audit log, tokens, sessions, idempotency keys; the only SQL on these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from advisor.domain import AuditEntry, Page, Token, codec
from advisor.settings import CLOCK_SKEW
from advisor.store.schema import ID, VALUE, UtcTime, insert_new, metadata, page

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


def add_entry(connection: sa.Connection, entry: AuditEntry) -> None:
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
    return page(connection, query, [audit.c.id], _read_entry, cursor=cursor, limit=limit, newest_first=True)


def events(connection: sa.Connection, after_id: str, before_id: str, *, most: int) -> tuple[AuditEntry, ...]:
    """The oldest entries of alarms, plans, models and the inventory with ids between these two, at most so many."""
    here = (audit.c.id > after_id, audit.c.id < before_id, _IS_EVENT)
    query = sa.select(audit).where(*here).order_by(audit.c.id).limit(most)
    return tuple(_read_entry(row) for row in connection.execute(query).mappings())


def purge(connection: sa.Connection, before_id: str, *, most: int) -> int:
    """Delete the oldest entries whose id sorts before this one, at most so many; returns how many went."""
    oldest = sa.select(audit.c.id).where(audit.c.id < before_id).order_by(audit.c.id).limit(most)
    return connection.execute(sa.delete(audit).where(audit.c.id.in_(oldest.scalar_subquery()))).rowcount


def _read_entry(row: sa.RowMapping) -> AuditEntry:
    return AuditEntry(**{**row, "objects": tuple(row["objects"])})


tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", ID, nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),  # NULL = never
    sa.Column("revoked_at", UtcTime),
    sa.Column("host", ID, nullable=False, server_default=""),  # the only one that it speaks for
)


def add(connection: sa.Connection, token: Token, digest: str) -> None:
    """Insert a token; IntegrityError when its id is taken."""
    connection.execute(sa.insert(tokens).values(**codec.columns(token), digest=digest))


def load_all(connection: sa.Connection) -> tuple[tuple[Token, str], ...]:
    """Every token there ever was with its digest, the newest first."""
    query = sa.select(tokens).order_by(tokens.c.created_at.desc(), tokens.c.id)
    return tuple((_read(row), row.digest) for row in connection.execute(query))


def get(connection: sa.Connection, token_id: str) -> Token | None:
    """The token of this id, revoked or not; None = there is none."""
    row = connection.execute(sa.select(tokens).where(tokens.c.id == token_id)).one_or_none()
    return None if row is None else _read(row)


def revoke(connection: sa.Connection, token_id: str, at: datetime) -> None:
    """Note when it was revoked; the first time counts. Rows stay: `advisor.access.tokens` says what depends on that."""
    statement = sa.update(tokens).where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
    connection.execute(statement.values(revoked_at=at))


def expire(connection: sa.Connection, ids: Collection[str]) -> None:
    """Note that these have expired, as if they had been revoked then: no clock that steps back makes them valid."""
    statement = sa.update(tokens).where(tokens.c.id.in_(ids), tokens.c.revoked_at.is_(None))
    connection.execute(statement.values(revoked_at=tokens.c.expires_at))


def _read(row: sa.Row[tuple[object, ...]]) -> Token:
    return Token(row.id, row.name, row.scope, row.created_at, row.expires_at, row.revoked_at, row.host)


# Sessions: the table of who is signed in to the pages, with digests in place of secrets; the only SQL about them.

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("actor", ID, nullable=False),
    sa.Column("sealed", sa.Text),  # a token of Keystone's, which only the secret opens; NULL = one of our own
    sa.Column("began_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False, index=True),
)


@dataclass(frozen=True, slots=True)
class Session:
    """Who signed in, until when at most."""

    digest: str
    actor: str
    sealed: str | None
    began_at: datetime
    expires_at: datetime


def add_session(connection: sa.Connection, session: Session) -> None:
    """Insert a session; IntegrityError when its digest is taken."""
    connection.execute(sa.insert(sessions).values(**codec.columns(session)))


def get_session(connection: sa.Connection, digest: str, now: datetime) -> Session | None:
    """The session with this digest, unless it has expired, or began in the future by a clock that was ahead."""
    here = (sessions.c.digest == digest, sessions.c.expires_at > now, sessions.c.began_at <= now + CLOCK_SKEW)
    row = connection.execute(sa.select(sessions).where(*here)).one_or_none()
    return None if row is None else Session(**row._mapping)


def session_is_over(connection: sa.Connection, digest: str, now: datetime) -> bool:
    """Whether a session with this digest is stored, and has expired."""
    here = (sessions.c.digest == digest, sessions.c.expires_at <= now)
    return connection.scalar(sa.select(sessions.c.digest).where(*here)) is not None


def end_session(connection: sa.Connection, digest: str) -> str | None:
    """Delete a session; whose it was, None = there was none."""
    actor: str | None = connection.scalar(
        sa.delete(sessions).where(sessions.c.digest == digest).returning(sessions.c.actor)
    )
    return actor


def purge_sessions(connection: sa.Connection, now: datetime) -> None:
    """Delete what has expired."""
    connection.execute(sa.delete(sessions).where(sessions.c.expires_at <= now))


KEPT = timedelta(hours=24)  # for so long an answer is given again

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("actor", ID, primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),  # its SHA-256 digest
    sa.Column("request", sa.String(64), nullable=False),  # a digest of what was asked
    sa.Column("begun_at", UtcTime, nullable=False, index=True),
    sa.Column("answer", VALUE),  # NULL = it is being worked on
)


@dataclass(frozen=True, slots=True)
class KeyUse:
    """What a caller's key was last used for; `key` and `request` are digests, `answer` None = not answered yet."""

    actor: str
    key: str
    request: str
    begun_at: datetime
    answer: Mapping[str, Any] | None = None


def add_key(connection: sa.Connection, use: KeyUse) -> bool:
    """Insert a use without an answer; False, and nothing written, where the caller has used the key already."""
    return insert_new(connection, idempotency_keys, [codec.columns(use)]) == 1


def get_key(connection: sa.Connection, actor: str, key: str) -> KeyUse | None:
    """What it was used for; None = for nothing."""
    query = sa.select(idempotency_keys).where(idempotency_keys.c.actor == actor, idempotency_keys.c.key == key)
    row = connection.execute(query).one_or_none()
    return None if row is None else KeyUse(**row._mapping)


def begin_anew(connection: sa.Connection, former: KeyUse, request: str, now: datetime) -> bool:
    """Let the key stand for another request; False where another writer did that since `former` was read."""
    values = {"request": request, "begun_at": now, "answer": None}
    return connection.execute(sa.update(idempotency_keys).where(*_same(former)).values(values)).rowcount == 1


def answer(connection: sa.Connection, use: KeyUse, response: Mapping[str, Any]) -> None:
    """Keep what the request was answered with, unless the key stands for another one by now."""
    connection.execute(sa.update(idempotency_keys).where(*_same(use)).values(answer=dict(response)))


def delete(connection: sa.Connection, use: KeyUse) -> None:
    """Forget a use, unless the key stands for another request by now."""
    connection.execute(sa.delete(idempotency_keys).where(*_same(use)))


def expire_keys(connection: sa.Connection, before: datetime) -> None:
    """Forget the uses that began before a time."""
    connection.execute(sa.delete(idempotency_keys).where(idempotency_keys.c.begun_at < before))


def _same(use: KeyUse) -> tuple[sa.ColumnElement[bool], ...]:
    table = idempotency_keys.c
    return table.actor == use.actor, table.key == use.key, table.begun_at == use.begun_at
