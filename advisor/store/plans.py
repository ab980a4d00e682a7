"""Plans: the table of plans that were made; the only SQL about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from advisor.domain import Page, Plan, PlanEntry, PlanKind, codec
from advisor.store.schema import ID, VALUE, UtcTime, insert_new, metadata, page

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("id", ID, primary_key=True),  # sorts by time
    sa.Column("created_at", UtcTime, nullable=False, index=True),
    sa.Column("model_version", ID, nullable=False),
    sa.Column("answer", VALUE, nullable=False),  # the whole Plan
    sa.Column("kind", sa.String(16), nullable=False, server_default="admit"),  # all that there was before
    sa.Column("generation", sa.BigInteger),  # of the inventory; NULL = not known
    sa.Index("ix_plans_kind_id", "kind", "id"),
)


def add(connection: sa.Connection, plan: Plan) -> None:
    """Keep a plan; the same question at the same moment has the same plan under the same id, which is kept once."""
    row = {
        "id": plan.id,
        "created_at": plan.created_at,
        "model_version": plan.model_version,
        "answer": plan,
        "kind": plan.request.kind,
        "generation": plan.generation,
    }
    insert_new(connection, plans, [row])


def get(connection: sa.Connection, plan_id: str) -> Plan | None:
    """The whole plan, None = there is none such."""
    answer = connection.scalar(sa.select(plans.c.answer).where(plans.c.id == plan_id))
    if answer is None:
        return None
    return codec.decode(Plan, {**answer, "steps": [_of_now(step) for step in answer["steps"]]})


def _of_now(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored step: earlier versions kept what is predicted of a placed instance as a candidate."""
    before = step.get("candidate")
    if before is None:
        return step
    placed = {"score": before["score"], "new_vm": before["newcomer"], "neighbours": before["neighbours"]}
    return {**step, **placed, "settings": step.get("settings") or before["isolation"]}


def list_page(connection: sa.Connection, *, kind: PlanKind | None, cursor: str | None, limit: int) -> Page[PlanEntry]:
    """Newest first, those of one kind; the plans themselves are not read."""
    query = sa.select(plans.c.id, plans.c.created_at, plans.c.kind, plans.c.model_version, plans.c.generation)
    if kind is not None:
        query = query.where(plans.c.kind == kind)
    return page(
        connection, query, [plans.c.id], lambda row: PlanEntry(**row), cursor=cursor, limit=limit, newest_first=True
    )


def expire(connection: sa.Connection, before: datetime, most: int) -> int:
    """Delete plans from before a time, the oldest first and so many at most; returns how many went."""
    expired = sa.select(plans.c.id).where(plans.c.created_at < before).order_by(plans.c.created_at).limit(most)
    return connection.execute(sa.delete(plans).where(plans.c.id.in_(expired.scalar_subquery()))).rowcount
