"""Plans come back as they were kept, and listings have what was asked for, on every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from advisor.domain import Band, Effect, Host, Instance, Plan, PlanStep, Rejection, WorkloadProfile
from advisor.store import answers, hosts, instances
from advisor.store.engine import Database

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
EFFECT = Effect("a", Band(0.9, 0.8, float("inf")), Band(1.1, 1.0, float("nan")))


def plan(at: str) -> Plan:
    rejected = (Rejection("h1", "capacity.memory", "needs 2 MB"),)
    return Plan(at, NOW, "analytic", "analytic", (PlanStep("a", None, rejected),), {"h1": (EFFECT,)}, {"h1": ()})


def test_a_plan_comes_back_as_it_was_kept_once(database: Database) -> None:
    with database.write() as connection:
        answers.add_plan(connection, plan("p1"))
        answers.add_plan(connection, plan("p1"))
    with database.read() as connection:
        found = answers.get_plan(connection, "p1")
        assert answers.get_plan(connection, "p2") is None
    assert found is not None
    assert found.created_at == NOW
    assert repr(replace(found, created_at=NOW)) == repr(plan("p1")), "nan is not equal to itself"


@pytest.fixture
def cloud(database: Database) -> Database:
    with database.write() as connection:
        some = (
            Host("h1", "kvm", pcpus=4, memory_mb=1, labels={"zone": "a", "rack.a-1/x y": "é'"}),
            Host("h2", "kvm", pcpus=4, memory_mb=1, labels={"zone": "a"}, enabled=False),
            Host("h3", "xen", pcpus=4, memory_mb=1, labels={"zone": "b", "a": "zone"}),
        )
        hosts.put(connection, some, NOW)
        instances.put(connection, (Instance("i1", host="h1", workload="w"), Instance("i2", host="h2", workload="w")))
        instances.put_workload(
            connection, (WorkloadProfile("w", {"cpu": 1.0}), WorkloadProfile("w", {"cpu": 1.0}, platform="p"))
        )
    return database


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"labels": {"zone": "a"}}, ["h1", "h2"]),
        ({"labels": {"rack.a-1/x y": "é'"}}, ["h1"]),
        ({"labels": {"zone": "a", "a": "zone"}}, []),
        ({"labels": {"zone": "a"}, "enabled": True}, ["h1"]),
        ({"enabled": False}, ["h2"]),
        ({"kind": "xen"}, ["h3"]),
        ({"labels": {"$.zone": "a"}}, []),
    ],
)
def test_hosts_are_listed_by_labels_kind_and_whether_they_are_enabled(
    cloud: Database, asked: dict[str, object], found: list[str]
) -> None:
    with cloud.read() as connection:
        page = hosts.list_page(connection, cursor=None, limit=10, **asked)  # type: ignore[arg-type]
    assert [host.id for host in page.items] == found


def test_a_filtered_listing_has_pages(cloud: Database) -> None:
    with cloud.read() as connection:
        first = hosts.list_page(connection, labels={"zone": "a"}, cursor=None, limit=1)
        rest = hosts.list_page(connection, labels={"zone": "a"}, cursor=first.next_cursor, limit=1)
    assert [one.id for one in (*first.items, *rest.items)] == ["h1", "h2"]
    assert rest.next_cursor is None


def test_instances_are_listed_by_workload_and_host_and_workloads_by_platform(cloud: Database) -> None:
    with cloud.read() as connection:
        for host, found in ((None, ["i1", "i2"]), ("h2", ["i2"])):
            page = instances.list_page(connection, host=host, workload="w", cursor=None, limit=10)
            assert [instance.id for instance in page.items] == found
        everywhere = instances.list_workloads(connection, platform="", cursor=None, limit=10)
    assert [profile.platform for profile in everywhere.items] == [""]
