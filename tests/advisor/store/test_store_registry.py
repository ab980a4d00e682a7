"""The registry's tables: one shadow, verdicts that change, a history in order, and the way up from older tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from advisor.domain import Activation, ModelCard
from advisor.store import models
from advisor.store.engine import Database

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
VERDICT = {"passed": True, "reasons": ["fine"], "against": None}


def card(version: str, status: str = "candidate", verdict: Any = None) -> ModelCard:
    return ModelCard(version, status, NOW, "paper", {}, verdict)


@pytest.mark.parametrize("status", ["active", "shadow"])
def test_the_database_itself_refuses_a_second_model_of_this_status(database: Database, status: models.Status) -> None:
    with database.write() as connection:
        assert models.add(connection, card("m1", status))
        assert not models.add(connection, card("m2", status))
        assert [one.version for one in models.in_status(connection, status)] == ["m1"]


@pytest.mark.parametrize(
    ("change", "status", "former"), [(models.activate, "active", "retired"), (models.shadow, "shadow", "candidate")]
)
def test_a_new_active_model_or_shadow_takes_the_place_of_the_former_one(
    database: Database, change: Callable[..., None], status: models.Status, former: models.Status
) -> None:
    with database.write() as connection:
        for version in ("m1", "m2"):
            models.add(connection, card(version))
        change(connection, "m1")
        change(connection, "m2")
        assert {one.version: one.status for one in models.load_all(connection)} == {"m1": former, "m2": status}
        change(connection, None)
        assert models.in_status(connection, status) == ()
        assert len(models.in_status(connection, former)) == 2


def test_a_verdict_is_kept_and_replaced_and_the_card_stays(database: Database) -> None:
    with database.write() as connection:
        models.add(connection, card("m1", verdict=VERDICT))
        models.add(connection, card("m2"))
        assert not models.add(connection, card("m1", verdict={"passed": False})), "it is registered already"
        assert models.get(connection, "m1") == card("m1", verdict=VERDICT)
        models.set_verdict(connection, "m1", {"passed": False})
        models.set_verdict(connection, "m2", VERDICT)
        found = {one.version: one for one in models.load_all(connection)}
    assert found == {"m1": card("m1", verdict={"passed": False}), "m2": card("m2", verdict=VERDICT)}


def test_the_history_has_the_order_in_which_it_was_written(database: Database) -> None:
    steps = tuple(Activation(NOW - timedelta(hours=at), f"m{at}", f"m{at + 1}", "activate") for at in range(3))
    with database.write() as connection:
        for step in steps:
            models.record(connection, step)
    with database.read() as connection:
        assert models.history(connection) == steps  # although the clock went backwards
