"""Plans: the table of plans that were made; the only SQL about them."""

from __future__ import annotations

import sqlalchemy as sa

from advisor.domain import Plan
from advisor.store import codec
from advisor.store.schema import ID, VALUE, UtcTime, metadata
from advisor.store.statements import insert_new

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("created_at", UtcTime, nullable=False, index=True),
    sa.Column("model_version", ID, nullable=False),
    sa.Column("answer", VALUE, nullable=False),  # the whole Plan
)


def add(connection: sa.Connection, plan: Plan) -> None:
    """Keep a plan; the same question at the same moment has the same plan under the same id, which is kept once."""
    row = {"id": plan.id, "created_at": plan.created_at, "model_version": plan.model_version, "answer": plan}
    insert_new(connection, plans, [row])


def get(connection: sa.Connection, plan_id: str) -> Plan | None:
    answer = connection.scalar(sa.select(plans.c.answer).where(plans.c.id == plan_id))
    return None if answer is None else codec.decode(Plan, answer)
