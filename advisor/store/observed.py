"""Observed: the table of predictions beside what was measured, bounded per platform; the only SQL about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields

import sqlalchemy as sa

from advisor.store import locks
from advisor.store.schema import ID, UtcTime, metadata
from advisor.store.statements import insert_new, selected
from models.evaluation.prediction_checks import CheckedPrediction

observed = sa.Table(
    "observed",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),  # in the order in which rows came
    sa.Column("source", sa.String(64), nullable=False),  # rows of one source were measured together
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("version", ID, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("target", sa.String(16), nullable=False),
    sa.Column("platform", ID, nullable=False),
    sa.Column("workload", ID, nullable=False),  # empty = unknown
    sa.Column("instance", ID, nullable=False),
    sa.Column("expected", sa.Double, nullable=False),
    sa.Column("lower", sa.Double, nullable=False),
    sa.Column("upper", sa.Double, nullable=False),
    sa.Column("outside", sa.Boolean, nullable=False),
    sa.Column("observed", sa.Double, nullable=False),
    sa.UniqueConstraint("source", "instance", "target", "version"),
    sa.Index("ix_observed_platform_id", "platform", "id"),
    sa.Index("ix_observed_version_id", "version", "id"),
    sqlite_autoincrement=True,  # the number of a row that is gone is never given again
)
_COLUMNS = tuple(observed.c[field.name] for field in fields(CheckedPrediction))


def add(connection: sa.Connection, rows: Sequence[CheckedPrediction], *, keep: int) -> int:
    """Insert the rows that are new, forget the oldest of their platforms beyond `keep`; returns how many were new."""
    locks.alone(connection, "observed")  # so that numbers have the order of commits, and readers of news miss none
    added = insert_new(connection, observed, [asdict(row) for row in rows])
    for platform in {row.platform for row in rows}:
        here = observed.c.platform == platform
        newest_gone = sa.select(observed.c.id).where(here).order_by(observed.c.id.desc()).offset(keep).limit(1)
        connection.execute(sa.delete(observed).where(here, observed.c.id <= newest_gone.scalar_subquery()))
    return added


def forget(connection: sa.Connection, source: str) -> None:
    """Delete what one source reported, because it says otherwise now."""
    connection.execute(sa.delete(observed).where(observed.c.source == source))


def platforms_since(connection: sa.Connection, number: int) -> tuple[str, ...]:
    """The platforms that have a row with a higher number."""
    return tuple(connection.scalars(sa.select(observed.c.platform).where(observed.c.id > number).distinct()))


def of_version(connection: sa.Connection, version: str, *, last: int) -> tuple[CheckedPrediction, ...]:
    """What a model's figures need, in the order in which it came: of each role and target the `last` rows of each
    workload and twice as many of each platform."""
    parts = (observed.c.role, observed.c.target)
    on_platform, of_workload = (
        sa.func.row_number().over(partition_by=(*parts, column), order_by=observed.c.id.desc()).label(column.name)
        for column in (observed.c.platform, observed.c.workload)
    )
    placed = sa.select(observed.c.id, on_platform, of_workload).where(observed.c.version == version).subquery()
    wanted = sa.or_(placed.c.platform <= 2 * last, placed.c.workload <= last)
    query = sa.select(*_COLUMNS).join(placed, placed.c.id == observed.c.id).where(wanted).order_by(observed.c.id)
    return tuple(CheckedPrediction(*row) for row in connection.execute(query))


def throughput_on(
    connection: sa.Connection, platform: str, version: str, *, last: int
) -> tuple[CheckedPrediction, ...]:
    """The `last` rows of a model about throughput on one platform, in the order in which they came."""
    here = (observed.c.platform == platform, observed.c.version == version, observed.c.target == "throughput")
    query = sa.select(*_COLUMNS).where(*here).order_by(observed.c.id.desc()).limit(last)
    return tuple(CheckedPrediction(*row) for row in connection.execute(query))[::-1]


def of_sources(connection: sa.Connection, sources: Iterable[str], *, other_than: str) -> tuple[CheckedPrediction, ...]:
    """What other models predicted for the same measurements, in the order in which it came."""
    query = sa.select(observed.c.id, *_COLUMNS).where(observed.c.version != other_than)
    rows = sorted(selected(connection, query, observed.c.source, sources), key=lambda row: row.id)
    return tuple(CheckedPrediction(*row[1:]) for row in rows)
