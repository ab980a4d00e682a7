"""Tokens: the table of who may ask, with digests in place of secrets; the only SQL about them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from advisor.domain import Token, codec
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
