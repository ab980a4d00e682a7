"""Hosts, instances, workloads and whole clouds through the Advisor: what is taken, what is refused, what moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Pinning, PlacementRequest, WorkloadProfile
from advisor.errors import Conflict, InvalidInput, NotFound, StaleGeneration
from advisor.inventories import writes as inventory
from advisor.service import Advisor
from profiler.observed import NetworkSettings
from tests.advisor.service.service_clock import Clock

HOST = Host("h1", "xen", 4, 8192)
OTHER = Host("h2", "kvm", 8, 8192)
PINNED = Instance("i1", vcpus=2, host="h1", settings=IsolationSettings(Pinning(((2,), (3,)))))
WEB = WorkloadProfile("web", {"cpu": 50.0})
CLOUD = Inventory((HOST, OTHER), (PINNED, Instance("i2", host="h2")), (WEB,))


def everything(advisor: Advisor) -> tuple[object, ...]:
    return advisor.inventory.hosts().items, advisor.inventory.instances().items, advisor.inventory.workloads().items


def test_putting_says_whether_the_thing_is_new(advisor: Advisor) -> None:
    assert [advisor.inventory.put_host(HOST), advisor.inventory.put_host(HOST)] == [True, False]
    assert [advisor.inventory.put_instance(PINNED), advisor.inventory.put_instance(PINNED)] == [True, False]
    assert [advisor.inventory.put_workload(WEB), advisor.inventory.put_workload(WEB)] == [True, False]
    assert everything(advisor) == ((HOST,), (PINNED,), (WEB,))


def test_every_change_of_the_inventory_moves_the_generation_by_one(advisor: Advisor) -> None:
    changes: list[Callable[[], object]] = [
        lambda: advisor.inventory.put_host(HOST),
        lambda: advisor.inventory.put_instance(PINNED),
        lambda: advisor.inventory.put_workload(WEB),
        lambda: advisor.inventory.delete_workload("web"),
        lambda: advisor.inventory.delete_instance("i1"),
        lambda: advisor.inventory.delete_host("h1"),
        lambda: advisor.inventory.put(CLOUD, mode="replace", generation=None),
    ]
    for expected, change in enumerate(changes, start=1):
        change()
        assert advisor.inventory.generation() == expected


@pytest.mark.parametrize("what", ["host", "instance", "workload"])
def test_what_is_missing_is_not_found_and_deleting_it_moves_nothing(advisor: Advisor, what: str) -> None:
    for method in (what, f"delete_{what}"):
        with pytest.raises(NotFound) as caught:
            getattr(advisor.inventory, method)("ghost")
        assert (caught.value.code, caught.value.message) == ("not_found", f"there is no {what} ghost")
    assert advisor.inventory.generation() == 0


def test_a_missing_answer_plan_or_model_is_not_found(advisor: Advisor) -> None:
    services: dict[str, Any] = {"recommendation": advisor.placements, "plan": advisor.plans, "model": advisor.models}
    for what, service in services.items():
        with pytest.raises(NotFound, match=f"there is no {what} ghost"):
            service.get("ghost")


def test_a_host_cannot_go_while_instances_are_on_it(advisor: Advisor) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)
    with pytest.raises(Conflict, match="still holds 1 instances, i1"):
        advisor.inventory.delete_host("h1")
    advisor.inventory.put_instance(replace(PINNED, host=None))
    advisor.inventory.delete_host("h1")


def test_an_instance_cannot_be_on_a_host_that_does_not_exist_nor_be_pinned_beyond_its_host(advisor: Advisor) -> None:
    with pytest.raises(InvalidInput, match="there is no host h1") as caught:
        advisor.inventory.put_instance(PINNED)
    assert caught.value.field == "host"
    advisor.inventory.put_host(replace(HOST, pcpus=3))
    with pytest.raises(InvalidInput, match="pinned to pCPU 3, host h1 has 0-2"):
        advisor.inventory.put_instance(PINNED)
    advisor.inventory.put_host(HOST)
    advisor.inventory.put_instance(PINNED)
    with pytest.raises(InvalidInput, match="pinned to pCPU 3"):
        advisor.inventory.put(Inventory((replace(HOST, pcpus=3),), (PINNED,)), mode="merge", generation=None)
    assert advisor.inventory.host("h1") == HOST


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("pins", "left"), [("0:2|1:3", None), ("0:0|1:2,3", "0:0|1:2"), ("0:1|1:0", "0:1|1:0")])
def test_a_host_that_loses_a_cpu_cuts_pins_to_it_and_answers_know_at_once(
    advisor: Advisor, whole: bool, pins: str, left: str | None
) -> None:
    pinned = replace(PINNED, settings=IsolationSettings(Pinning.parse(pins)))
    advisor.inventory.put(replace(CLOUD, instances=(pinned,)), mode="replace", generation=None)
    assert advisor.cloud.host("h1")
    notes: list[str] = []
    smaller = replace(HOST, pcpus=3)
    if whole:
        advisor.inventory.put(Inventory((smaller,)), mode="merge", generation=None, notes=notes)
    else:
        assert not advisor.inventory.put_host(smaller, notes=notes)
    expected = Pinning.parse(left or "")
    assert advisor.inventory.host("h1") == smaller
    assert advisor.inventory.instance("i1").settings.pinning == expected
    assert [one.settings.pinning for one in advisor.cloud.inventory().instances] == [expected]
    assert len(notes) == (pins != left)


@pytest.mark.parametrize(
    "host",
    [
        replace(HOST, memory_mb=math.inf),
        replace(HOST, nic_mbit=math.nan),
        replace(HOST, l3_mb=-1.0),
        replace(HOST, threads_per_core=2**40),
        replace(HOST, labels={"zone": "a\0b"}),
        replace(HOST, labels={"zone": "\ud800"}),
    ],
)
def test_values_that_cannot_be_stored_are_refused_by_field(advisor: Advisor, host: Host) -> None:
    with pytest.raises(InvalidInput) as caught:
        advisor.inventory.put_host(host)
    assert caught.value.field
    assert advisor.inventory.hosts().items == ()


def test_a_whole_cloud_replaces_the_former_one_and_its_profiles_where_it_brings_any(advisor: Advisor) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)
    smaller = Inventory((OTHER,), (replace(PINNED, host="h2"),))
    advisor.inventory.put(smaller, mode="replace", generation=None)
    assert everything(advisor) == (smaller.hosts, smaller.instances, (WEB,))
    batch = WorkloadProfile("batch", {"cpu": 100.0})
    advisor.inventory.put(Inventory(workloads=(batch,)), mode="replace", generation=None)
    assert everything(advisor) == ((), (), (batch,))


def test_merging_adds_and_replaces_and_deletes_nothing(advisor: Advisor) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)
    bigger = replace(OTHER, pcpus=16)
    advisor.inventory.put(Inventory((bigger,), (Instance("i3", host="h1"),)), mode="merge", generation=None)
    assert advisor.inventory.hosts().items == (HOST, bigger)
    assert [instance.id for instance in advisor.inventory.instances().items] == ["i1", "i2", "i3"]
    assert [instance.id for instance in advisor.inventory.instances(host="h1").items] == ["i1", "i3"]


def test_a_cloud_for_a_former_generation_is_stale_and_changes_nothing(advisor: Advisor) -> None:
    first = advisor.inventory.put(CLOUD, mode="replace", generation=0)
    assert first == 1
    with pytest.raises(StaleGeneration, match="at generation 1, not 0"):
        advisor.inventory.put(Inventory(), mode="replace", generation=0)
    assert advisor.inventory.hosts().items == CLOUD.hosts
    assert advisor.inventory.generation() == 1
    assert advisor.inventory.put(Inventory(), mode="replace", generation=1) == 2


@pytest.mark.parametrize(
    ("inventory", "mode", "reason"),
    [
        (Inventory((HOST, HOST)), "merge", "host h1 stands twice"),
        (Inventory((HOST,), (PINNED, PINNED)), "merge", "instance i1 stands twice"),
        (Inventory(workloads=(WEB, WEB)), "merge", "workload web stands twice"),
        (Inventory((HOST,), (Instance("i2", host="h9"),)), "replace", "instance i2 is on unknown host h9"),
        (Inventory((OTHER,), (PINNED,)), "replace", "instance i1 is on unknown host h1"),
        (Inventory((HOST,)), "append", "mode 'append' is none of replace, merge"),
        (Inventory(workloads=(WorkloadProfile("a\nb", {}),)), "merge", "printable"),
        (Inventory(workloads=(WorkloadProfile("", {}),)), "merge", "printable"),
    ],
)
def test_a_broken_cloud_is_refused_whole(advisor: Advisor, inventory: Inventory, mode: str, reason: str) -> None:
    advisor.inventory.put(Inventory((HOST, OTHER), (PINNED,)), mode="replace", generation=None)
    before = everything(advisor)
    with pytest.raises(InvalidInput, match=reason):
        advisor.inventory.put(inventory, mode=mode, generation=None)
    assert everything(advisor) == before
    assert advisor.inventory.generation() == 1


def test_a_cloud_observed_in_the_future_is_refused(advisor: Advisor, clock: Clock) -> None:
    advisor.inventory.put(
        Inventory((HOST,), observed_at=clock.now + timedelta(minutes=4)), mode="merge", generation=None
    )
    with pytest.raises(InvalidInput, match="in the future"):
        advisor.inventory.put(Inventory(observed_at=clock.now + timedelta(minutes=6)), mode="merge", generation=None)


def test_a_workload_is_kept_per_platform_and_the_general_one_is_given_first(advisor: Advisor) -> None:
    special = replace(WEB, platform="I", metrics={"cpu": 99.0})
    advisor.inventory.put_workload(special)
    assert advisor.inventory.workload("web") == special
    advisor.inventory.put_workload(WEB)
    assert advisor.inventory.workload("web") == WEB
    assert advisor.inventory.workload("web", platform="I") == special
    advisor.inventory.delete_workload("web")
    assert advisor.inventory.workloads().items == ()


def test_a_large_cloud_is_replaced_in_one_transaction(advisor: Advisor) -> None:
    hosts = tuple(Host(f"h{number}", "kvm", 16, 65536) for number in range(600))
    instances = tuple(Instance(f"i{number}", host=f"h{number % 600}") for number in range(1800))
    advisor.inventory.put(Inventory(hosts, instances), mode="replace", generation=None)
    moved = tuple(replace(instance, host=f"h{number % 599}") for number, instance in enumerate(instances))
    advisor.inventory.put(Inventory(hosts[:599], moved), mode="replace", generation=1)
    assert advisor.cloud.ready()["hosts"] == 599
    assert len(advisor.inventory.instances(host="h0", limit=1000).items) == 4


@pytest.mark.parametrize(
    ("thing", "labels", "wrong"),
    [
        (HOST, {"render": "bogus"}, "render"), (HOST, {"uplink": "a;rm -rf ~"}, "uplink"),
        (HOST, {"zone": "a;b", "address": "--help"}, "address"), (PINNED, {"mac": "52:54"}, "mac"),
        (PINNED, {"disk": "a/b"}, "disk"), (PINNED, {"cgroup": "../x"}, "cgroup"),
        (PINNED, {"iothreads": "0"}, "iothreads"), (PINNED, {"flavor": "--public"}, "flavor"),
    ],
)  # fmt: skip
def test_a_label_that_no_command_can_be_made_of_is_refused_on_every_way_in(
    advisor: Advisor, thing: Host | Instance, labels: dict[str, str], wrong: str
) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)
    before, bad = everything(advisor), replace(thing, labels=labels)
    several = "hosts" if isinstance(thing, Host) else "instances"
    put = advisor.inventory.put_host if isinstance(thing, Host) else advisor.inventory.put_instance
    changed: dict[str, Any] = {several: (*getattr(CLOUD, several)[1:], bad)}
    cloud = replace(CLOUD, **changed)
    ways: list[tuple[Callable[[], object], str]] = [
        (lambda: put(bad), f"labels.{wrong}"),  # type: ignore[arg-type]
        (lambda: advisor.inventory.put(cloud, mode="merge", generation=None), f"{several}[1].labels.{wrong}"),
        (lambda: advisor.inventory.put(cloud, mode="replace", generation=None), f"{several}[1].labels.{wrong}"),
    ]
    for way, field in ways:
        with pytest.raises(InvalidInput) as refused:
            way()
        assert refused.value.field == field
        assert labels[wrong] in refused.value.message
    assert everything(advisor) == before


def test_labels_that_commands_are_made_of_and_all_others_are_taken(advisor: Advisor) -> None:
    host = replace(HOST, labels={"render": "native", "uplink": "eth0.7", "address": "h1.example", "any": "a;b $c"})
    one = replace(PINNED, labels={"mac": "52:54:00:AA:00:01", "disk": "8:0", "cgroup": "a.slice/b", "any": "--x"})
    advisor.inventory.put(Inventory((host,), (one, replace(PINNED, id="i2", labels={"disk": "vda"}))), mode="merge",
                          generation=None)  # fmt: skip
    assert advisor.inventory.host("h1") == host


@pytest.mark.parametrize("labels", [{"render": "bogus"}, {"uplink": "a;rm -rf ~"}])
def test_a_host_stored_before_labels_were_checked_has_no_commands_and_all_others_have_theirs(
    advisor: Advisor, labels: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"uplink": "eth0"}
    cloud = tuple(Host(name, "kvm", 4, 8192, nic_mbit=1000, labels=good) for name in ("h1", "h2", "h3"))
    with monkeypatch.context() as before:
        before.setattr(inventory, "check_labels", lambda *_: None)
        advisor.inventory.put(Inventory((cloud[0], replace(cloud[1], labels=labels), cloud[2])), mode="replace",
                              generation=None)  # fmt: skip
    network = NetworkSettings("dedicated", rate_mbit=100)
    new = Instance("new", labels={"mac": "52:54:00:00:00:01"}, settings=IsolationSettings(network=network))
    reported = advisor.placements.place(PlacementRequest(new, commands=True, limit=3)).recommendation
    commands = {one.host: one.commands for one in reported.candidates}
    assert set(commands) == {"h1", "h2", "h3"}
    assert all(any(one.argv for one in commands[name]) for name in ("h1", "h3"))
    (why,) = commands["h2"]
    assert (why.tool, why.argv, why.undo) == ("virsh", (), ())
    assert next(iter(labels.values())) in why.note
    assert advisor.placements.get(reported.id) == reported


def test_a_name_that_one_tool_would_misread_hides_no_commands_of_another(advisor: Advisor) -> None:
    """xl takes 7 for the number of a domain, OpenStack for a name."""
    hosts = (HOST, Host("h2", "kvm", 4, 8192, labels={"render": "openstack"}))
    advisor.inventory.put(Inventory(hosts), mode="replace", generation=None)
    new = Instance("7", labels={"flavor": "own"}, settings=IsolationSettings(cap_percent=50))
    reported = advisor.placements.place(PlacementRequest(new, commands=True, limit=2)).recommendation
    commands = {one.host: one.commands for one in reported.candidates}
    assert any(one.argv for one in commands["h2"])
    assert [one.argv for one in commands["h1"]] == [()]
    assert "'7'" in commands["h1"][0].note


def test_a_label_that_the_question_brings_is_refused_where_commands_are_wanted(advisor: Advisor) -> None:
    advisor.inventory.put(Inventory((HOST,)), mode="replace", generation=None)
    asked = PlacementRequest(Instance("new", labels={"mac": "52"}), dry_run=True)
    assert advisor.placements.place(asked).recommendation.candidates
    with pytest.raises(InvalidInput) as refused:
        advisor.placements.place(replace(asked, commands=True))
    assert refused.value.field == "instance.labels.mac"
