"""What callers of the store rely on, on every database that it runs on."""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from advisor.domain import WorkloadProfile
from advisor.errors import Conflict, InvalidInput
from advisor.store import counters, hosts, instances, samples, schema
from advisor.store.engine import Database
from advisor.store.instances import Pending
from profiler.observed import Host, Instance, MetricSample

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOST = Host("h1", "xen", 4, 8192)


def test_a_page_ends_where_the_next_one_begins(database: Database) -> None:
    with database.write() as connection:
        hosts.put(connection, [Host(f"h{number}", "kvm", 4, 1024) for number in range(7)], NOW)
    found: list[list[str]] = []
    cursor = None
    while not found or cursor is not None:
        with database.read() as connection:
            page = hosts.list_page(connection, cursor=cursor, limit=3)
        found.append([host.id for host in page.items])
        cursor = page.next_cursor
    assert found == [["h0", "h1", "h2"], ["h3", "h4", "h5"], ["h6"]]
    with database.read() as connection:
        assert hosts.list_page(connection, cursor=None, limit=7).next_cursor is None, "it holds everything"


def test_workloads_of_one_name_are_paged_by_platform(database: Database) -> None:
    profiles = [WorkloadProfile("web", {"cpu": 1.0}, platform) for platform in ("", "I", "II")]
    with database.write() as connection:
        instances.put_workload(connection, profiles)
        first = instances.list_workloads(connection, cursor=None, limit=2)
        rest = instances.list_workloads(connection, cursor=first.next_cursor, limit=2)
    assert [*first.items, *rest.items] == profiles


def test_what_was_inserted_before_the_cursor_does_not_move_the_next_page(database: Database) -> None:
    with database.write() as connection:
        hosts.put(connection, [Host(name, "kvm", 4, 1024) for name in ("b", "c", "d")], NOW)
        first = hosts.list_page(connection, cursor=None, limit=2)
        hosts.put(connection, [Host("a", "kvm", 4, 1024)], NOW)
        rest = hosts.list_page(connection, cursor=first.next_cursor, limit=2)
    assert [host.id for host in rest.items] == ["d"]


def cursor_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


HALF_A_CHARACTER, NUL = cursor_of(r'["hosts","\ud800"]'), cursor_of(r'["hosts","\u0000"]')
MISSHAPEN = [
    cursor_of(text) for text in ("[]", "null", "[[[[[[", '["hosts"]', '["a"]', '["hosts","a","b"]', '["hosts",1]')
]


@pytest.mark.parametrize("cursor", ["x", "", "////", "\u00fc", *MISSHAPEN, HALF_A_CHARACTER, NUL])
def test_a_cursor_from_elsewhere_is_refused(database: Database, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor") as caught, database.read() as connection:
        hosts.list_page(connection, cursor=cursor, limit=3)
    assert caught.value.field == "cursor"


def test_a_cursor_of_another_list_is_refused(database: Database) -> None:
    with database.write() as connection:
        hosts.put(connection, [HOST, Host("h2", "kvm", 4, 1024)], NOW)
        cursor = hosts.list_page(connection, cursor=None, limit=1).next_cursor
        assert [host.id for host in hosts.list_page(connection, cursor=cursor, limit=1).items] == ["h2"]
        with pytest.raises(InvalidInput, match="not handed out by this list"):
            instances.list_page(connection, host=None, workload=None, cursor=cursor, limit=1)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_size_outside_1_to_1000_is_refused(database: Database, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"), database.read() as connection:
        hosts.list_page(connection, cursor=None, limit=limit)


def test_putting_again_replaces_and_deleting_says_whether_there_was_anything(database: Database) -> None:
    bigger = Host("h1", "xen", 8, 8192, labels={"zone": "a"})
    with database.write() as connection:
        hosts.put(connection, [HOST], NOW)
        hosts.put(connection, [bigger], NOW + timedelta(1))
        hosts.put(connection, [], NOW)
        instances.keep(connection, [])
        assert hosts.load_all(connection) == (bigger,)
        assert hosts.sightings(connection, NOW + timedelta(1)) == {"h1": NOW + timedelta(1)}
        assert hosts.delete(connection, "h1")
        assert not hosts.delete(connection, "h1")


def test_thousands_are_put_found_by_name_and_replaced(database: Database) -> None:
    names = [f"h{number:04}" for number in range(2 * schema.CHUNK + 1)]
    with database.write() as connection:
        hosts.replace_all(connection, [Host(name, "kvm", 4, 1024) for name in names], NOW)
        assert hosts.known(connection, [*names, "stranger"]) == set(names)
        assert [host.id for host in hosts.get_many(connection, ["stranger", *reversed(names)])] == names
        hosts.replace_all(connection, [HOST], NOW)
        assert hosts.load_all(connection) == (HOST,)


def test_more_rows_than_one_statement_takes_are_written_whole_and_in_order(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "AT_ONCE", 3)
    many = [Host(f"h{number}", "kvm", 4, 1024.0) for number in range(8)]
    with database.write() as connection:
        hosts.put(connection, [*many, Host("h1", "kvm", 8, 2048.0)], NOW)  # of two with one key the last counts
        assert schema.insert_new(connection, counters.counters, [{"name": name, "value": 1} for name in "abcdea"]) == 5
    with database.read() as connection:
        assert [host.pcpus for host in hosts.load_all(connection)] == [4, 8, *[4] * 6]


def test_instances_are_on_hosts_that_exist_and_what_is_refused_writes_nothing(database: Database) -> None:
    with pytest.raises(Conflict), database.write() as connection:
        instances.put(connection, [Instance("i1")])
        instances.put(connection, [Instance("i2", host="nowhere")])
    with database.read() as connection:
        assert instances.load_all(connection) == ()
    with database.write() as connection:
        hosts.put(connection, [HOST], NOW)
        instances.put(connection, [Instance("i1", host="h1")])
    with pytest.raises(Conflict), database.write() as connection:
        hosts.delete(connection, "h1")


def test_a_second_answer_for_an_instance_replaces_the_first_and_goes_with_its_host(database: Database) -> None:
    later = NOW + MINUTE
    with database.write() as connection:
        hosts.put(connection, [HOST, Host("h2", "xen", 4, 1)], NOW)
        instances.hold_pending(connection, [Pending("r1", Instance("i1", host="h1"), None, later)])
        instances.hold_pending(connection, [Pending("r2", Instance("i1", host="h2"), None, later)])
        assert [held.host for held in instances.load_pending(connection, NOW, MINUTE)] == ["h2"]
        hosts.delete(connection, "h2")
        assert instances.load_pending(connection, NOW, MINUTE) == ()


def test_answers_that_expired_or_were_held_in_the_future_do_not_count_and_can_be_purged(database: Database) -> None:
    ends = {"over": NOW, "held": NOW + timedelta(seconds=1), "ahead": NOW + timedelta(hours=1)}
    with database.write() as connection:
        hosts.put(connection, [HOST], NOW)
        for name, end in ends.items():
            instances.hold_pending(connection, [Pending("r", Instance(name, host="h1"), None, end)])
        assert [held.placed.id for held in instances.load_pending(connection, NOW, MINUTE)] == ["held"]
        instances.purge_pending(connection, NOW, MINUTE)
        assert list(connection.scalars(sa.select(instances.pending.c.instance))) == ["held"]


def test_samples_sent_again_are_not_stored_again(database: Database) -> None:
    batch = [
        MetricSample("h1", None, "host", "event", 3.0, 100.0),
        MetricSample("h1", "i1", "instance", "cpu", 30.0, 100.0),
        MetricSample("h1", "i1", "instance", "cpu", 40.0, 110.0),
        MetricSample("h1", "i1", "driver_domain", "cpu", 5.0, 100.0),
    ]
    with database.write() as connection:
        assert samples.add(connection, [*batch, batch[0]]) == 4, "twice in one batch"
    with database.write() as connection:
        assert samples.add(connection, batch) == samples.add(connection, []) == 0
        again = [
            MetricSample("h1", "i1", "instance", "cpu", 99.0, 100.0),
            MetricSample("h1", "i1", "instance", "cpu", 1.0, 120.0),
        ]
        assert samples.add(connection, again) == 1
        values = [sample.value for sample in samples.of_instance(connection, "i1")]
    assert sorted(values) == [1.0, 5.0, 30.0, 40.0]


def test_counters_begin_at_zero_and_move_one_by_one_or_from_where_they_were_expected(database: Database) -> None:
    with database.write() as connection:
        assert counters.read(connection) == counters.Counts()
        assert [counters.bump(connection, "inventory") for _ in range(3)] == [1, 2, 3]
        assert counters.bump_from(connection, "pending", 0)
        assert not counters.bump_from(connection, "pending", 0)
        assert counters.read(connection) == counters.Counts(inventory=3, pending=1)


def test_hosts_heard_of_again_soon_are_not_written_again(database: Database) -> None:
    with database.write() as connection:
        hosts.put(connection, [HOST, Host("h2", "xen", 4, 1)], NOW, reported=True)
        later = NOW + timedelta(seconds=70)
        times = {"h1": NOW + timedelta(seconds=50), "h2": later}
        assert not hosts.heard(connection, times, now=later, fresh=10 * MINUTE)
        assert hosts.sightings(connection, later) == {"h1": NOW, "h2": later}


def test_a_host_that_was_written_down_lasts_until_something_tells_of_it(database: Database) -> None:
    with database.write() as connection:
        hosts.put(connection, [HOST, Host("h2", "xen", 4, 1)], NOW)
        assert hosts.patience(connection) == {"h1": math.inf, "h2": math.inf}
        hosts.heard(connection, {"h1": NOW + timedelta(seconds=1)}, now=NOW + MINUTE, fresh=10 * MINUTE)
        assert hosts.patience(connection) == {"h2": math.inf}
        hosts.put(connection, [HOST], NOW)  # the agent is still there
        assert hosts.patience(connection) == {"h2": math.inf}
        hosts.put(connection, [Host("h2", "xen", 4, 1)], NOW, reported=True)
        assert hosts.patience(connection) == {}


def test_who_tells_of_a_host_says_after_how_long_its_silence_counts(database: Database) -> None:
    with database.write() as connection:
        hosts.put(connection, [HOST], NOW)

        def heard(minutes: int, again: timedelta | None) -> bool:
            at = NOW + minutes * MINUTE
            return hosts.heard(connection, {"h1": at}, now=at, fresh=60 * MINUTE, again=again)

        assert not heard(1, timedelta(0))  # a single read of another system
        assert hosts.patience(connection) == {"h1": math.inf}
        assert heard(2, 5 * MINUTE)
        assert hosts.patience(connection) == {"h1": 300.0}
        assert not heard(3, None)  # samples, which do not say
        assert heard(10, 5 * MINUTE)  # it was silent for too long
        assert heard(11, 20 * MINUTE)
        assert not heard(12, 5 * MINUTE)
        assert hosts.patience(connection) == {"h1": 1200.0}  # of several, the one who takes longest


def test_a_host_that_had_no_fresh_data_and_has_some_now_is_reported_and_an_older_sighting_is_not(
    database: Database,
) -> None:
    later = NOW + timedelta(hours=2)
    with database.write() as connection:
        hosts.put(connection, [HOST], NOW)
        assert not hosts.heard(connection, {"h1": NOW - timedelta(days=1)}, now=NOW, fresh=10 * MINUTE)
        assert hosts.sightings(connection, NOW) == {"h1": NOW}
        assert not hosts.heard(connection, {"h1": NOW + 10 * MINUTE}, now=later, fresh=10 * MINUTE)
        assert hosts.heard(connection, {"h1": later}, now=later, fresh=10 * MINUTE)


def test_a_sighting_in_the_future_is_unknown_and_the_next_one_takes_its_place(database: Database) -> None:
    ahead = NOW + timedelta(days=30)
    with database.write() as connection:
        hosts.put(connection, [HOST], ahead)
        assert hosts.sightings(connection, ahead) == {"h1": ahead}
        assert hosts.sightings(connection, NOW) == {"h1": None}
        assert hosts.heard(connection, {"h1": NOW}, now=NOW, fresh=10 * MINUTE)
        assert hosts.sightings(connection, NOW) == {"h1": NOW}


def test_a_failed_transaction_leaves_nothing_behind(database: Database) -> None:
    with pytest.raises(RuntimeError), database.write() as connection:
        counters.bump(connection, "inventory")
        hosts.put(connection, [HOST], NOW)
        raise RuntimeError
    with database.read() as connection:
        assert hosts.load_all(connection) == ()
        assert counters.read(connection).inventory == 0
