"""How much CPU instances used: as a plain quantile of their windows says, on every database, in few statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import hypothesis.strategies as st
import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings

from advisor.store import samples
from advisor.store.engine import Database
from profiler.observed import MetricSample
from tests.examples import examples

FEW = settings(max_examples=examples(25), deadline=None)


def window(
    name: str, cpu: float, at: float, *, host: str = "h", metric: str = "cpu", scope: str = "instance"
) -> MetricSample:
    return MetricSample(host, name, scope, metric, cpu, at)  # type: ignore[arg-type]


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements on packs that are executed meanwhile."""
    found: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "_packs" in statement:
            found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


@FEW
@given(cpu=st.lists(st.floats(0, 6400), min_size=1, max_size=45))
def test_usage_is_the_quantile_of_the_windows_since_a_time(database: Database, cpu: list[float]) -> None:
    with database.write() as connection:
        connection.execute(sa.delete(samples.sample_packs))
        samples.add(connection, [window("a", value, 100.0 + at) for at, value in enumerate(cpu)])
        samples.add(connection, [window("a", 9999.0, 50.0), window("b", 9999.0, 100.0)])
        found = samples.usage(connection, ["a"], 100.0)
    assert set(found) == {"a"}
    assert found["a"].windows == len(cpu)
    assert found["a"].cpus == pytest.approx(float(np.quantile(cpu, 0.95)) / 100)


def test_only_its_own_cpu_where_it_was_last_counts(database: Database) -> None:
    with database.write() as connection:
        samples.add(connection, [
            *(window("a", 10.0, 200.0 + at) for at in range(3)),
            *(window("a", 300.0, 100.0 + at, host="before") for at in range(9)),
            window("a", 900.0, 203.0, metric="ipc"), window("a", 900.0, 203.0, scope="driver_domain"),
            window("a", -1.0, 204.0), window("a", 1e16, 205.0),
        ])  # fmt: skip
        found = samples.usage(connection, ["a", "never measured"], 0.0)
    assert {name: (one.cpus, one.windows) for name, one in found.items()} == {"a": (pytest.approx(0.1), 3)}


def test_one_statement_reads_of_hundreds_of_instances_of_a_host(database: Database) -> None:
    names = [f"i{at}" for at in range(300)]
    with database.write() as connection:
        samples.add(connection, [window(name, 10.0 * at, 100.0 + at) for name in names for at in range(4)])
        with statements() as asked:
            found = samples.usage(connection, names, 0.0)
    assert len(found) == 300
    assert len(asked) == 1


def test_memory_is_the_most_that_was_held_and_swapped_on_any_host(database: Database) -> None:
    with database.write() as connection:
        samples.add(connection, [
            window("a", 900.0, 10.0, metric="rss_mb"), window("a", 1200.0, 20.0, metric="rss_mb", host="before"),
            window("a", 30.0, 20.0, metric="swap_mb"), window("b", 700.0, 20.0, metric="rss_mb"),
            window("a", 9000.0, 5.0, metric="rss_mb"), window("c", 50.0, 20.0),
        ])  # fmt: skip
        found = samples.memory(connection, ["a", "b", "c"], 6.0)
    assert found == {"a": (1200.0, 30.0), "b": (700.0, None)}
