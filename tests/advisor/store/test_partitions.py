"""Days of samples in PostgreSQL: made as samples come, dropped once retention emptied them, not backed up apart."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor.settings import Settings
from advisor.store import migrate, rollups, samples
from advisor.store.backup import make as make_backup
from advisor.store.backup import restore, tables_of
from advisor.store.engine import Database
from advisor.store.retention import Retention
from profiler.observed import MetricSample
from tests.servers.postgres import Postgres

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
DAY_S = 86_400


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[Database]:
    name = postgres_server.new_database()
    database = Database(postgres_server.url(name))
    yield database
    database.close()
    postgres_server.drop(name)


def at(days_ago: float, value: float = 1.0, metric: str = "cpu") -> MetricSample:
    return MetricSample("h1", "i1", "instance", metric, value, NOW.timestamp() - days_ago * DAY_S)


def put(database: Database, *batch: MetricSample) -> int:
    with database.write() as connection:
        return samples.add(connection, batch)


def days(database: Database) -> list[str]:
    with database.read() as connection:
        return samples.over(connection, float("inf"))


def values(database: Database) -> list[float]:
    with database.read() as connection:
        return [sample.value for sample in samples.of_instance(connection, "i1")]


def prune(database: Database, *, keep_rollups_days: int) -> None:
    url = database.url.render_as_string(hide_password=False)
    kept = Settings(database=url, keep_samples_days=2, keep_rollups_days=keep_rollups_days, state_dir=Path("nowhere"))
    keeper = Retention(database, kept, lambda: NOW)
    keeper.run()
    keeper.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def former(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables, of either kind."""
    if request.param == "postgresql":
        yield request.getfixturevalue("database")
        return
    database = Database(f"sqlite:///{tmp_path}/former.sqlite3")
    yield database
    database.close()


def test_rows_of_before_are_packed_by_the_migration(former: Database) -> None:
    database = former
    with database.write() as connection:
        migrate.bring_to(connection, "0047")
        tables = tables_of(connection)
        names = [("i1", "cpu"), ("i1", "block"), ("i2", "cpu")]
        series = [
            {"id": 5 + n, "host": "h1", "instance": instance, "scope": "instance", "metric": metric}
            for n, (instance, metric) in enumerate(names)
        ]
        connection.execute(sa.insert(tables["series"]), series)
        old = [
            {"series": number, "time_s": at(ago).time_s, "value": ago + number / 3}
            for number in (5, 6, 7)
            for ago in (3.0, 1.0, 0.999, 0.0)
        ]
        samples.make(connection, [row["time_s"] for row in old], "samples")
        connection.execute(sa.insert(tables["samples"]), old)
        means = [{"series": 6, "time_s": 300.0 * n, "mean": 1.5, "most": 2.5, "number": 4} for n in range(1, 4)]
        connection.execute(sa.insert(tables["rollups"]), means)
    migrate.upgrade(database)
    assert values(database) == [ago + number / 3 for ago in (3.0, 1.0, 0.999, 0.0) for number in (5, 6)]
    with database.read() as connection:
        assert {"samples", "rollups"}.isdisjoint(tables_of(connection))
        kept = rollups.history_means(connection, {6: "block"}, 0.0, 1000.0, 300.0)
        assert kept == {"block": ([300.0, 600.0, 900.0], [1.5] * 3)}
        assert connection.scalars(sa.select(samples.series.c.last_day)).all() == [int(NOW.timestamp() // DAY_S)] * 3
    assert put(database, at(1.0), at(2.0, 2.0), at(0.0, 0.0)) == 1  # two are there


def test_days_are_made_by_writers_at_once_and_go_when_retention_emptied_them(database: Database) -> None:
    migrate.upgrade(database)
    with ThreadPoolExecutor(4) as pool:
        added = pool.map(lambda writer: put(database, *(at(ago, metric=f"m{writer}") for ago in range(5))), range(4))
        assert list(added) == [5] * 4
    assert days(database) == [f"sample_packs_{day}" for day in (20251229, 20251230, 20251231, 20260101, 20260102)]
    prune(database, keep_rollups_days=30)
    assert days(database) == ["sample_packs_20251231", "sample_packs_20260101", "sample_packs_20260102"]
    assert len(values(database)) == 4 * 3
    with database.read() as connection:
        assert connection.scalar(sa.text("SELECT sum(number) FROM mean_packs")) == 4 * 2


def test_without_means_whole_days_are_dropped(database: Database) -> None:
    migrate.upgrade(database)
    put(database, *(at(ago, ago) for ago in (4.0, 3.0, 1.0)))
    prune(database, keep_rollups_days=0)
    assert (days(database), values(database)) == (["sample_packs_20260101"], [1.0])


def test_a_day_that_others_read_stays_until_the_next_time(database: Database) -> None:
    migrate.upgrade(database)
    put(database, at(3.0))
    with database.read() as reading:
        reading.execute(sa.select(samples.sample_packs)).all()
        with database.write() as connection:
            assert not samples.drop(connection, "sample_packs_20251230")
    with database.write() as connection:
        assert samples.drop(connection, "sample_packs_20251230")
    assert values(database) == []


def test_a_backup_has_one_table_of_samples_and_brings_days_back(database: Database, tmp_path: Path) -> None:
    migrate.upgrade(database)
    put(database, *(at(ago, ago) for ago in (3.0, 2.0, 0.0)))
    with database.read() as connection:
        assert [name for name in tables_of(connection) if name.startswith("sample")] == ["sample_packs"]
    file = tmp_path / "backup"
    make_backup(database, file)
    put(database, at(1.0, 1.0))
    restore(database, file, replace=True)
    assert values(database) == [3.0, 2.0, 0.0]
    assert len(days(database)) == 3


def test_other_tables_are_no_partitions() -> None:
    names = ("samples", "samples_20260102", "samples_before_20260102", "sample_packs_20260102", "samples_of_mine")
    assert [samples.is_one(name) for name in names] == [False, True, True, True, False]
