"""Registered models and co-locations that users posted; the only SQL on both."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from advisor.domain import Activation, ModelCard, PostedColocation, codec
from advisor.store.schema import ID, VALUE, UtcTime, insert_new, metadata, upsert
from profiler.observed import Colocation

Status = Literal["candidate", "shadow", "active", "retired"]
ANALYTIC = "analytic"  # stands in the history where the analytic model alone answered

models = sa.Table(
    "models",
    metadata,
    sa.Column("version", ID, primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),  # one of Status
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("origin", sa.String(32), nullable=False),
    sa.Column("card", VALUE, nullable=False),
)
verdicts = sa.Table(  # what the gate last said; beside `models`, for it changes and a card never does
    "verdicts",
    metadata,
    sa.Column("version", ID, sa.ForeignKey("models.version"), primary_key=True),
    sa.Column("verdict", VALUE, nullable=False),
)
activations = sa.Table(
    "activations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),  # in the order of commits: every writer holds the counter's lock
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("before", ID, nullable=False),
    sa.Column("after", ID, nullable=False),
    sa.Column("cause", sa.String(16), nullable=False),  # activate, force or rollback
)
for _status in ("active", "shadow"):  # the database itself refuses a second one
    sa.Index(
        f"uq_models_{_status}",
        models.c.status,
        unique=True,
        sqlite_where=models.c.status == _status,
        postgresql_where=models.c.status == _status,
    )
_CARDS = sa.select(models, verdicts.c.verdict).outerjoin(verdicts, verdicts.c.version == models.c.version)


def add(connection: sa.Connection, card: ModelCard) -> bool:
    """Insert a model with its verdict; False, and nothing written, when its version is registered already."""
    row = codec.columns(card)
    verdict = row.pop("verdict")
    is_new = insert_new(connection, models, [row]) == 1
    if is_new and verdict is not None:
        set_verdict(connection, card.version, verdict)
    return is_new


def set_verdict(connection: sa.Connection, version: str, verdict: Mapping[str, Any]) -> None:
    """Keep what the gate says now of a registered model."""
    upsert(connection, verdicts, [{"version": version, "verdict": verdict}])


def get(connection: sa.Connection, version: str) -> ModelCard | None:
    """The card of this version; None = there is none."""
    row = connection.execute(_CARDS.where(models.c.version == version)).mappings().one_or_none()
    return None if row is None else _read(row)


def in_status(connection: sa.Connection, status: Status) -> tuple[ModelCard, ...]:
    """The models of one status, newest first."""
    query = _CARDS.where(models.c.status == status).order_by(models.c.created_at.desc(), models.c.version)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def active(connection: sa.Connection) -> ModelCard | None:
    """The learned model that answers, None when the analytic model alone does."""
    return next(iter(in_status(connection, "active")), None)


def activate(connection: sa.Connection, version: str | None) -> None:
    """Retire the active model and make `version`, which must exist, the active one; None = no learned model."""
    _replace(connection, "active", version, former="retired")


def shadow(connection: sa.Connection, version: str | None) -> None:
    """Let `version`, which must exist, be scored beside the active model; None = no model is. The former one is a
    candidate again."""
    _replace(connection, "shadow", version, former="candidate")


def load_all(connection: sa.Connection) -> tuple[ModelCard, ...]:
    """Newest first."""
    query = _CARDS.order_by(models.c.created_at.desc(), models.c.version)
    return tuple(_read(row) for row in connection.execute(query).mappings())


def record(connection: sa.Connection, activation: Activation) -> None:
    """Append to the history."""
    connection.execute(sa.insert(activations).values(codec.columns(activation)))


def history(connection: sa.Connection) -> tuple[Activation, ...]:
    """Every change of the model that answers, oldest first."""
    rows = connection.execute(sa.select(activations).order_by(activations.c.id))
    return tuple(Activation(row.at, row.before, row.after, row.cause) for row in rows)


def _replace(connection: sa.Connection, status: Status, version: str | None, *, former: Status) -> None:
    connection.execute(sa.update(models).where(models.c.status == status).values(status=former))
    connection.execute(sa.update(models).where(models.c.version == version).values(status=status))


def _read(row: sa.RowMapping) -> ModelCard:
    return codec.decode(ModelCard, row)


# Colocations: outcomes that users posted, which move answers and later models learn from; the only SQL about them.

colocations = sa.Table(
    "colocations",
    metadata,
    sa.Column("run", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),
    sa.Column("repeat", ID, primary_key=True),
    sa.Column("observed", VALUE, nullable=False),  # the whole Colocation
    sa.Column("recorded_at", UtcTime, nullable=False, index=True),
    sa.Column("sender", sa.String(200), nullable=False, server_default=""),  # of the audit log
)


def add_colocation(connection: sa.Connection, colocation: Colocation, now: datetime, sender: str = "") -> bool:
    """Insert it; False when its run, platform and repeat are there already."""
    key = {"run": colocation.run, "platform": colocation.platform, "repeat": colocation.repeat}
    row = {**key, "observed": colocation, "recorded_at": now, "sender": sender[:200]}
    return insert_new(connection, colocations, [row]) == 1


def forget_colocations(connection: sa.Connection, run: str) -> int:
    """Delete everything that was stored of a run; returns how much that was."""
    return connection.execute(sa.delete(colocations).where(colocations.c.run == run)).rowcount


def get_colocations(connection: sa.Connection, run: str, platform: str, repeat: str) -> Colocation | None:
    """What was posted of one repeat of a run on a platform; None = nothing."""
    here = sa.and_(colocations.c.run == run, colocations.c.platform == platform, colocations.c.repeat == repeat)
    observed = connection.scalar(sa.select(colocations.c.observed).where(here))
    return None if observed is None else codec.decode(Colocation, observed)


def newest_colocations(connection: sa.Connection, most: int, most_outcomes: int) -> tuple[PostedColocation, ...]:
    """Those that were recorded last, the newest first, as long as they have at most so many outcomes together."""
    keys = (colocations.c.run, colocations.c.platform, colocations.c.repeat)
    query = sa.select(colocations.c.observed, colocations.c.sender)
    query = query.order_by(colocations.c.recorded_at.desc(), *keys).limit(most)
    found, outcomes = [], 0
    for observed, sender in connection.execute(query):
        found.append(PostedColocation(codec.decode(Colocation, observed), sender))
        outcomes += len(found[-1].colocation.outcomes)
        if outcomes > most_outcomes:
            return tuple(found[:-1])
    return tuple(found)
