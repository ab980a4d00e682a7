"""Answers: recommendations with what really happened to them, and plans; the only SQL about them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from advisor.domain import Page, Plan, PlanEntry, PlanKind, Recommendation, codec
from advisor.store.predictions import observed
from advisor.store.schema import ID, VALUE, UtcTime, insert_new, metadata, page
from profiler.files import MEGABYTE, unpacked

MOST_UNPACKED = 256 * MEGABYTE  # of one answer

recommendations = sa.Table(
    "recommendations",
    metadata,
    sa.Column("id", ID, primary_key=True),  # ids of `service` sort by time
    sa.Column("created_at", UtcTime, nullable=False, index=True),
    sa.Column("instance", ID, nullable=False, index=True),
    sa.Column("host", ID),  # the first candidate; NULL = nothing fits
    sa.Column("model_version", ID, nullable=False),
    sa.Column("dry_run", sa.Boolean, nullable=False),
    sa.Column("answer", VALUE, nullable=False),  # the whole Recommendation with its request, see `_unpacked`
    sa.Column("outcome_host", ID),
    sa.Column("outcome_ratios", VALUE),
    sa.Column("outcome_at", UtcTime),
)
# Without them a listing of few goes over all the others, newest to oldest, and reads every one.
_REPORTED, _REAL = recommendations.c.outcome_at.is_not(None), sa.not_(recommendations.c.dry_run)
sa.Index("ix_recommendations_reported", recommendations.c.id, sqlite_where=_REPORTED, postgresql_where=_REPORTED)
sa.Index("ix_recommendations_real", recommendations.c.id, sqlite_where=_REAL, postgresql_where=_REAL)

OBSERVED_AS = "p-"  # before its id: the source under which what came of an answer is among the observed rows
_BODY = ("candidates", "rejected", "notes", "present")
PACKED = "packed"  # these together as JSON, deflated, in base64: a sixth of the bytes
STANDS_IN = "stands_in"  # in these the word that stands where the instance's name belongs
_INSERT = sa.insert(recommendations)  # made once: values that are given with a statement make a new one each time


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
    """Where the instance went, and the throughput ratio T/B that each instance then had there."""

    host: str
    ratios: Mapping[str, float]
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class PackedBody:
    """What is long of an answer, in fewer bytes, as one row or many have it: where the instance's name belongs the text
    may say `stands_in`, a word that stands nowhere else; empty = it says the name."""

    text: str
    stands_in: str = ""

    @classmethod
    def of(cls, recommendation: Recommendation, stands_in: str = "") -> PackedBody:
        """Of an answer."""
        body = codec.text({name: getattr(recommendation, name) for name in _BODY})
        packed = base64.b64encode(zlib.compress(body.encode(), 1)).decode()
        return cls(packed, stands_in if stands_in and stands_in in body else "")

    def said_of(self, instance: str) -> bytes:
        """The JSON of it, about the instance of this name, which needs no quoting there."""
        body = unpacked(base64.b64decode(self.text), MOST_UNPACKED)
        return body.replace(self.stands_in.encode(), instance.encode()) if self.stands_in else body


def add(connection: sa.Connection, recommendation: Recommendation, body: PackedBody | None = None) -> None:
    """Insert an answer; IntegrityError when its id is taken. `body` is what is long of it, if it is at hand."""
    body = PackedBody.of(recommendation) if body is None else body
    head = {
        field.name: getattr(recommendation, field.name) for field in fields(recommendation) if field.name not in _BODY
    }
    stands_in = {STANDS_IN: body.stands_in} if body.stands_in else {}
    row = {
        "id": recommendation.id,
        "created_at": recommendation.created_at,
        "instance": recommendation.request.instance.id,
        "host": recommendation.candidates[0].host if recommendation.candidates else None,
        "model_version": recommendation.model_version,
        "dry_run": recommendation.request.dry_run,
        "answer": head | stands_in | {PACKED: body.text},
    }
    connection.execute(_INSERT, row)


def get(connection: sa.Connection, recommendation_id: str) -> Recommendation | None:
    """The whole answer, None = there is none such."""
    query = sa.select(recommendations.c.answer).where(recommendations.c.id == recommendation_id)
    answer = connection.scalar(query)
    return None if answer is None else _unpacked(answer)


def list_with_outcomes(
    connection: sa.Connection, *, reported: bool, real: bool, cursor: str | None, limit: int
) -> Page[tuple[Recommendation, RecordedOutcome | None]]:
    """Newest first, each with its outcome; `reported` = only those that have one, `real` = no dry runs."""
    table = recommendations.c
    query = sa.select(table.id, table.answer, table.outcome_host, table.outcome_ratios, table.outcome_at)
    query = query.where(_REPORTED) if reported else query
    query = query.where(_REAL) if real else query

    def read(row: sa.RowMapping) -> tuple[Recommendation, RecordedOutcome | None]:
        return _unpacked(row["answer"]), _outcome(row)

    return page(connection, query, [table.id], read, cursor=cursor, limit=limit, newest_first=True)


def set_outcome(connection: sa.Connection, recommendation_id: str, outcome: RecordedOutcome) -> bool:
    """Keep what really happened, the latest word wins; False when there is no such recommendation."""
    statement = sa.update(recommendations).where(recommendations.c.id == recommendation_id)
    values = {"outcome_host": outcome.host, "outcome_ratios": dict(outcome.ratios), "outcome_at": outcome.recorded_at}
    return connection.execute(statement.values(values)).rowcount > 0


def outcome(connection: sa.Connection, recommendation_id: str) -> RecordedOutcome | None:
    """What really happened, None when nothing was reported yet."""
    table = recommendations.c
    query = sa.select(table.outcome_host, table.outcome_ratios, table.outcome_at).where(table.id == recommendation_id)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _outcome(row)


def expire(connection: sa.Connection, before: datetime, most: int) -> int:
    """Delete answers from before a time, the oldest first and so many at most; returns how many went.

    Those whose outcome is still among the observed rows stay.
    """
    observed_too = sa.exists().where(observed.c.source == OBSERVED_AS + recommendations.c.id)
    expired = sa.select(recommendations.c.id).where(recommendations.c.created_at < before, ~observed_too)
    expired = expired.order_by(recommendations.c.created_at).limit(most)
    statement = sa.delete(recommendations).where(recommendations.c.id.in_(expired.scalar_subquery()))
    return connection.execute(statement).rowcount


def _outcome(row: sa.RowMapping) -> RecordedOutcome | None:
    if row["outcome_at"] is None:
        return None
    return RecordedOutcome(row["outcome_host"], row["outcome_ratios"], row["outcome_at"])


def _unpacked(answer: Mapping[str, Any]) -> Recommendation:
    """From either form: answers of before lie there in plain text."""
    packed = answer.get(PACKED)
    if packed is None:
        return codec.decode(Recommendation, answer)
    body = PackedBody(packed, answer.get(STANDS_IN, "")).said_of(answer["request"]["instance"]["id"])
    return codec.decode(Recommendation, {**answer, **json.loads(body)})


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


def add_plan(connection: sa.Connection, plan: Plan) -> None:
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


def get_plan(connection: sa.Connection, plan_id: str) -> Plan | None:
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


def expire_plans(connection: sa.Connection, before: datetime, most: int) -> int:
    """Delete plans from before a time, the oldest first and so many at most; returns how many went."""
    expired = sa.select(plans.c.id).where(plans.c.created_at < before).order_by(plans.c.created_at).limit(most)
    return connection.execute(sa.delete(plans).where(plans.c.id.in_(expired.scalar_subquery()))).rowcount
