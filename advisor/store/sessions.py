"""Sessions: the table of who is signed in to the pages, with digests in place of secrets; the only SQL about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from advisor.domain import codec
from advisor.settings import CLOCK_SKEW
from advisor.store.schema import ID, UtcTime, metadata

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


def add(connection: sa.Connection, session: Session) -> None:
    """Insert a session; IntegrityError when its digest is taken."""
    connection.execute(sa.insert(sessions).values(**codec.columns(session)))


def get(connection: sa.Connection, digest: str, now: datetime) -> Session | None:
    """The session with this digest, unless it has expired, or began in the future by a clock that was ahead."""
    here = (sessions.c.digest == digest, sessions.c.expires_at > now, sessions.c.began_at <= now + CLOCK_SKEW)
    row = connection.execute(sa.select(sessions).where(*here)).one_or_none()
    return None if row is None else Session(**row._mapping)


def is_over(connection: sa.Connection, digest: str, now: datetime) -> bool:
    """Whether a session with this digest is stored, and has expired."""
    here = (sessions.c.digest == digest, sessions.c.expires_at <= now)
    return connection.scalar(sa.select(sessions.c.digest).where(*here)) is not None


def end(connection: sa.Connection, digest: str) -> str | None:
    """Delete a session; whose it was, None = there was none."""
    actor: str | None = connection.scalar(
        sa.delete(sessions).where(sessions.c.digest == digest).returning(sessions.c.actor)
    )
    return actor


def purge(connection: sa.Connection, now: datetime) -> None:
    """Delete what has expired."""
    connection.execute(sa.delete(sessions).where(sessions.c.expires_at <= now))
