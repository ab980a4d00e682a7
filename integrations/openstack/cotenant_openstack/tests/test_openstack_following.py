"""What a read of another system changes in the inventory, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Pinning, PlacementRequest
from advisor.errors import StorageUnavailable
from advisor.inventories import sync, writes
from advisor.inventories.reading import STOPPED_LOAD, CpuShares, Reading
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store.engine import Database
from tests.advisor.service.service_clock import Clock
from tests.servers.fixtures import sqlite_with_tables

MINE = {"source": "openstack"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def advisor(tmp_path: Path, clock: Clock) -> Iterator[Advisor]:
    settings = Settings(database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path, fresh_s=100.0)
    with Advisor(settings, clock=clock) as made:
        yield made


def host(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "kvm", "pcpus": 8, "memory_mb": 16384.0, "enabled": True, "labels": {}, **more}


def server(name: str, on: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "host": on, "vcpus": 2, "memory_mb": 2048.0, "settings": {}, "labels": {}, **more}


def reported(*facts: dict[str, Any], **more: Any) -> Reading:
    hosts = tuple(one for one in facts if "pcpus" in one)
    servers = tuple(one for one in facts if "vcpus" in one)
    whole = {"every_host": True, "every_instance": True, "own_labels": frozenset({"zone", "aggregate."})}
    return Reading("openstack", (), hosts=hosts, instances=servers, **(whole | more))  # type: ignore[arg-type]


def names(advisor: Advisor) -> tuple[list[str], list[str]]:
    return [one.id for one in advisor.inventory.hosts().items], [one.id for one in advisor.inventory.instances().items]


def test_what_is_reported_is_stored_with_its_source(advisor: Advisor) -> None:
    news = advisor.inventory.follow(reported(host("h1", labels={"zone": "a"}), server("s1", "h1")))
    assert (len(news.hosts), len(news.instances)) == (1, 1)
    assert advisor.inventory.host("h1") == Host("h1", "kvm", 8, 16384.0, labels={**MINE, "zone": "a"})
    assert advisor.inventory.instance("s1") == Instance("s1", 2, 2048.0, host="h1", labels=MINE)


def test_a_dry_run_says_the_same_and_writes_nothing(advisor: Advisor) -> None:
    reading = reported(host("h1"), server("s1", "h1"))
    assert advisor.inventory.follow(reading, dry_run=True) == advisor.inventory.follow(replace(reading), dry_run=True)
    assert names(advisor) == ([], [])
    assert advisor.inventory.generation() == 0


def test_the_same_again_changes_nothing_but_keeps_hosts_fresh(advisor: Advisor, clock: Clock) -> None:
    reading = reported(host("h1"))
    advisor.inventory.follow(reading)
    generation = advisor.inventory.generation()
    clock.now += timedelta(seconds=150)
    question = PlacementRequest(Instance("n"), dry_run=True)
    assert [one.code for one in advisor.placements.place(question).recommendation.rejected] == ["host.no_data"]
    assert advisor.inventory.follow(reading).is_nothing
    assert advisor.inventory.generation() == generation
    assert [one.host for one in advisor.placements.place(question).recommendation.candidates] == ["h1"]


def test_what_the_source_does_not_say_stays(advisor: Advisor) -> None:
    advisor.inventory.follow(reported(host("h1", labels={"zone": "a", "aggregate.r1": "true"}), server("s1", "h1")))
    mine = replace(advisor.inventory.host("h1"), nic_mbit=1000.0, driver_cpus=(0,), platform="I")
    advisor.inventory.put_host(replace(mine, labels={**mine.labels, "uplink": "eth0"}))
    pinned = IsolationSettings(Pinning(((2,), (3,))), weight=512)
    advisor.inventory.put_instance(replace(advisor.inventory.instance("s1"), workload="web", load=0.4, settings=pinned))
    advisor.inventory.follow(
        reported(host("h1", pcpus=16, labels={"zone": "b"}), server("s1", "h1", settings={"cap_percent": 50.0}))
    )
    now = advisor.inventory.host("h1")
    assert (now.pcpus, now.nic_mbit, now.driver_cpus, now.platform) == (16, 1000.0, (0,), "I")
    assert now.labels == {**MINE, "zone": "b", "uplink": "eth0"}
    assert advisor.inventory.instance("s1").workload == "web"
    assert advisor.inventory.instance("s1").load == 0.4
    assert advisor.inventory.instance("s1").settings == replace(pinned, cap_percent=50.0)


@pytest.mark.parametrize(
    ("version", "shares", "weight"),
    [
        ("1", 2048, 512), ("1", 2, 1), ("1", 262_144, 65_535), ("2", 200, 512), ("2", 2048, 5243),
        ("2", 20_480, None), (None, 200, 512), (None, 20_480, 5120),
    ],
)  # fmt: skip
def test_shares_of_a_flavor_are_weighed_by_the_control_groups_of_the_host(
    version: str | None, shares: int, weight: int | None, advisor: Advisor
) -> None:
    one = host("h1")
    advisor.inventory.follow(reported(one))
    known = advisor.inventory.host("h1")
    if version:
        advisor.inventory.put_host(replace(known, labels={**known.labels, "cgroup_version": version}))
    advisor.inventory.follow(reported(one, server("s1", "h1", settings={"weight": CpuShares(shares)})))
    assert advisor.inventory.instance("s1").settings.weight == weight


def test_a_pin_ends_when_the_server_moves_or_the_host_shrinks(advisor: Advisor) -> None:
    advisor.inventory.follow(reported(host("h1"), host("h2"), server("s1", "h1"), server("s2", "h1")))
    for name, cpu in (("s1", 1), ("s2", 7)):
        pin = IsolationSettings(Pinning(((cpu,),)), weight=512)
        advisor.inventory.put_instance(replace(advisor.inventory.instance(name), settings=pin))
    advisor.inventory.follow(reported(host("h1", pcpus=4), host("h2"), server("s1", "h2"), server("s2", "h1")))
    assert {advisor.inventory.instance(name).settings for name in ("s1", "s2")} == {IsolationSettings(weight=512)}


def test_who_was_stopped_runs_again(advisor: Advisor) -> None:
    advisor.inventory.follow(reported(host("h1"), server("s1", "h1", load=STOPPED_LOAD)))
    assert advisor.inventory.instance("s1").load == STOPPED_LOAD
    advisor.inventory.follow(reported(host("h1"), server("s1", "h1")))
    assert advisor.inventory.instance("s1").load == 1.0


def test_what_a_whole_read_does_not_show_is_gone(advisor: Advisor) -> None:
    advisor.inventory.follow(
        reported(host("h1"), host("h2"), server("s1", "h1"), server("s2", "h2"), server("s3", "h1"))
    )
    news = advisor.inventory.follow(reported(host("h1"), server("s1", "h1"), unclear=frozenset({"s3"})))
    assert (news.gone_hosts, news.gone_instances) == (("h2",), ("s2",))
    assert names(advisor) == (["h1"], ["s1", "s3"])


def test_what_came_from_elsewhere_is_never_gone(advisor: Advisor) -> None:
    advisor.inventory.put_host(Host("own", "xen", 4, 8192.0))
    advisor.inventory.put_instance(Instance("mine", host="own"))
    advisor.inventory.follow(replace(reported(host("c1"), server("v1", "c1")), source="another"))
    advisor.inventory.follow(reported(host("h1"), server("s1", "h1")))
    advisor.inventory.follow(reported(host("h1"), gone=frozenset({"s1"})))
    assert names(advisor) == (["c1", "h1", "own"], ["mine", "v1"])


def test_a_partial_read_removes_only_what_is_surely_gone_and_an_empty_one_nothing(advisor: Advisor) -> None:
    """An account of the wrong project or region sees an empty cloud."""
    advisor.inventory.follow(reported(host("h1"), host("h2"), server("s1", "h1"), server("s2", "h2")))
    part = reported(host("h1"), every_host=False, every_instance=False, gone=frozenset({"s2", "never-seen"}))
    news = advisor.inventory.follow(part)
    assert (news.gone_hosts, news.gone_instances) == ((), ("s2",))
    assert advisor.inventory.follow(reported()).is_nothing
    assert names(advisor) == (["h1", "h2"], ["s1"])


def test_a_host_that_is_gone_is_kept_while_something_is_on_it(advisor: Advisor) -> None:
    advisor.inventory.follow(reported(host("h1"), host("h2")))
    advisor.inventory.put_instance(Instance("mine", host="h2"))
    news = advisor.inventory.follow(reported(host("h1")))
    assert news.gone_hosts == ()
    assert news.left_out == ("host h2 is gone, but still holds instances; it is kept",)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (host("h 9"), "not 1-255 letters"),
        (host("h9", pcpus=0), "outside 1-4096"),
        (host("h9", memory_mb=float("nan")), "not a finite number"),
        (server("s9", "nowhere"), "which is not known"),
        (server("s9", "h1", vcpus=0), "outside 1-4096"),
    ],
)
def test_what_makes_no_sense_is_left_out_with_a_reason_and_the_rest_is_taken(
    advisor: Advisor, facts: dict[str, Any], reason: str
) -> None:
    news = advisor.inventory.follow(reported(host("h1"), server("s1", "h1"), facts))
    assert reason in news.left_out[0]
    assert names(advisor) == (["h1"], ["s1"])


def test_a_server_that_shows_is_pending_no_more(advisor: Advisor) -> None:
    """Else it would count twice: where it was advised to and where it is."""
    advisor.inventory.follow(reported(host("h1"), host("h2")))
    first = advisor.placements.place(PlacementRequest(Instance("s1", vcpus=8, memory_mb=16000.0))).recommendation
    held, other = (one.host for one in first.candidates)
    question = PlacementRequest(Instance("n", memory_mb=16000.0), dry_run=True)
    assert [one.host for one in advisor.placements.place(question).recommendation.candidates] == [other]
    advisor.inventory.follow(reported(host("h1"), host("h2"), server("s1", other, memory_mb=16000.0)))
    assert [one.host for one in advisor.placements.place(question).recommendation.candidates] == [held]


def test_who_writes_faster_than_is_compared_is_kept_waiting_in_the_end(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a read is compared another client puts an instance, unless the lock keeps it out."""
    other = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}", busy_s=0.05)
    compare, refused, added = sync.compare, [0], [0]

    def while_an_instance_writes(reading: Reading, stored: Inventory) -> sync.SyncDiff:
        assert added[0] < 20, "it goes on and on"
        try:
            with other.write() as connection:
                writes.put_instance(connection, Instance(f"theirs-{added[0]}"))
                added[0] += 1
        except StorageUnavailable:
            refused[0] += 1
        return compare(reading, stored)

    monkeypatch.setattr(sync, "compare", while_an_instance_writes)
    news = advisor.inventory.follow(reported(host("h1"), server("s1", "h1")))
    other.close()
    assert (len(news.hosts), len(news.instances)) == (1, 1)
    assert refused == [1], "the last comparison is made while no other client can write"
    assert names(advisor) == (["h1"], sorted(["s1", *(f"theirs-{at}" for at in range(added[0]))]))
    (entry,) = [one for one in advisor.access.audit(limit=1000).items if one.operation == "inventory.follow"]
    assert entry.detail["source"] == "openstack"
    assert (entry.detail["hosts"], entry.detail["instances"]) == (1, 1)


def test_a_reported_label_that_no_command_can_hold_leaves_its_host_out(advisor: Advisor) -> None:
    news = advisor.inventory.follow(
        reported(host("h1"), host("h2", labels={"uplink": "a;b"}), server("s1", "h2"), server("s2", "h1"))
    )
    assert names(advisor) == (["h1"], ["s2"])
    assert news.left_out[0] == "host h2: uplink 'a;b' is not an interface name"


def test_a_bad_label_that_is_stored_already_does_not_make_its_host_stale(
    advisor: Advisor, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Host("h1", "kvm", 8, 16384.0, labels={**MINE, "uplink": "a;b"})
    with monkeypatch.context() as before:
        before.setattr(writes, "check_labels", lambda *_: None)
        advisor.inventory.put_host(bad)
    clock.now += timedelta(seconds=1000)
    news = advisor.inventory.follow(reported(host("h1", pcpus=16), server("s1", "h1")))
    assert news.left_out == ()
    assert advisor.inventory.host("h1") == replace(bad, pcpus=16)
    assert advisor.placements.place(PlacementRequest(Instance("new"))).recommendation.candidates
