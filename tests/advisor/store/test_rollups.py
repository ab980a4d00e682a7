"""Old samples become five-minute means that say the same, once, whoever works at it and whatever comes late."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from advisor.errors import Conflict
from advisor.inventories import writes
from advisor.settings import Settings
from advisor.store import packs, retention, rollups, samples
from advisor.store.engine import Database
from advisor.store.retention import EVERY, Retention
from advisor.telemetry import ingest, profiles
from profiler.observed import Host, Instance, MetricSample
from tests.advisor.service.service_clock import Clock

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def keeper(database: Database, url: str, clock: Clock) -> Iterator[Retention]:
    """Keeps samples for two days and their means for three more; knows host h1 with i1."""
    with database.write() as connection:
        writes.put_host(connection, Host("h1", "kvm", 4, 1024), NOW)
        writes.put_instance(connection, Instance("i1", host="h1"))
    found = Retention(database, _settings(url), clock)
    yield found
    found.close()


def _settings(url: str) -> Settings:
    return Settings(database=url, keep_samples_days=2, keep_rollups_days=3, state_dir=Path("nowhere"))


def measured(days_ago: float, values: list[float], metric: str = "cpu") -> list[MetricSample]:
    """Windows of ten seconds from a time on that lies on a border of five minutes."""
    begin = (NOW.timestamp() - days_ago * DAY) // 300 * 300
    return [
        MetricSample("h1", "i1", "instance", metric, value, begin + 10.0 * step) for step, value in enumerate(values)
    ]


def put(database: Database, batch: list[MetricSample], now: datetime = NOW) -> ingest.Ingested:
    with database.write() as connection:
        return ingest.ingest(connection, batch, now=now, fresh_s=3600)


def stored(database: Database) -> tuple[list[MetricSample], list[tuple[float, float, float, int]]]:
    with database.read() as connection:
        rows = connection.execute(sa.select(rollups.mean_packs).order_by(rollups.mean_packs.c.time_s)).all()
        means = [(row.time_s, *(column[0] for column in packs.unpack(row.data)[1])) for row in rows]
        return list(samples.of_instance(connection, "i1")), means


def test_what_is_old_enough_becomes_means_once_and_the_rest_stays(database: Database, keeper: Retention) -> None:
    old, young = measured(3, [float(value) for value in range(60)]), measured(1, [5.0] * 30)
    put(database, old + young)
    assert keeper.run() == rollups.Removed(samples=60)
    begin = old[0].time_s
    expected = young, [(begin + 300, 14.5, 29.0, 30), (begin + 600, 44.5, 59.0, 30)]
    assert stored(database) == expected
    assert keeper.run() == rollups.Removed()
    assert stored(database) == expected


def test_samples_from_before_the_border_are_dropped_and_never_count_twice(
    database: Database, keeper: Retention
) -> None:
    batch = measured(3, [1.0, 3.0])
    put(database, batch)
    keeper.run()
    again = put(database, [*batch, *measured(1, [9.0])])
    assert (again.accepted, again.duplicate) == (1, 0)
    assert [reason for _, reason in again.dropped] == [
        "time is before 2026-01-29T12:00:00+00:00, up to which samples are rolled up and no longer taken"
    ] * 2
    keeper.run()
    assert stored(database)[1][0][1:] == (2.0, 3.0, 2)


def test_a_sample_that_comes_after_its_five_minutes_were_rolled_up_joins_them(
    database: Database, keeper: Retention
) -> None:
    batch = measured(3, [1.0, 3.0, 8.0])
    put(database, batch[:2])
    keeper.run()
    with database.write() as connection:  # as once a clock that was ahead has moved the border
        samples.add(connection, batch[2:])
    assert keeper.run().samples == 1
    assert stored(database)[1][0][1:] == (4.0, 8.0, 3)


def test_means_expire_and_a_series_goes_with_its_last(database: Database, keeper: Retention, clock: Clock) -> None:
    put(database, [*measured(3, [1.0]), *measured(1, [2.0], "event")])
    keeper.run()
    clock.now = NOW + timedelta(days=2, hours=1)
    assert keeper.run() == rollups.Removed(samples=1, rollups=1)
    clock.now = NOW + timedelta(days=3)
    assert keeper.run() == rollups.Removed(series=1)
    with database.read() as connection:
        assert list(connection.scalars(sa.select(samples.series.c.metric))) == ["event"]


def on_hosts(number: int, batch: list[MetricSample]) -> list[MetricSample]:
    return [replace(one, host=f"h{host}", instance=None, scope="host") for host in range(number) for one in batch]


def test_many_hosts_and_days_are_done_in_small_steps(
    database: Database, keeper: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "HOSTS_AT_ONCE", 3)
    batch = on_hosts(10, [*measured(4, [1.0] * 3), *measured(3.5, [2.0] * 3)])
    with database.write() as connection:
        samples.add(connection, batch)
    spans: list[float] = []
    roll = rollups.roll

    def watched(connection: sa.Connection, hosts: tuple[str, ...], begin_s: float, end_s: float) -> int:
        spans.append(end_s - begin_s)
        assert len(hosts) <= 3
        return roll(connection, hosts, begin_s, end_s)

    monkeypatch.setattr(rollups, "roll", watched)
    assert keeper.run().samples == len(batch)
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.sum(rollups.mean_packs.c.number))) == 20
    assert len(spans) >= 8
    assert max(spans) <= retention.SPAN_S


def test_steps_take_fewer_hosts_where_they_keep_others_waiting(
    database: Database, keeper: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.write() as connection:
        samples.add(connection, on_hosts(60, measured(4, [1.0] * 3)))
    now_s, sizes = [0.0], []
    roll = rollups.roll

    def slow(connection: sa.Connection, hosts: tuple[str, ...], begin_s: float, end_s: float) -> int:
        now_s[0] += 0.04 * len(hosts)  # as on a busy machine
        sizes.append(len(hosts))
        return roll(connection, hosts, begin_s, end_s)

    monkeypatch.setattr(rollups, "roll", slow)
    monkeypatch.setattr(retention, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    assert keeper.run().samples == 180
    assert sum(sizes) == 60
    assert max(sizes[3:]) * 0.04 <= 2 * retention.STEP_S


def test_one_process_of_several_works_and_another_follows_one_that_was_killed(
    database: Database, url: str, keeper: Retention, clock: Clock
) -> None:
    put(database, measured(3, [1.0]))
    with database.write() as connection:  # a process that dies now
        assert rollups.hold(connection, "killed", clock(), clock() + retention.LEASE, 0.0)
    with pytest.raises(Conflict, match="rolled up now"):
        keeper.run()
    assert len(stored(database)[0]) == 1
    clock.now += retention.LEASE + timedelta(seconds=1)
    assert keeper.run().samples == 1


def wait_until_it_waits(database: Database, work: Future[Any]) -> None:
    """Until a session of PostgreSQL waits for a lock; on SQLite a writer waits for the other before it reads."""
    waiting = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    deadline = time.monotonic() + 60
    while not database.is_sqlite and not work.done() and time.monotonic() < deadline:
        with database.read() as connection:
            if connection.scalar(waiting):
                return
        time.sleep(0.01)


def roll_everything(database: Database) -> int:
    with database.write() as connection:
        ids = rollups.hosts_after(connection, "", 100)
        return rollups.roll(connection, ids, 0.0, NOW.timestamp())


def test_two_who_roll_up_the_same_samples_at_once_count_them_once(database: Database, keeper: Retention) -> None:
    put(database, measured(3, [1.0] * 30))
    with ThreadPoolExecutor(1) as beside, database.write() as connection:
        ids = rollups.hosts_after(connection, "", 100)
        assert rollups.roll(connection, ids, 0.0, NOW.timestamp()) == 30
        late = beside.submit(roll_everything, database)
        wait_until_it_waits(database, late)
    assert late.result() == 0
    assert [number for *_, number in stored(database)[1]] == [30]


def test_the_border_waits_for_samples_that_are_on_their_way(database: Database, keeper: Retention) -> None:
    batch = measured(3, [1.0] * 30)
    with ThreadPoolExecutor(1) as beside, database.write() as connection:
        ingest.ingest(connection, batch, now=NOW, fresh_s=3600)
        late = beside.submit(keeper.run)
        wait_until_it_waits(database, late)
        with database.read() as other:
            assert other.scalar(sa.select(rollups.retention.c.rolled_until_s)) == 0.0
    assert late.result().samples == 30
    assert [number for *_, number in stored(database)[1]] == [30]


@pytest.fixture
def slow_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The first step of all says that it began and goes on when the test says so; other steps do as ever."""
    began, go_on = threading.Event(), threading.Event()
    oldest = rollups.oldest

    def slow(connection: sa.Connection, hosts: tuple[str, ...]) -> float | None:
        found = oldest(connection, hosts)
        if not began.is_set():
            began.set()
            assert go_on.wait(60)
        return found

    monkeypatch.setattr(rollups, "oldest", slow)
    yield began, go_on
    go_on.set()


@pytest.mark.parametrize("objects", [1, 2])
def test_while_one_pass_is_under_way_no_other_begins(
    database: Database, url: str, keeper: Retention, clock: Clock, slow_step: tuple[threading.Event, ...], objects: int
) -> None:
    began, go_on = slow_step
    put(database, measured(3, [1.0] * 30))
    keeper._due_s = 0.0
    keeper.nudge()
    first = keeper._thread
    assert first is not None
    assert began.wait(60)
    other = keeper if objects == 1 else Retention(database, _settings(url), clock)
    with pytest.raises(Conflict, match="rolled up now"):
        other.run()
    other._due_s = 0.0  # ten minutes later
    other.nudge()
    assert objects == 2 or keeper._thread is first
    go_on.set()
    first.join(60)
    other.close()
    assert [number for *_, number in stored(database)[1]] == [30]


@pytest.mark.parametrize("killed", [False, True])
def test_a_pass_while_the_clock_was_ahead_keeps_no_later_one_and_no_later_sample_out(
    database: Database, keeper: Retention, clock: Clock, killed: bool
) -> None:
    clock.now = NOW + timedelta(days=30)
    assert keeper._go_over(early=False, pausing=False) is not None
    if killed:
        with database.write() as connection:
            assert rollups.hold(connection, "killed", clock(), clock() + retention.LEASE, 0.0, early=True)
    clock.now = NOW
    assert keeper._go_over(early=False, pausing=False) is not None
    clock.now += timedelta(minutes=5)
    sample = MetricSample("h1", "i1", "instance", "cpu", 1.0, clock().timestamp())
    assert put(database, [sample], clock()).accepted == 1


def test_a_pass_that_failed_lets_the_next_one_begin(
    database: Database, keeper: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(database, measured(3, [1.0]))
    with monkeypatch.context() as failing:
        failing.setattr(rollups, "hosts_after", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            keeper.run()
    assert keeper.run().samples == 1


def test_who_lost_its_turn_to_another_process_stops_after_the_step_under_way(
    database: Database, keeper: Retention, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.write() as connection:
        samples.add(connection, [*measured(3, [1.0]), *(replace(one, host="h2") for one in measured(3, [1.0]))])
    roll = rollups.roll

    def overtaken(connection: sa.Connection, *step: object) -> int:  # it took longer than the lease
        clock.now += retention.LEASE + timedelta(seconds=1)
        assert rollups.hold(connection, "another", clock(), clock() + retention.LEASE, 0.0)
        return roll(connection, *step)  # type: ignore[arg-type]

    monkeypatch.setattr(rollups, "roll", overtaken)
    monkeypatch.setattr(retention, "HOSTS_AT_ONCE", 1)
    assert keeper.run() == rollups.Removed(samples=1)
    assert len(stored(database)[0]) == 1


def test_processes_in_the_background_take_turns(database: Database, url: str, keeper: Retention, clock: Clock) -> None:
    other = Retention(database, _settings(url), clock)
    assert keeper._go_over(early=False, pausing=False) == rollups.Removed()
    put(database, measured(1.99, [1.0]))
    clock.now += EVERY / 2
    assert other._go_over(early=False, pausing=False) is None  # it is not time yet
    clock.now += EVERY
    assert other._go_over(early=False, pausing=False) is not None


def test_storing_samples_starts_it_when_it_is_time(database: Database, keeper: Retention) -> None:
    put(database, measured(3, [1.0]))
    keeper.nudge()
    assert keeper._thread is None
    keeper._due_s = 0.0
    keeper.nudge()
    assert keeper._thread is not None
    keeper._thread.join()
    assert stored(database)[0] == []


def test_a_long_look_back_is_in_five_minute_means_whether_rolled_up_or_not(
    database: Database, keeper: Retention
) -> None:
    put(database, [*measured(3, [10.0] * 15 + [30.0] * 15 + [50.0] * 45), *measured(1, [20.0] * 60)])
    put(database, measured(3, [7.0] * 30, "cpu_p95"))
    with database.read() as connection:
        before = profiles.read_stored(connection, "i1", since="4d", now=NOW).windows
    keeper.run()
    with database.read() as connection:
        after = profiles.read_stored(connection, "i1", since="4d", now=NOW).windows
        young = profiles.read_stored(connection, "i1", since="24h", now=NOW).windows
    assert list(before.own) == ["cpu"]
    assert list(after.own["cpu"]) == list(before.own["cpu"]) == [20.0, 50.0, 50.0, 20.0, 20.0]
    assert list(after.times) == list(before.times)
    assert (after.period_s, young.period_s) == (300.0, 10.0)
