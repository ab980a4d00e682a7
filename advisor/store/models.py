"""Models: the registry of learned artifacts, of which at most one is active; no artifact is read here."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from advisor.domain import ModelCard
from advisor.store import codec
from advisor.store.schema import ID, VALUE, UtcTime, metadata
from advisor.store.statements import insert_new

models = sa.Table(
    "models",
    metadata,
    sa.Column("version", ID, primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),  # candidate, active or retired
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("origin", sa.String(32), nullable=False),
    sa.Column("card", VALUE, nullable=False),
)
sa.Index(  # the database itself refuses a second active model
    "uq_models_active",
    models.c.status,
    unique=True,
    sqlite_where=models.c.status == "active",
    postgresql_where=models.c.status == "active",
)


def add(connection: sa.Connection, card: ModelCard) -> bool:
    """Insert a model; False when its version is registered already."""
    return insert_new(connection, models, [codec.encode(card) | {"created_at": card.created_at}]) == 1


def get(connection: sa.Connection, version: str) -> ModelCard | None:
    row = connection.execute(sa.select(models).where(models.c.version == version)).mappings().one_or_none()
    return None if row is None else _read(row)


def active(connection: sa.Connection) -> ModelCard | None:
    row = connection.execute(sa.select(models).where(models.c.status == "active")).mappings().one_or_none()
    return None if row is None else _read(row)


def activate(connection: sa.Connection, version: str | None) -> None:
    """Retire the active model and make `version`, which must exist, the active one; None = no learned model."""
    connection.execute(sa.update(models).where(models.c.status == "active").values(status="retired"))
    connection.execute(sa.update(models).where(models.c.version == version).values(status="active"))


def load_all(connection: sa.Connection) -> tuple[ModelCard, ...]:
    """Newest first."""
    query = sa.select(models).order_by(models.c.created_at.desc(), models.c.version)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def _read(row: sa.RowMapping) -> ModelCard:
    created_at: datetime = row["created_at"]
    return codec.decode(ModelCard, dict(row) | {"created_at": created_at.isoformat()})
