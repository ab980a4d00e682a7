"""Answers and plans go when they are old enough, batch by batch, and an answer stays as long as what came of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from advisor.domain import Instance, PlacementRequest, Plan, Recommendation, Rejection, codec
from advisor.lifecycle.outcome_checks import source_of
from advisor.settings import Settings
from advisor.store import answers, predictions, retention
from advisor.store.answers import RecordedOutcome
from advisor.store.engine import Database
from advisor.store.retention import Retention
from models.evaluation.prediction_checks import CheckedPrediction

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def answer(name: str, days_ago: float = 0.0) -> Recommendation:
    request = PlacementRequest(Instance("n", labels={"shown as": "h\u00e4"}))
    refused = (Rejection("h1", "capacity.vcpus", "needs 1 vCPUs, 0 free"),)
    at = NOW - timedelta(days=days_ago)
    return Recommendation(name, at, request, "m", "measured", False, 1.5, (), refused, ("one", "two"), {"h1": 1.2})


def seen(source: str) -> CheckedPrediction:
    return CheckedPrediction(source, NOW, "m", "active", "throughput", "p", "", "n", 1.0, 0.9, 1.1, False, 1.0)


def kept(database: Database) -> set[str]:
    with database.read() as connection:
        page = answers.list_with_outcomes(connection, reported=False, real=False, cursor=None, limit=100)
    return {answer.id for answer, _ in page.items}


@pytest.fixture
def keeper(database: Database, url: str) -> Retention:
    found = Settings(database=url, keep_recommendations_days=30, keep_plans_days=90, state_dir=Path("nowhere"))
    return Retention(database, found, lambda: NOW)


def test_old_answers_go_but_for_those_whose_outcome_is_still_looked_at(
    database: Database, keeper: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ANSWERS_AT_ONCE", 2)
    with database.write() as connection:
        for number in range(5):
            answers.add(connection, answer(f"old{number}", 30.1))
        for name, days in (("seen", 60.0), ("reported", 60.0), ("new", 29.9)):
            answers.add(connection, answer(name, days))
        for name in ("seen", "reported"):
            answers.set_outcome(connection, name, RecordedOutcome("h1", {"n": 1.0}, NOW))
        predictions.add_observed(connection, [seen(source_of("seen"))], keep=10)
    removed = keeper.run()
    assert (removed.recommendations, removed.plans) == (6, 0)
    assert kept(database) == {"seen", "new"}
    with database.write() as connection:
        predictions.forget_observed(connection, source_of("seen"))
    assert keeper.run().recommendations == 1
    assert kept(database) == {"new"}


def test_old_plans_go(database: Database, keeper: Retention) -> None:
    with database.write() as connection:
        for name, days in (("old", 91.0), ("new", 89.0)):
            answers.add_plan(connection, Plan(name, NOW - timedelta(days=days), "m", "measured", (), {}, {}))
    assert keeper.run().plans == 1
    with database.read() as connection:
        assert answers.get_plan(connection, "old") is None
        assert answers.get_plan(connection, "new") is not None


def test_an_answer_is_stored_in_a_fraction_of_its_text_and_one_in_plain_text_is_read_as_ever(
    database: Database,
) -> None:
    texts = tuple(f"No setting that was tried on h{number} meets every limit." for number in range(300))
    whole = replace(answer("r1"), notes=texts)
    table = answers.recommendations
    with database.write() as connection:
        answers.add(connection, whole)
        assert len(json.dumps(connection.scalar(sa.select(table.c.answer)))) < len("".join(texts)) / 3
        assert answers.get(connection, "r1") == whole
        connection.execute(sa.update(table).values(answer=json.loads(codec.text(whole))))
        assert answers.get(connection, "r1") == whole


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)  # a table this small PostgreSQL reads whole
@pytest.mark.parametrize("asked", ["reported", "real"])
def test_a_listing_of_few_answers_does_not_go_over_all_the_others(database: Database, asked: str) -> None:
    few = {"reported": False, "real": False, asked: True}
    sent: list[tuple[str, Any]] = []
    with database.read() as connection:
        sa.event.listen(
            connection, "before_cursor_execute", lambda _, __, text, values, *___: sent.append((text, values))
        )
        answers.list_with_outcomes(connection, **few, cursor=None, limit=25)
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sent[0][0]}", sent[0][1]).mappings().all()
    assert [row["detail"] for row in plan] == [f"SCAN recommendations USING INDEX ix_recommendations_{asked}"]
