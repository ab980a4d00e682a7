"""What agents tell of their hosts: the inventory follows, other sources keep their word, and lies change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Announced, Announcement, Host, Instance, Inventory, IsolationSettings, Malformed
from advisor.errors import Conflict, InvalidInput
from advisor.inventories import announced, sync
from advisor.inventories.announced import Around, compare
from advisor.inventories.reading import STOPPED_LOAD, Reading
from profiler.demand import Demand
from profiler.observed import Pinning
from tests.examples import examples

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def announcement(host: str, *instances: Mapping[str, Any], machine: str = "", **facts: Any) -> Announcement:
    """What the agent of a host of 64 CPUs reports."""
    reported = {"id": host, "kind": "kvm", "pcpus": 64, "memory_mb": 1000.0, **facts}
    return Announcement(reported, instances, machine or f"m-{host}", 60.0, NOW)


def vm(name: str, **facts: Any) -> Mapping[str, Any]:
    """A guest of four vCPUs as an agent reports it."""
    return {"id": name, "vcpus": 4, "memory_mb": 100.0, "labels": {"uuid": f"u-{name}"}, **facts}


class World:
    """An inventory in memory that announcements are carried out on; `silent` hosts have not been heard of for long."""

    def __init__(self, *stored: Host | Instance) -> None:
        self.hosts = {one.id: one for one in stored if isinstance(one, Host)}
        self.instances = {one.id: one for one in stored if isinstance(one, Instance)}
        self.silent: set[str] = set()
        self.now = NOW

    def hear(self, reported: Announcement) -> Announced:
        names = reported.names() | {one.id for one in self.instances.values() if one.host == reported.host_id}
        there = {name: self.instances[name] for name in names & self.instances.keys()}
        around = Around(self.hosts.get(reported.host_id), there, dict(self.hosts), frozenset(self.silent))
        news, found = compare(reported, around, self.now)
        self.hosts |= {host.id: host for host in news.hosts}
        self.instances |= {one.id: one for one in news.instances}
        for name in news.gone_instances:
            del self.instances[name]
        return found

    def where(self) -> dict[str, str | None]:
        return {one.id: one.host for one in self.instances.values() if "stopped_at" not in one.labels}


def test_an_unknown_host_and_its_instances_appear() -> None:
    world = World()
    found = world.hear(announcement("kvm01", vm("web-1"), vm("db-1", vcpus=8), nic_mbit=10_000.0))
    assert (found.new, found.notes) == (("db-1", "web-1"), ())
    assert world.hosts["kvm01"].nic_mbit == 10_000.0
    assert world.instances["db-1"].vcpus == 8
    assert world.hosts["kvm01"].labels["source"] == world.instances["db-1"].labels["source"] == "agent"


def test_containers_are_promised_no_cpus_unless_another_source_says_how_many() -> None:
    world = World(Host("of-a-file", "lxc", 64, 1000.0, cpu_overcommit=2.0), Host("left-open", "lxc", 64, 1000.0))
    for host in ("new", "of-a-file", "left-open"):
        world.hear(announcement(host, vm(f"{host}-1", vcpus=64), kind="lxc"))
    world.hear(announcement("guests", vm("web-1")))
    found = {name: host.cpu_overcommit for name, host in world.hosts.items()}
    assert found == {"new": 1000.0, "of-a-file": 2.0, "left-open": 1000.0, "guests": 4.0}


def test_the_same_announcement_again_is_no_news() -> None:
    world = World(Host("kvm02", "kvm", 64, 1000.0), Instance("old", 4, host="kvm02", labels={"source": "openstack"}))
    for reported in (announcement("kvm01", vm("web-1")), announcement("kvm02", vm("old"))):
        world.hear(reported)
        before = dict(world.instances), dict(world.hosts)
        again = world.hear(reported)
        assert again == Announced(notes=again.notes)
        assert (world.instances, world.hosts) == before


def test_a_new_size_and_new_settings_are_taken() -> None:
    world = World()
    world.hear(announcement("kvm01", vm("web-1")))
    capped: dict[str, Any] = {"cap_percent": 150.0, "pinning": Pinning.all_on((0, 1), 2)}
    found = world.hear(announcement("kvm01", vm("web-1", vcpus=2, memory_mb=50.0, settings=capped)))
    assert found.changed == ("web-1",)
    assert world.instances["web-1"].settings == IsolationSettings(**capped)
    assert (world.instances["web-1"].vcpus, world.instances["web-1"].memory_mb) == (2, 50.0)


def test_an_instance_that_is_no_longer_reported_is_stopped_and_after_an_hour_gone() -> None:
    world = World()
    world.hear(announcement("kvm01", vm("web-1"), vm("web-2")))
    assert world.hear(announcement("kvm01", vm("web-1"))).stopped == ("web-2",)
    assert (world.instances["web-2"].load, world.instances["web-2"].host) == (STOPPED_LOAD, "kvm01")
    world.now += 59 * MINUTE
    assert world.hear(announcement("kvm01", vm("web-1"))).stopped == ()
    world.now += MINUTE
    assert world.hear(announcement("kvm01", vm("web-1"))).gone == ("web-2",)
    assert set(world.instances) == {"web-1"}


def test_an_instance_that_runs_again_runs_as_before() -> None:
    world = World()
    world.hear(announcement("kvm01", vm("web-1")))
    before = world.instances["web-1"]
    world.hear(announcement("kvm01"))
    assert world.hear(announcement("kvm01", vm("web-1"))).changed == ("web-1",)
    assert world.instances["web-1"] == before


def test_a_migration_is_no_new_instance_and_keeps_what_is_known_of_it() -> None:
    world = World()
    world.hear(announcement("kvm02"))
    world.hear(announcement("kvm01", vm("web-1", settings={"pinning": Pinning.all_on((3,), 4)})))
    known = replace(world.instances["web-1"], demand={"cpu": Demand(1.5, "cpu")}, workload="shop")
    world.instances["web-1"] = known
    both = world.hear(announcement("kvm02", vm("web-1")))  # while it is copied both have it
    assert both.moved == ()
    assert "also reported by kvm01" in both.notes[0]
    assert world.where() == {"web-1": "kvm01"}
    world.hear(announcement("kvm01"))
    assert world.hear(announcement("kvm02", vm("web-1"))).moved == ("web-1",)
    assert world.instances["web-1"] == replace(known, host="kvm02", settings=IsolationSettings())


def test_an_instance_moves_at_once_where_its_former_host_is_silent() -> None:
    world = World()
    world.hear(announcement("kvm02"))
    world.hear(announcement("kvm01", vm("web-1")))
    world.silent = {"kvm01"}
    assert world.hear(announcement("kvm02", vm("web-1"))).moved == ("web-1",)


def test_two_vms_of_one_name_stay_two_and_it_is_said() -> None:
    world = World()
    world.hear(announcement("kvm01", vm("web-1")))
    found = world.hear(announcement("kvm02", vm("web-1", labels={"uuid": "another"})))
    assert found.new == ()
    assert "rename one of them" in found.notes[0]
    assert world.where() == {"web-1": "kvm01"}


def test_another_machine_of_the_same_name_is_refused_until_the_first_one_is_silent() -> None:
    world = World()
    world.hear(announcement("kvm01", vm("web-1"), machine="a"))
    with pytest.raises(Conflict, match="another machine already announces itself as kvm01"):
        world.hear(announcement("kvm01", machine="b"))
    world.silent = {"kvm01"}
    assert world.hear(announcement("kvm01", vm("web-1"), machine="b")).notes == ()


def test_what_a_file_says_is_filled_in_and_never_changed() -> None:
    world = World(
        Host("kvm01", "kvm", 32, 500.0, labels={"zone": "a"}, cpu_overcommit=2.0),
        Instance("web-1", 8, memory_mb=100.0, host="kvm01", workload="shop"),
    )
    found = world.hear(announcement("kvm01", vm("web-1"), l3_mb=32.0, labels={"kernel": "6.1.0"}))
    host, instance = world.hosts["kvm01"], world.instances["web-1"]
    assert (host.pcpus, host.memory_mb, host.cpu_overcommit, host.l3_mb) == (32, 500.0, 2.0, 32.0)
    assert (instance.vcpus, instance.workload) == (8, "shop")
    assert host.labels["source.l3_mb"] == "agent"
    assert "source" not in host.labels
    assert sorted(found.notes) == [
        "memory_mb of kvm01 is 500 in the inventory, 1000 here",
        "pcpus of kvm01 is 32 in the inventory, 64 here",
        "vcpus of web-1 is 8 in the inventory, 4 here",
    ]
    assert host.labels["disagreement"] == "memory_mb of kvm01 is 500 in the inventory, 1000 here (and 2 more)"


def test_a_turbo_clock_counts_beside_the_nominal_clock_that_it_belongs_to_only() -> None:
    clocks: dict[str, Any] = {"cpu_mhz": 2100.0, "turbo_mhz": 3700.0}
    synced = Host("h1", "kvm", 64, 1000.0, cpu_mhz=1200.0, labels={"source": "libvirt"})
    for stored, expected in (
        (None, (2100.0, 3700.0)),
        (replace(synced, cpu_mhz=None), (2100.0, 3700.0)),
        (replace(synced, cpu_mhz=2099.9), (2099.9, 3700.0)),
        (synced, (1200.0, None)),
        (replace(synced, turbo_mhz=3500.0), (1200.0, 3500.0)),
        (replace(synced, turbo_mhz=3700.0, labels={"source": "libvirt", "source.turbo_mhz": "agent"}), (1200.0, None)),
    ):
        world = World() if stored is None else World(stored)
        world.hear(announcement("h1", **clocks))
        assert (world.hosts["h1"].cpu_mhz, world.hosts["h1"].turbo_mhz) == expected, stored


def test_where_an_instance_runs_the_agent_knows_better_than_a_file() -> None:
    world = World(Host("kvm01", "kvm", 64, 1000.0), Instance("web-1", 4, host="kvm01"))
    assert world.hear(announcement("kvm02", vm("web-1"))).moved == ("web-1",)
    assert world.instances["web-1"].labels["source.host"] == "agent"


def test_where_an_instance_runs_the_system_that_is_synced_knows_better_than_an_agent() -> None:
    world = World(Host("kvm01", "kvm", 64, 1000.0), Instance("web-1", 4, host="kvm01", labels={"source": "openstack"}))
    found = world.hear(announcement("kvm02", vm("web-1")))
    assert found.notes == ("web-1 runs here, but openstack says that it is on kvm01",)
    assert world.where() == {"web-1": "kvm01"}
    assert "openstack" in world.hosts["kvm02"].labels["disagreement"]


def test_a_vm_of_nova_is_known_by_the_uuid_of_its_domain() -> None:
    world = World(Host("kvm01", "kvm", 64, 1000.0), Instance("u-1", 4, host="kvm01", labels={"source": "openstack"}))
    found = world.hear(announcement("kvm01", vm("instance-0000001a", labels={"uuid": "u-1"})))
    assert (found.new, set(world.instances)) == ((), {"u-1"})
    assert world.instances["u-1"].labels["domain"] == "instance-0000001a"


def test_an_instance_that_cannot_be_is_left_out_with_a_sentence_and_the_others_are_taken() -> None:
    world = World()
    found = world.hear(announcement("kvm01", vm("web-1"), vm("web-1"), vm("web-2", vcpus=10**9), vm("web-3")))
    assert found.new == ("web-1", "web-3")
    assert [note[:20] for note in found.notes] == ["web-1 is reported tw", "instance web-2: vcpu"]


def _pins(*cpus: tuple[int, ...]) -> Mapping[str, Any]:
    return {"settings": {"pinning": Pinning(cpus)}}


@pytest.mark.parametrize("known_by", [{"id": "web-1"}, {"uuid": "u-web-1"}, {}])
def test_an_instance_that_cannot_be_read_is_as_it_was_and_not_stopped(known_by: dict[str, Any]) -> None:
    world = World()
    world.hear(announcement("kvm01", vm("web-1"), vm("web-2")))
    before = world.instances["web-1"]
    reported = replace(announcement("kvm01", vm("web-2"), vm("web-3")), malformed=[Malformed("i.0", "odd", **known_by)])
    for _ in range(2):
        world.now += timedelta(hours=1)
        found = world.hear(reported)
        assert (found.stopped, found.gone, world.instances["web-1"]) == ((), (), before)
    assert "web-3" in world.instances
    assert "i.0" in world.hosts["kvm01"].labels["left_out"]
    assert world.hear(announcement("kvm01", vm("web-2"), vm("web-3"))).stopped == ("web-1",)
    assert "left_out" not in world.hosts["kvm01"].labels


def test_another_instance_stops_although_one_cannot_be_read() -> None:
    world = World()
    world.hear(announcement("kvm01", vm("web-1"), vm("web-2")))
    odd = [Malformed("i.0", "odd", id="web-1")] * 300
    found = world.hear(replace(announcement("kvm01"), malformed=odd))
    assert found.stopped == ("web-2",)
    assert len(found.notes) == 101


def test_cpus_are_taken_by_their_numbers_and_follow_the_host() -> None:
    world = World()
    odd: dict[str, Any] = {"pcpus": 4, "cpu_ids": (0, 2, 4, 6), "numa": ((0, 2), (4, 6)), "isolated_cpus": (6,)}
    found = world.hear(announcement("h1", vm("web", **_pins((6,), (2, 4), (), ())), **odd))
    host = world.hosts["h1"]
    assert (found.notes, host.cpu_ids, host.isolated_cpus, host.shared_cpus) == ((), (0, 2, 4, 6), (6,), (0, 2, 4))
    assert str(world.instances["web"].settings.pinning) == "0:6|1:2,4|2:|3:"
    found = world.hear(announcement("h1", vm("web", **_pins((7,), (2,), (), ())), pcpus=8))
    host = world.hosts["h1"]
    assert (found.notes, host.pcpus, host.cpu_ids, host.isolated_cpus, host.numa) == ((), 8, (), (), ())
    assert str(world.instances["web"].settings.pinning) == "0:7|1:2|2:|3:"


def test_what_names_a_cpu_that_the_host_lacks_is_said_and_the_rest_is_taken() -> None:
    world = World()
    reported = announcement(
        "h1", vm("web", **_pins((1,), (9,), (), ())), vm("db", **_pins((1,), (2, 9), (), ())), vm("free"),
        pcpus=4, numa=((0, 1), (2, 3, 11)), isolated_cpus=(3, 12),
    )  # fmt: skip
    found = world.hear(reported)
    assert (world.hosts["h1"].numa, world.hosts["h1"].isolated_cpus) == (((0, 1), (2, 3)), (3,))
    assert world.instances["web"].settings.pinning is None
    assert str(world.instances["db"].settings.pinning) == "0:1|1:2|2:|3:"
    assert world.instances.keys() == {"web", "db", "free"}
    assert len(found.notes) == 3


def test_which_cpus_share_a_core_is_taken_as_far_as_it_makes_sense() -> None:
    world = World()
    hybrid: dict[str, Any] = {"pcpus": 6, "threads_per_core": 2, "siblings": ((0, 1), (2, 3))}
    assert world.hear(announcement("h1", vm("web"), **hybrid)).notes == ()
    assert world.hosts["h1"].siblings == ((0, 1), (2, 3))
    assert world.hear(announcement("h1", vm("web"), **hybrid | {"siblings": ((0, 1), (1, 2), (4, 9))})).notes
    assert (world.hosts["h1"].siblings, world.instances.keys()) == ((), {"web"})
    world.hear(announcement("h1", vm("web"), **hybrid))
    assert world.hear(announcement("h1", vm("web"), pcpus=4, threads_per_core=1)).notes == ()
    assert (world.hosts["h1"].siblings, world.hosts["h1"].threads_per_core) == ((), 1)


def test_an_agent_says_the_cpu_numbers_of_a_host_that_was_written_down_where_they_fit() -> None:
    for pcpus, ids, notes in ((4, (0, 2, 4, 6), 1), (8, (), 2)):
        own = Instance("own", host="h1", settings=IsolationSettings(pinning=Pinning(((3,),))))
        world = World(Host("h1", "kvm", pcpus, 1000.0), own)
        found = world.hear(announcement("h1", pcpus=4, cpu_ids=(0, 2, 4, 6)))
        assert (world.hosts["h1"].pcpus, world.hosts["h1"].cpu_ids) == (pcpus, ids)
        assert (world.instances["own"].settings.pinning is None) == bool(ids)
        assert len([note for note in found.notes if "CPU" in note or "pcpus" in note]) == notes


def test_too_many_instances_and_a_new_host_of_which_the_size_is_not_known_are_refused() -> None:
    many = [vm(f"i{number}") for number in range(5_001)]
    with pytest.raises(InvalidInput, match="at most 5000"):
        World().hear(announcement("kvm01", *many))

    reported = Announcement({"id": "kvm01", "kind": "kvm"}, (), "m", 60.0, NOW)
    with pytest.raises(InvalidInput, match="its pcpus could not be read"):
        World().hear(reported)


@settings(max_examples=examples(100))
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["h1", "h2", "h3"])), min_size=1, max_size=6))
def test_whatever_moves_starts_and_stops_the_inventory_is_right_once_every_agent_has_reported_twice(
    days: list[dict[str, str]],
) -> None:
    world = World()
    for truth in days:
        for _ in range(2):  # the first round of a swap finds the other host still in possession
            for host in ("h1", "h2", "h3"):
                world.hear(announcement(host, *(vm(name) for name in sorted(truth) if truth[name] == host)))
        assert world.where() == truth


def test_a_system_that_knows_a_vm_by_its_uuid_takes_it_over_from_the_agent() -> None:
    world = World()
    world.hear(announcement("kvm01", vm("instance-0000001a", labels={"uuid": "u-1"})))
    reported = {"id": "u-1", "host": "kvm01", "vcpus": 4, "memory_mb": 100.0, "labels": {"name": "shop"}}
    reading = Reading("openstack", (), instances=(reported,))
    news = sync.compare(reading, Inventory(tuple(world.hosts.values()), tuple(world.instances.values())))
    assert ([one.id for one in news.instances], news.gone_instances) == (["u-1"], ("instance-0000001a",))
    world.instances = {one.id: one for one in news.instances}
    world.hear(announcement("kvm01", vm("instance-0000001a", labels={"uuid": "u-1"})))
    assert set(world.instances) == {"u-1"}
    assert world.instances["u-1"].labels["domain"] == "instance-0000001a"


def test_a_host_keeps_only_so_many_instances_over_all_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announced, "MOST_ANNOUNCED", 6)
    world = World()
    for round_ in range(5):
        world.now = NOW + round_ * MINUTE
        world.hear(announcement("h1", *(vm(f"r{round_}-{number}") for number in range(4))))
        assert len(world.instances) <= 6
        assert {f"r{round_}-{number}" for number in range(4)} <= world.instances.keys()
    assert {name for name in world.instances if not name.startswith("r4")} == {"r3-2", "r3-3"}


def test_what_a_host_has_by_other_sources_is_never_given_up_for_what_its_agent_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announced, "MOST_ANNOUNCED", 3)
    mine = [Instance(f"mine-{at}", 1, 1, host="h1") for at in range(2)]
    world = World(Host("h1", "kvm", 64, 1000.0), *mine)
    found = world.hear(announcement("h1", vm("a"), vm("b"), vm("c")))
    assert set(world.instances) == {"mine-0", "mine-1", "a"}
    assert any("2 more on h1 are left out" in note for note in found.notes)
    assert len(world.hear(announcement("h1", vm("a"), vm("b"))).new) == 0
    world.hear(announcement("h1", vm("b")))
    world.hear(announcement("h1", vm("b")))
    assert "b" in world.instances
