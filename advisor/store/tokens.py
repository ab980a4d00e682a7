"""Tokens of the service, and sessions of browsers that signed in with one; the only SQL on both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from advisor.domain import Token, codec
from advisor.settings import CLOCK_SKEW
from advisor.store.schema import ID, UtcTime, metadata

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
