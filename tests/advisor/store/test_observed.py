"""The table of predicted against observed: kept once, bounded, and read back as it came."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
from hypothesis import given, settings

from advisor.store import predictions
from advisor.store.engine import Database
from models.evaluation.prediction_checks import ROLES, TARGETS, CheckedPrediction
from tests.advisor.store.store_strategies import ids, times
from tests.examples import examples

ROW = CheckedPrediction(
    "s0", datetime(2026, 1, 2, tzinfo=UTC), "m", "active", "throughput", "I", "web", "a", 0.8, 0.7, 0.9, False, 0.75
)
numbers = st.floats(0, 1e15)
rows = st.builds(
    CheckedPrediction,
    source=ids,
    time=times,
    version=st.just("m"),
    role=st.sampled_from(ROLES),
    target=st.sampled_from(TARGETS),
    platform=ids,
    workload=ids | st.just(""),
    instance=ids,
    expected=numbers,
    lower=numbers,
    upper=numbers,
    outside=st.booleans(),
    observed=numbers,
)


def series(count: int, **changes: object) -> list[CheckedPrediction]:
    begin = replace(ROW, **changes)  # type: ignore[arg-type]
    return [
        replace(begin, source=f"{begin.source}-{number}", time=begin.time + timedelta(minutes=number))
        for number in range(count)
    ]


@settings(max_examples=examples(40))
@given(st.lists(rows, max_size=5, unique_by=lambda row: (row.source, row.instance, row.target)))
def test_rows_come_back_as_they_went_in(database: Database, some: list[CheckedPrediction]) -> None:
    with database.write() as connection:
        connection.execute(predictions.observed.delete())
        assert predictions.add_observed(connection, some, keep=100) == len(some)
        assert list(predictions.observed_of_version(connection, "m", last=100)) == some


def test_a_row_is_kept_once_until_its_source_is_forgotten_and_can_speak_again(database: Database) -> None:
    with database.write() as connection:
        assert predictions.add_observed(connection, [ROW], keep=10) == 1
        assert predictions.add_observed(connection, [replace(ROW, observed=0.1, time=datetime.now(UTC))], keep=10) == 0
        assert predictions.add_observed(connection, [], keep=10) == 0
        assert predictions.observed_of_version(connection, "m", last=10) == (ROW,)
        predictions.add_observed(connection, [replace(ROW, source="s1")], keep=10)
        predictions.forget_observed(connection, "s0")
        predictions.add_observed(connection, [replace(ROW, observed=0.1)], keep=10)
        found = predictions.observed_of_version(connection, "m", last=10)
    assert [(row.source, row.observed) for row in found] == [("s1", 0.75), ("s0", 0.1)]


def test_the_oldest_rows_of_a_platform_go_and_no_others(database: Database) -> None:
    with database.write() as connection:
        predictions.add_observed(connection, series(5, platform="II", source="other"), keep=4)
        for row in series(20):
            predictions.add_observed(connection, [row], keep=4)
        found = predictions.observed_of_version(connection, "m", last=100)
    assert [row.source for row in found if row.platform == "I"] == ["s0-16", "s0-17", "s0-18", "s0-19"]
    assert len([row for row in found if row.platform == "II"]) == 4


def test_each_group_has_its_last_rows(database: Database) -> None:
    everything = [
        *series(5),
        *series(5, source="db", workload="db"),
        *series(5, source="lat", target="latency"),
        *series(3, source="theirs", version="other"),
    ]
    with database.write() as connection:
        predictions.add_observed(connection, everything, keep=100)
        found = predictions.observed_of_version(connection, "m", last=2)
        throughput = predictions.throughput_observed_on(connection, "I", "m", last=3)
    assert [row.source for row in found if row.workload == "db"] == ["db-1", "db-2", "db-3", "db-4"]
    assert [row.source for row in found if row.workload == "web" and row.target == "throughput"] == ["s0-3", "s0-4"]
    assert [row.source for row in found if row.target == "latency"] == ["lat-1", "lat-2", "lat-3", "lat-4"]
    assert [row.source for row in throughput] == ["db-2", "db-3", "db-4"]


def test_other_models_are_found_by_source(database: Database) -> None:
    count = 1200  # more than one IN list holds
    with database.write() as connection:
        predictions.add_observed(connection, [*series(count), *series(count, version="other")], keep=10_000)
        sources = [row.source for row in series(count)[100:]]
        found = predictions.observed_of_sources(connection, sources, other_than="m")
    assert [row.source for row in found] == sources
    assert {row.version for row in found} == {"other"}


def test_platforms_that_have_news_are_reported(database: Database) -> None:
    with database.write() as connection:
        predictions.add_observed(connection, series(3), keep=10)
        before = predictions.newest(connection)[0]
        predictions.add_observed(
            connection, [*series(2, platform="II", source="x"), *series(1, platform="III")], keep=10
        )
        assert predictions.platforms_observed_since(connection, before) == ("II",)
        assert set(predictions.platforms_observed_since(connection, 0)) == {"I", "II"}


def test_the_newest_number_moves_with_every_row_and_that_of_a_row_that_is_gone_is_never_given_again(
    database: Database,
) -> None:
    with database.write() as connection:
        numbers = [predictions.newest(connection)[0]]
        for row in (ROW, replace(ROW, source="s1"), replace(ROW, source="s1")):  # the last takes the place of its like
            predictions.forget_observed(connection, row.source)
            predictions.add_observed(connection, [row], keep=1)
            numbers.append(predictions.newest(connection)[0])
    assert numbers[0] == 0
    assert numbers == sorted(set(numbers))
