"""Idempotency keys on each kind of database: of many who begin at once one works, and old ones go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from advisor.access.audit import Idempotency, KeptAnswer
from advisor.errors import KeyInUse, KeyReused
from advisor.settings import Settings
from advisor.store import callers
from advisor.store.callers import KeyUse
from advisor.store.engine import Database
from advisor.store.retention import Retention
from tests.advisor.store.at_once import at_once

NOW = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)


def keys_of(database: Database, now: datetime = NOW) -> Idempotency:
    return Idempotency(partial(database.write, synced=False), lambda: now, 60.0)


def begun(keys: Idempotency, request: str = "q") -> KeyUse:
    use = keys.begin("token:1", "k", request)
    assert isinstance(use, KeyUse)
    return use


def test_of_many_callers_at_once_one_works_and_the_others_are_refused(database: Database) -> None:
    keys = keys_of(database)

    def begin() -> str:
        try:
            return type(keys.begin("token:1", "k", "q")).__name__
        except KeyInUse as error:
            return type(error).__name__

    assert sorted(at_once(*[begin] * 8)) == ["KeyInUse"] * 7 + ["KeyUse"]


def test_of_many_who_take_over_one_that_was_left_behind_one_works(database: Database) -> None:
    begun(keys_of(database))
    later = keys_of(database, NOW + timedelta(seconds=90))
    begun(later, "another question")
    with pytest.raises(KeyReused):
        later.begin("token:1", "k", "q")
    with database.write() as connection:
        former = KeyUse("token:1", digest("k"), "x", NOW)
        assert not callers.begin_anew(connection, former, "y", NOW), "another worker was faster"


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_an_answer_comes_back_as_it_was_and_one_that_is_late_replaces_nothing(database: Database) -> None:
    keys = keys_of(database)
    late = begun(keys)
    taken = begun(keys_of(database, NOW + timedelta(seconds=90)))
    keys.keep(late, KeptAnswer(b"late"))
    keys.keep(taken, KeptAnswer("ß".encode() * 5000, "/v1/placements/x"))
    keys.let_go(late)
    again = keys_of(database, NOW + timedelta(hours=23)).begin("token:1", "k", "q")
    assert again == KeptAnswer("ß".encode() * 5000, "/v1/placements/x")


def test_what_failed_is_begun_anew_and_a_key_from_a_clock_that_was_ahead_blocks_nothing(database: Database) -> None:
    keys = keys_of(database)
    keys.let_go(begun(keys_of(database, NOW + timedelta(days=30)), "another question"))
    begun(keys_of(database, NOW + timedelta(days=30)))
    begun(keys)


def test_old_keys_go_with_the_retention(database: Database, url: str) -> None:
    old, new = keys_of(database, NOW - timedelta(hours=25)), keys_of(database, NOW - timedelta(hours=23))
    old.keep(begun(old), KeptAnswer(b"{}"))
    new.begin("token:2", "k", "q")
    Retention(database, Settings(database=url, state_dir=Path("nowhere")), lambda: NOW).run()
    with database.read() as connection:
        assert callers.get_key(connection, "token:1", digest("k")) is None
        assert callers.get_key(connection, "token:2", digest("k")) is not None
