"""Sessions and histories on each kind of database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from advisor.store import callers, rollups, samples
from advisor.store.callers import Session
from advisor.store.engine import Database
from profiler.observed import MetricSample

START = datetime(2026, 1, 2, tzinfo=UTC)
HALF_A_DAY = timedelta(hours=12)


def test_a_session_is_found_until_it_expires_or_is_ended_and_is_then_deleted(database: Database) -> None:
    first = Session("a" * 64, "token:1", None, START, START + HALF_A_DAY)
    other = Session("b" * 64, "keystone:u", "sealed", START, START + 2 * HALF_A_DAY)
    with database.write() as connection:
        callers.add_session(connection, first)
        callers.add_session(connection, other)
        assert callers.get_session(connection, first.digest, START) == first
        assert callers.get_session(connection, first.digest, first.expires_at) is None
        assert callers.get_session(connection, "c" * 64, START) is None
        callers.purge_sessions(connection, first.expires_at)
        assert callers.end_session(connection, first.digest) is None
        assert callers.end_session(connection, other.digest) == "keystone:u"
        assert connection.scalar(sa.select(sa.func.count()).select_from(callers.sessions)) == 0


def test_a_session_that_began_in_the_future_is_none(database: Database) -> None:
    ahead = START + timedelta(days=30)  # as a clock said that was set right since
    with database.write() as connection:
        callers.add_session(connection, Session("a" * 64, "token:1", None, ahead, ahead + HALF_A_DAY))
        assert callers.get_session(connection, "a" * 64, START) is None
        assert callers.get_session(connection, "a" * 64, ahead - timedelta(minutes=1)) is not None


def test_means_are_of_equal_steps_and_weigh_each_sample_the_same(database: Database) -> None:
    base = 1_767_312_000.0  # a multiple of 600
    items = [MetricSample("h", "i", "instance", "cpu", float(at // 60), base + at) for at in range(0, 1200, 10)]
    with database.write() as connection:
        samples.add(connection, items)
        keys = rollups.history_of_host(connection, "h", ["i"], [("instance", "cpu")])
        fine = rollups.history_means(connection, keys, base, base + 1200, 600.0)
        assert fine == {("h", "i", "cpu"): ([base + 600, base + 1200], [4.5, 14.5])}
        assert rollups.roll(connection, ["h"], base, base + 900) == 90
        mixed = rollups.history_means(connection, keys, base, base + 1200, 600.0)
        (times, values) = mixed["h", "i", "cpu"]
        assert times == [base + 600, base + 1200]
        assert values == pytest.approx([4.5, 14.5])
        assert rollups.history_means(connection, {}, base, base + 1200, 600.0) == {}
