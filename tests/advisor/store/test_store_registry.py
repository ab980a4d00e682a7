"""The registry's tables: one shadow, verdicts that change, a history in order, and the way up from older tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from advisor.domain import Activation, ModelCard
from advisor.store import models
from advisor.store.engine import Database

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
VERDICT = {"passed": True, "reasons": ["fine"], "against": None}


def card(version: str, status: str = "candidate", verdict: Any = None) -> ModelCard:
    return ModelCard(version, status, NOW, "paper", {}, verdict)


def test_the_database_itself_refuses_a_second_shadow(database: Database) -> None:
    with database.write() as connection:
        assert models.add(connection, card("m1", "shadow"))
        assert not models.add(connection, card("m2", "shadow"))
        assert [one.version for one in models.in_status(connection, "shadow")] == ["m1"]


def test_a_new_shadow_takes_the_place_of_the_former_one(database: Database) -> None:
    with database.write() as connection:
        for version in ("m1", "m2"):
            models.add(connection, card(version))
        models.shadow(connection, "m1")
        models.shadow(connection, "m2")
        assert {one.version: one.status for one in models.load_all(connection)} == {"m1": "candidate", "m2": "shadow"}
        models.shadow(connection, None)
        assert models.in_status(connection, "shadow") == ()
        assert len(models.in_status(connection, "candidate")) == 2


def test_a_verdict_is_kept_and_replaced_and_the_card_stays(database: Database) -> None:
    with database.write() as connection:
        models.add(connection, card("m1", verdict=VERDICT))
        models.add(connection, card("m2"))
        assert models.get(connection, "m1") == card("m1", verdict=VERDICT)
        models.set_verdict(connection, "m1", {"passed": False})
        models.set_verdict(connection, "m2", VERDICT)
        found = {one.version: one for one in models.load_all(connection)}
    assert found == {"m1": card("m1", verdict={"passed": False}), "m2": card("m2", verdict=VERDICT)}


def test_a_model_that_is_registered_again_keeps_its_verdict(database: Database) -> None:
    with database.write() as connection:
        models.add(connection, card("m1", verdict=VERDICT))
        assert not models.add(connection, card("m1", verdict={"passed": False}))
        assert models.get(connection, "m1") == card("m1", verdict=VERDICT)


def test_the_history_has_the_order_in_which_it_was_written(database: Database) -> None:
    steps = tuple(Activation(NOW - timedelta(hours=at), f"m{at}", f"m{at + 1}", "activate") for at in range(3))
    with database.write() as connection:
        for step in steps:
            models.record(connection, step)
    with database.read() as connection:
        assert models.history(connection) == steps  # although the clock went backwards
