"""Recommendations: the table of answers and of what really happened to them; the only SQL about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from advisor.domain import Page, Recommendation
from advisor.store import codec
from advisor.store.schema import ID, VALUE, UtcTime, metadata
from advisor.store.statements import page

recommendations = sa.Table(
    "recommendations",
    metadata,
    sa.Column("id", ID, primary_key=True),  # ids of `service` sort by time
    sa.Column("created_at", UtcTime, nullable=False, index=True),
    sa.Column("instance", ID, nullable=False, index=True),
    sa.Column("host", ID),  # the first candidate; NULL = nothing fits
    sa.Column("model_version", ID, nullable=False),
    sa.Column("dry_run", sa.Boolean, nullable=False),
    sa.Column("answer", VALUE, nullable=False),  # the whole Recommendation with its request
    sa.Column("outcome_host", ID),
    sa.Column("outcome_ratios", VALUE),
    sa.Column("outcome_at", UtcTime),
)


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
    """Where the instance went, and the throughput ratio T/B that each instance then had there."""

    host: str
    ratios: Mapping[str, float]
    recorded_at: datetime


def add(connection: sa.Connection, recommendation: Recommendation) -> None:
    """Insert an answer; IntegrityError when its id is taken."""
    connection.execute(
        sa.insert(recommendations).values(
            id=recommendation.id,
            created_at=recommendation.created_at,
            instance=recommendation.request.instance.id,
            host=recommendation.candidates[0].host if recommendation.candidates else None,
            model_version=recommendation.model_version,
            dry_run=recommendation.request.dry_run,
            answer=recommendation,
        )
    )


def get(connection: sa.Connection, recommendation_id: str) -> Recommendation | None:
    query = sa.select(recommendations.c.answer).where(recommendations.c.id == recommendation_id)
    answer = connection.scalar(query)
    return None if answer is None else codec.decode(Recommendation, answer)


def list_page(connection: sa.Connection, *, cursor: str | None, limit: int) -> Page[Recommendation]:
    """Newest first."""
    query = sa.select(recommendations.c.id, recommendations.c.answer)
    return page(connection, query, [recommendations.c.id], _read, cursor=cursor, limit=limit, newest_first=True)


def set_outcome(connection: sa.Connection, recommendation_id: str, outcome: RecordedOutcome) -> bool:
    """Keep what really happened, the latest word wins; False when there is no such recommendation."""
    statement = sa.update(recommendations).where(recommendations.c.id == recommendation_id)
    values = {"outcome_host": outcome.host, "outcome_ratios": dict(outcome.ratios), "outcome_at": outcome.recorded_at}
    return connection.execute(statement.values(values)).rowcount > 0


def outcome(connection: sa.Connection, recommendation_id: str) -> RecordedOutcome | None:
    """What really happened, None when nobody has told yet."""
    row = connection.execute(sa.select(recommendations).where(recommendations.c.id == recommendation_id)).one_or_none()
    if row is None or row.outcome_at is None:
        return None
    return RecordedOutcome(row.outcome_host, row.outcome_ratios, row.outcome_at)


def _read(row: sa.RowMapping) -> Recommendation:
    return codec.decode(Recommendation, row["answer"])
