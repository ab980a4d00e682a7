"""What was learned of demand: kept, held while it changes, added up by many at once, and passed on to followers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from advisor.store import counters, demands, hosts, instances, samples
from advisor.store.demands import Learned
from advisor.store.engine import Database
from advisor.telemetry import demands as learning
from advisor.telemetry import ingest
from models.profiling.demand_estimation import Tally, Window
from models.profiling.tallies import Tallies
from profiler.demand import Demand
from profiler.observed import Host, Instance, MetricSample
from tests.advisor.store.at_once import at_once

MEASURED = Demand(1.5, spread=0.2, hours=(1.0,) * 24, windows=20.0, doubt=0.1, origin="measured")


@pytest.fixture
def known() -> Tally:
    tally = Tally("cpu")
    for at, value in enumerate((0.5, 1.5, 0.0, 0.7)):
        tally.add(Window((at + 1) * 300.0, value, 1.0))
    return tally


def state(tally: Tally) -> bytes:
    return Tallies.of_tallies([tally]).states()[0]


def test_what_was_learned_comes_back_as_it_was_put(database: Database, known: Tally) -> None:
    rows = {("b", "cpu"): Learned(1200.0, state(known)), ("a", "net_mbit"): Learned(300.0)}
    with database.write() as connection:
        demands.begin(connection, rows)
        demands.begin(connection, {("b", "cpu"): Learned(0.0)})
    with database.write() as connection:
        assert demands.until(connection, ["a", "b", "c"]) == {("b", "cpu"): 1200.0, ("a", "net_mbit"): 300.0}
        found = demands.held(connection, [("b", "cpu"), ("b", "disk_mb_s")])
        assert list(found) == [("b", "cpu")]
        assert Tallies.of(["cpu"], [found["b", "cpu"].state]).tally(0) == known
        demands.put(connection, {("b", "cpu"): Learned(1500.0, state(known))})
        assert demands.until(connection, ["b"]) == {("b", "cpu"): 1500.0}


def test_windows_are_the_means_of_five_minutes_of_the_series_asked_for(database: Database) -> None:
    taken = [
        MetricSample(host, name, "instance", metric, value, time_s)
        for host, name, metric, value, time_s in (
            ("h1", "a", "cpu", 10.0, 300.0),
            ("h1", "a", "cpu", 30.0, 599.0),
            ("h1", "a", "waiting", 4.0, 310.0),
            ("h1", "a", "cpu", 50.0, 600.0),
            ("h1", "a", "cpu", 70.0, 900.0),
            ("h2", "a", "cpu", 90.0, 310.0),
            ("h1", "b", "cpu", 20.0, 310.0),
        )
    ]
    with database.write() as connection:
        samples.add(connection, [*taken, MetricSample("h1", "a", "driver_domain", "cpu", 1.0, 310.0)])
        series = demands.series_of(connection, ["h1"], ["a"], ["cpu", "waiting"])
        assert sorted(series.values()) == [("a", "cpu"), ("a", "waiting")]
        found = demands.windows(connection, series, 300.0, 900.0)
        assert found == {("a", 600.0): {"cpu": 20.0, "waiting": 4.0}, ("a", 900.0): {"cpu": 50.0}}
        assert demands.first_after(connection, series, 601.0) == 900.0
        assert demands.first_after(connection, series, 901.0) is None


def test_what_many_add_of_one_window_is_all_in_its_total(database: Database) -> None:
    def add() -> None:
        for _ in range(5):
            with database.write() as connection:
                demands.add_totals(connection, {("cpu", 600.0): (1.5, 2), ("cpu", 300.0): (1.0, 1)})

    at_once(*[add] * 4)
    with database.read() as connection:
        assert demands.totals_at(connection, [300.0, 600.0, 900.0]) == {
            ("cpu", 600.0): (30.0, 40),
            ("cpu", 300.0): (20.0, 20),
        }


def test_two_that_learn_of_one_instance_wait_for_each_other(database: Database, known: Tally) -> None:
    with database.write() as connection:
        demands.begin(connection, {("a", "cpu"): Learned(0.0, state(known))})

    def add() -> None:
        for _ in range(5):
            with database.write() as connection:
                row = demands.held(connection, [("a", "cpu")])["a", "cpu"]
                demands.put(connection, {("a", "cpu"): Learned(row.until_s + 300.0, row.state)})

    at_once(*[add] * 4)
    with database.read() as connection:
        assert demands.until(connection, ["a"]) == {("a", "cpu"): 20 * 300.0}


def test_agents_that_send_the_same_instances_at_once_teach_each_window_once(database: Database) -> None:
    """Such as one that was not answered in time and sends again, while a host that one moved to sends as well."""
    names = [f"i{at}" for at in range(6)]
    begin = datetime(2026, 1, 2, tzinfo=UTC)
    with database.write() as connection:
        hosts.put(connection, [Host(name, "kvm", 4, 1024) for name in ("h1", "h2")], begin)
        instances.put(connection, [Instance(name, vcpus=2, host="h1") for name in names])

    def send(host: str, order: int) -> None:
        for minute in range(0, 60, 5):
            now = begin + timedelta(minutes=minute)
            batch = [
                MetricSample(host, name, "instance", metric, 50.0, now.timestamp())
                for name in names[::order]
                for metric in ("cpu", "net_mbit")
            ]
            with database.write() as connection:
                found = ingest.ingest(connection, batch, now=now, fresh_s=600.0)
            with database.write() as connection:
                learning.tell(connection, found.news)

    at_once(*(partial(send, *each) for each in (("h1", 1), ("h1", -1), ("h2", -1), ("h2", 1))))
    with database.write() as connection:
        rows = demands.held(connection, [(name, "cpu") for name in names])
        for row in rows.values():
            tally = Tallies.of(["cpu"], [row.state]).tally(0)
            assert tally.mean == pytest.approx(0.5)
            assert tally.n <= 12, "a window of each five minutes, once"
        known = instances.measured(connection, names)
        assert {round(reported["cpu"].mean, 6) for _, reported in known.values()} == {0.5}


def test_measured_demand_is_kept_apart_from_what_is_put(database: Database) -> None:
    with database.write() as connection:
        instances.put(connection, [Instance("a", vcpus=2), Instance("b", vcpus=2)])
        assert instances.measured(connection, ["a", "ghost"]) == {"a": (2, {})}
        instances.tell_measured(connection, {"a": {"cpu": MEASURED}, "gone": {"cpu": MEASURED}}, 3)
        assert instances.measured(connection, ["a"]) == {"a": (2, {"cpu": MEASURED})}
        assert [one.id for one in instances.measured_since(connection, 2)] == ["a"]
        assert instances.measured_since(connection, 3) == ()
        instances.put(connection, [Instance("a", vcpus=1)])
        found = instances.get(connection, "a")
        assert found is not None and dict(found.demand) == {"cpu": MEASURED.within(1)}
        instances.put(connection, [Instance("a", vcpus=2, demand={"cpu": Demand(0.3)})])
        found = instances.get(connection, "a")
        assert found is not None and dict(found.demand) == {"cpu": Demand(0.3)}
        assert instances.get(connection, "b") == Instance("b", vcpus=2)


def test_who_is_gone_for_long_and_totals_of_long_ago_are_forgotten(database: Database, known: Tally) -> None:
    day = 86_400.0
    with database.write() as connection:
        instances.put(connection, [Instance("here")])
        rows = {
            (name, "cpu"): Learned(until_s, state(known))
            for name, until_s in (("here", 0.0), ("gone", 0.0), ("away", day))
        }
        demands.begin(connection, rows)
        demands.add_totals(connection, {("cpu", 600.0): (1.5, 2), ("cpu", 1.5 * day): (1.0, 1)})
        assert demands.expired(connection, day) == ["gone"]
        demands.expire(connection, ["gone", "here", "away"], day)
        demands.expire_totals(connection, 2 * day)
        assert {name for name, _ in demands.until(connection, ["here", "gone", "away"])} == {"here", "away"}
        assert list(demands.totals_at(connection, [600.0, 1.5 * day])) == [("cpu", 1.5 * day)]


def test_a_database_from_before_has_instances_of_which_nothing_was_measured(database: Database) -> None:
    with database.write() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO instances (id, vcpus, memory_mb, disk_gb, load, settings, service, labels)"
                " VALUES ('old', 1, 1, 0, 1, '{}', 'latency', '{}')"
            )
        )
        found = instances.get(connection, "old")
        assert found is not None and found.demand == {}
        assert instances.measured_since(connection, 0) == ()
        assert counters.read(connection).demand == 0
