"""Idempotency keys: what each caller's key was used for, and the answer that a repeated request gets; the only SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from advisor.domain import codec
from advisor.store.schema import ID, VALUE, UtcTime, insert_new, metadata

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


def add(connection: sa.Connection, use: KeyUse) -> bool:
    """Insert a use without an answer; False, and nothing written, where the caller has used the key already."""
    return insert_new(connection, idempotency_keys, [codec.columns(use)]) == 1


def get(connection: sa.Connection, actor: str, key: str) -> KeyUse | None:
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


def expire(connection: sa.Connection, before: datetime) -> None:
    """Forget the uses that began before a time."""
    connection.execute(sa.delete(idempotency_keys).where(idempotency_keys.c.begun_at < before))


def _same(use: KeyUse) -> tuple[sa.ColumnElement[bool], ...]:
    table = idempotency_keys.c
    return table.actor == use.actor, table.key == use.key, table.begun_at == use.begun_at
