"""The log of what was changed: who follows it sees what one sees who loads everything."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.errors import Conflict, InvalidInput, NotFound
from advisor.inventories import writes
from advisor.store import counters, hosts, instances
from advisor.store.counters import Changes
from advisor.store.engine import Database
from tests.examples import examples

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("host"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("no host"), NAMES),
    st.tuples(st.just("instance"), NAMES, st.none() | NAMES),
    st.tuples(st.just("no instance"), NAMES),
    st.tuples(st.just("workload"), NAMES, st.sampled_from(["", "p"]), st.integers(1, 3)),
    st.tuples(st.just("no workload"), NAMES),
    st.tuples(st.sampled_from(["merge", "replace"]), st.sets(NAMES), st.sets(NAMES), st.sets(NAMES)),
)


def _host(name: str, pcpus: int = 4) -> Host:
    return Host(name, "kvm", pcpus, 1024)


def _do(connection: sa.Connection, step: tuple[Any, ...]) -> None:
    what, *given_ = step
    if what == "host":
        writes.put_host(connection, _host(*given_), NOW)
    elif what == "no host":
        writes.delete_host(connection, *given_)
    elif what == "instance":
        writes.put_instance(connection, Instance(given_[0], host=given_[1]))
    elif what == "no instance":
        writes.delete_instance(connection, *given_)
    elif what == "workload":
        name, platform, cpu = given_
        writes.put_workload(connection, WorkloadProfile(name, {"cpu": float(cpu)}, platform))
    elif what == "no workload":
        writes.delete_workload(connection, *given_)
    else:
        there, running, known = given_
        cloud = Inventory(
            tuple(_host(name) for name in sorted(there)),
            tuple(Instance(name, host=min(there, default=None)) for name in sorted(running)),
            tuple(WorkloadProfile(name, {"cpu": 9.0}) for name in sorted(known)),
        )
        writes.put_all(connection, cloud, mode=what, generation=None, now=NOW)


class Reader:
    """Keeps an inventory and reads only what the log names, all where it does not reach back."""

    def __init__(self) -> None:
        self.generation = 0
        self.hosts: dict[str, Host] = {}
        self.instances: dict[str, Instance] = {}
        self.workloads: dict[tuple[str, str], WorkloadProfile] = {}

    def follow(self, connection: sa.Connection) -> None:
        touched = counters.changes_since(connection, self.generation)
        self.generation = counters.read(connection).inventory
        if touched is None:
            self.hosts = {one.id: one for one in hosts.load_all(connection)}
            self.instances = {one.id: one for one in instances.load_all(connection)}
            self.workloads = {(one.name, one.platform): one for one in instances.load_workloads(connection)}
            return
        for name in touched.hosts:
            self.hosts.pop(name, None)
        self.hosts |= {one.id: one for one in hosts.get_many(connection, touched.hosts)}
        for name in touched.instances:
            self.instances.pop(name, None)
        self.instances |= {one.id: one for one in instances.get_many(connection, touched.instances)}
        self.workloads = {key: one for key, one in self.workloads.items() if key[0] not in touched.workloads}
        self.workloads |= {
            (one.name, one.platform): one for one in instances.get_workloads(connection, touched.workloads)
        }


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.lists(STEPS, max_size=4), max_size=6))
def test_who_follows_the_log_sees_what_one_sees_who_loads_everything(
    database: Database, turns: list[list[tuple[Any, ...]]]
) -> None:
    reader = Reader()
    with database.write() as connection:
        for turn in turns:
            for step in turn:
                try:
                    with connection.begin_nested():
                        _do(connection, step)
                except (Conflict, InvalidInput, NotFound):
                    pass  # what is refused changes nothing
            reader.follow(connection)
            assert tuple(sorted(reader.hosts.values(), key=lambda one: one.id)) == hosts.load_all(connection)
            assert tuple(sorted(reader.instances.values(), key=lambda one: one.id)) == instances.load_all(connection)
            assert [reader.workloads[key] for key in sorted(reader.workloads)] == list(
                instances.load_workloads(connection)
            )
        connection.rollback()


def test_only_what_was_touched_since_is_named(database: Database) -> None:
    with database.write() as connection:
        for name in ("h1", "h2"):
            writes.put_host(connection, _host(name), NOW)
        writes.put_instance(connection, Instance("i1", host="h1"))
        before = counters.read(connection).inventory
        writes.put_instance(connection, Instance("i1", host="h2"))
        writes.put_workload(connection, WorkloadProfile("w", {"cpu": 1.0}))
        found = counters.changes_since(connection, before)
        assert counters.changes_since(connection, counters.read(connection).inventory) == Changes()
    assert found == Changes(instances=frozenset(["i1"]), workloads=frozenset(["w"]))


def test_a_whole_cloud_put_anew_is_read_whole(database: Database) -> None:
    cloud = Inventory((_host("h1"),), (Instance("i1", host="h1"),))
    with database.write() as connection:
        writes.put_all(connection, cloud, mode="replace", generation=None, now=NOW)
        assert counters.changes_since(connection, 0) is None
        assert counters.changes_since(connection, 1) == Changes()
        many = tuple(Instance(f"i{number}", host="h1") for number in range(counters.MOST_AT_ONCE + 1))
        writes.put_all(connection, Inventory((), many), mode="merge", generation=1, now=NOW)
        assert counters.changes_since(connection, 1) is None


def test_a_log_that_gets_long_begins_anew(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_LOGGED", 20)
    monkeypatch.setattr(counters, "_CHECKED_EVERY", 16)
    with database.write() as connection:
        for number in range(60):
            writes.put_host(connection, _host(f"h{number}"), NOW)
        rows = connection.scalar(sa.select(sa.func.count()).select_from(counters.changes))
        assert rows is not None and rows <= 20 + 16
        assert counters.changes_since(connection, 0) is None
        assert counters.changes_since(connection, 59) == Changes(hosts=frozenset(["h59"]))
