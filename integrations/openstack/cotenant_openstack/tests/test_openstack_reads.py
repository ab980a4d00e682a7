"""Reading a recorded cloud through the real openstacksdk: rights, faults, paging, and what changed since."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cotenant_openstack.facts import group_labels, host_facts, instance_facts
from cotenant_openstack.system import OpenStack
from cotenant_openstack.tests.openstack_replay import RECORDING, Answer, Replay, replaying

from advisor.inventories.reading import STOPPED_LOAD, CpuShares, Reading
from advisor.service import open_source
from profiler.observed import NetworkSettings
from tests.api import cli_runs

pytestmark = [
    pytest.mark.skipif(not RECORDING.exists(), reason="nothing is recorded"),
    pytest.mark.filterwarnings("ignore:::openstack"),
]
ALL = [
    "hypervisors", "services", "aggregates", "zones", "flavors", "placement", "images", "server groups", "servers",
]  # fmt: skip


@pytest.fixture
def cloud() -> Iterator[Replay]:
    with replaying() as made:
        yield made


@pytest.fixture
def source(cloud: Replay) -> OpenStack:
    return OpenStack(connection=cloud.connect)


def by_id(facts: tuple[Any, ...]) -> dict[str, Any]:
    return {one["id"]: one for one in facts}


def states(reading: Reading) -> dict[str, str]:
    return {part.name: part.state for part in reading.parts}


def refuse(*parts: str, status: int = 403) -> Any:
    """Answers with that status to everything whose path has one of these in it."""

    def changed(path: str, answer: Answer) -> Answer:
        if any(part in path for part in parts):
            return status, {"forbidden": {"code": status, "message": "Policy doesn't allow it"}}
        return answer

    return changed


def edited(**changes: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Any:
    """Answers in which the rows of a listing are what its change makes of them; None = such a row is left out."""
    paths = {"servers": "servers/detail", "hypervisors": "os-hypervisors", "services": "os-services"}

    def changed(path: str, answer: Answer) -> Answer:
        status, body = answer
        for name, change in changes.items():
            if paths[name] in path and status == 200:
                body = {**body, name: [row for one in body[name] if (row := change(one)) is not None]}
        return status, body

    return changed


def test_every_part_is_read_page_by_page_and_placement_again_where_it_changed(cloud: Replay, source: OpenStack) -> None:
    reading = source.read()
    assert [part.name for part in reading.parts] == ALL
    assert reading.complete
    assert (reading.every_host, reading.every_instance) == (True, True)
    assert len(reading.hosts) == 10
    pages = [path for path in cloud.asked if "/os-hypervisors/detail" in path]
    assert len(pages) == 3, "Nova gave four at a time"
    assert sum(path.endswith("/inventories") for path in cloud.asked) == 10
    cloud.asked.clear()
    source.read()
    assert not any(path.endswith("/inventories") for path in cloud.asked)


def test_a_host_is_what_nova_and_placement_say_and_where_it_is_off_says_why(source: OpenStack) -> None:
    hosts = by_id(source.read().hosts)
    assert hosts["h01"] == {
        "id": "h01", "kind": "kvm", "pcpus": 16, "memory_mb": 65536.0, "threads_per_core": 2, "enabled": True,
        "dedicated_cpus": (), "cpu_overcommit": 4.0, "memory_overcommit": (65536 - 512) / 65536,
        "labels": {"source": "openstack", "render": "openstack", "zone": "az1", "aggregate.rack 1": "true"},
    }  # fmt: skip
    assert hosts["h05"]["labels"] == {"source": "openstack", "render": "openstack", "zone": "nova"}
    assert (hosts["h09"]["pcpus"], len(hosts["h09"]["dedicated_cpus"]), hosts["h09"]["cpu_overcommit"]) == (32, 8, 4.0)
    off = {name: one["labels"]["disabled_reason"] for name, one in hosts.items() if not one["enabled"]}
    assert off == {"h03": "disabled: new disk", "h04": "its compute service is down"}


def inventory(total: int, reserved: int = 0, ratio: float = 1.0) -> dict[str, Any]:
    return {"total": total, "reserved": reserved, "allocation_ratio": ratio}


TOPOLOGY = {"cells": 2, "sockets": 1, "cores": 12, "threads": 2}


@pytest.mark.parametrize(
    ("vcpus", "topology", "promises", "pcpus", "dedicated", "overcommit"),
    [
        (0, TOPOLOGY, {"PCPU": inventory(44)}, 48, 44, None),  # what is left is the host's own
        (12, TOPOLOGY, {"PCPU": inventory(32), "VCPU": inventory(12, ratio=4.0)}, 48, 32, 4.0),
        (12, TOPOLOGY, {"PCPU": inventory(32, 2), "VCPU": inventory(12, 4, 2.0)}, 48, 30, 16 / 12),
        (0, None, {"PCPU": inventory(20)}, 20, 20, None),
        (4, None, {"PCPU": inventory(20), "VCPU": inventory(4)}, 24, 20, 1.0),
        (0, json.dumps({"topology": TOPOLOGY}), None, 48, 48, None),  # Nova before 2.28, and no word of Placement
        (16, TOPOLOGY, {"VCPU": inventory(16, ratio=2.0)}, 16, 0, 2.0),  # cpu_shared_set alone
    ],
)
def test_a_host_with_dedicated_cpus_has_all_of_them(
    vcpus: int,
    topology: object,
    promises: dict[str, Any] | None,
    pcpus: int,
    dedicated: int,
    overcommit: float | None,
) -> None:
    cpu_info = {"topology": topology} if isinstance(topology, dict) else topology
    row = {
        "hypervisor_hostname": "nfv7", "hypervisor_type": "QEMU", "vcpus": vcpus, "memory_mb": 4096, "state": "up",
        "cpu_info": cpu_info,
    }  # fmt: skip
    facts = host_facts(row, source="openstack", zones={}, aggregates=[], inventories=promises)
    assert (facts["pcpus"], len(facts.get("dedicated_cpus", ()))) == (pcpus, dedicated)
    assert facts.get("cpu_overcommit") == pytest.approx(overcommit)
    assert ("assumed" in facts["labels"]) == (dedicated > 0)
    if isinstance(topology, dict) and dedicated:  # whole cores first: c and c + 24 are siblings
        assert {cpu % 24 for cpu in facts["dedicated_cpus"]} == set(range(24 - (dedicated + 1) // 2, 24))


def test_a_host_that_reports_only_dedicated_cpus_is_left_out_with_the_reason() -> None:
    row = {"hypervisor_hostname": "n", "hypervisor_type": "QEMU", "vcpus": 0, "memory_mb": 1, "state": "up"}
    with pytest.raises(ValueError, match="neither its topology nor Placement"):
        host_facts(row, source="openstack", zones={}, aggregates=[], inventories=None)


@pytest.mark.parametrize(
    ("specs", "image", "dedicated"),
    [
        ({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"}, None, 4),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-1"}, None, 2),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}, None, 3),
        ({"hw:cpu_policy": "mixed", "hw:cpu_realtime_mask": "1-3,^2"}, None, 2),
        ({"resources:PCPU": "3", "resources:VCPU": "1"}, None, 3),
        ({"resources1:PCPU": "2", "resources2:PCPU": "1"}, None, 3),
        ({"hw:cpu_policy": "shared"}, None, 0),
        ({"hw:cpu_policy": "shared"}, "dedicated", 0),
        ({}, "dedicated", 4),
        ({}, None, 0),
    ],
)
def test_a_server_with_dedicated_cpus_says_how_many(specs: dict[str, str], image: str | None, dedicated: int) -> None:
    row = {
        "id": "s", "image": {"id": "i"}, "OS-EXT-SRV-ATTR:host": "nfv7",
        "flavor": {"vcpus": 4, "ram": 512, "original_name": "f", "extra_specs": specs},
    }  # fmt: skip
    policies = {"i": image} if image else {}
    reported: dict[str, Any] = {"source": "openstack", "current_specs": {}, "groups": {}}
    assert instance_facts(row, **reported, cpu_policies=policies)["dedicated_vcpus"] == dedicated
    if image is None and not dedicated:  # what is not known is not reported
        assert "dedicated_vcpus" not in instance_facts(row, **reported)


def test_what_an_image_says_of_cpus_is_read_where_some_are_dedicated(cloud: Replay, source: OpenStack) -> None:
    web, *_ = cloud.recording["servers"]
    cloud.changed = edited(servers=lambda row: {**row, "image": {"id": "img-7"}} if row["id"] == web else row)
    cloud.images = [{"id": "img-7", "hw_cpu_policy": "dedicated"}, {"id": "img-8"}]
    found = by_id(source.read().instances)
    assert [one["dedicated_vcpus"] for name, one in found.items() if name == web] == [2]
    assert {one["dedicated_vcpus"] for name, one in found.items() if name != web} <= {0, 2, 4}


def test_a_server_is_what_its_flavor_says(cloud: Replay, source: OpenStack) -> None:
    web, *_ = cloud.recording["servers"]
    one = by_id(source.read().instances)[web]
    host = one.pop("host")
    assert host in {f"h{number:02d}" for number in range(1, 11)}
    labels = one.pop("labels")
    assert labels.pop("anti_affinity") == "g1"
    assert (labels["name"], labels["flavor_name"], labels["source"]) == ("web-0", "web", "openstack")
    assert labels["domain"] == "instance-00000001", "as libvirt and its exporters know it"
    assert one == {
        "id": web, "vcpus": 2, "memory_mb": 2048.0, "disk_gb": 10.0, "workload": "web-1k", "service": "latency",
        "min_throughput_ratio": 0.9, "dedicated_vcpus": 0,
        "settings": {
            "cap_percent": 100.0, "weight": CpuShares(200.0), "disk_limit_mb_s": 20.0,
            "network": NetworkSettings("dedicated", 100.0),
        },
    }  # fmt: skip


def test_only_members_of_a_strict_group_are_kept_apart_and_a_refused_listing_takes_no_label(
    cloud: Replay, source: OpenStack
) -> None:
    reading = source.read()
    groups = {one["id"]: one["labels"].get("anti_affinity") for one in reading.instances}
    assert [groups.pop(server) for server in cloud.recording["servers"][:2]] == ["g1", "g1"]
    assert set(groups.values()) == {None}
    assert len([path for path in cloud.asked if "os-server-groups" in path]) == 3, "two at a time, till there is none"
    assert "anti_affinity" in reading.own_labels
    cloud.changed = refuse("os-server-groups")
    assert "anti_affinity" not in source.read().own_labels, "what is not reported stays"


def test_a_stopped_server_does_nothing_and_metadata_says_what_runs(cloud: Replay, source: OpenStack) -> None:
    servers = by_id(source.read().instances)
    *_, stopped, labelled = cloud.recording["servers"][:6]
    assert servers[stopped]["load"] == STOPPED_LOAD
    assert servers[labelled]["workload"] == "batch"
    assert "load" not in servers[labelled]


def test_the_next_read_asks_for_what_changed_and_sees_what_is_gone(cloud: Replay) -> None:
    times = iter(datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(minutes=10) * number for number in range(9))
    source = OpenStack(connection=cloud.connect, clock=lambda: next(times))
    first = source.read()
    cloud.asked.clear()
    cloud.show("changed")
    second = source.read()
    asked = [path for path in cloud.asked if "/servers/detail" in path]
    assert all("changes-since=2026-01-01T11%3A55%3A00" in path for path in asked if "marker" not in path)
    assert not any(path.endswith("/inventories") for path in cloud.asked if "h05" in path)
    deleted, added = cloud.recording["servers"][0], cloud.recording["servers"][-1]
    assert deleted in by_id(first.instances)
    assert deleted in second.gone
    assert added in by_id(second.instances)
    assert (second.every_host, second.every_instance) == (True, False)


def test_every_so_many_reads_all_servers_are_read(cloud: Replay) -> None:
    cloud.show("changed")
    source = OpenStack(connection=cloud.connect, whole_every=3)
    assert [source.read().every_instance for _ in range(5)] == [True, False, False, True, False]


def test_an_account_without_rights_sees_nothing_and_removes_nothing(cloud: Replay, source: OpenStack) -> None:
    cloud.show("reader")
    reading = source.read()
    refused = {name for name, state in states(reading).items() if state == "refused"}
    assert {"hypervisors", "services", "placement", "servers"} <= refused
    assert not reading.complete
    assert (reading.every_host, reading.every_instance) == (False, False)


PATHS = {
    "hypervisors": "os-hypervisors", "services": "os-services", "aggregates": "os-aggregates",
    "zones": "os-availability-zone", "flavors": "flavors", "placement": "resource_providers",
    "images": "standins/image/v2/images", "server groups": "os-server-groups", "servers": "servers/detail",
}  # fmt: skip


@pytest.mark.parametrize("part", ALL)
def test_one_part_that_is_refused_costs_that_part_only(cloud: Replay, source: OpenStack, part: str) -> None:
    cloud.changed = refuse(PATHS[part])
    reading = source.read()
    asked = [name for name in ALL if (part, name) != ("placement", "images")]  # which matter where CPUs are dedicated
    assert states(reading) == {name: "refused" if name == part else "read" for name in asked}
    assert reading.every_instance == (part != "servers")
    assert reading.every_host == (part not in {"hypervisors", "services"})


@pytest.mark.parametrize(("status", "expected"), [(403, "refused"), (500, "failed")])
def test_each_part_says_in_one_line_why_it_was_refused_or_failed(
    cloud: Replay, source: OpenStack, status: int, expected: str
) -> None:
    cloud.changed = refuse(*PATHS.values(), status=status)
    reading = source.read()
    assert states(reading) == dict.fromkeys([name for name in ALL if name != "images"], expected)
    assert all(part.reason and "\n" not in part.reason for part in reading.parts)


@pytest.mark.parametrize("body", [None, [], "x", {}, {"servers": None}, {"servers": [1]}])
def test_servers_that_are_no_servers_are_a_failure_not_an_end(cloud: Replay, source: OpenStack, body: Any) -> None:
    cloud.changed = lambda path, answer: (200, body) if "servers/detail" in path else answer
    reading = source.read()
    assert states(reading)["servers"] == "failed"
    assert not reading.every_instance
    assert len(reading.hosts) == 10


def test_a_server_without_an_id_is_left_out(cloud: Replay, source: OpenStack) -> None:
    cloud.changed = lambda path, answer: (200, {"servers": [{"name": "x"}]}) if "servers/detail" in path else answer
    reading = source.read()
    assert (reading.instances, reading.gone, reading.unclear) == ((), frozenset(), frozenset())


def test_a_row_that_cannot_be_understood_is_left_out_with_a_reason_and_is_not_gone(
    cloud: Replay, source: OpenStack
) -> None:
    web, *_ = cloud.recording["servers"]
    cloud.changed = edited(
        servers=lambda row: {**row, "flavor": None} if row["id"] == web else row,
        hypervisors=lambda row: {**row, "hypervisor_type": "ironic"} if row["hypervisor_hostname"] == "h10" else row,
    )
    reading = source.read()
    assert web in reading.unclear
    assert web not in by_id(reading.instances)
    assert "h10" not in by_id(reading.hosts)
    assert any(web in sentence for sentence in reading.left_out)
    assert "hypervisor h10 is of type ironic, which Cotenant does not model" in reading.left_out


def test_servers_and_hosts_of_a_cell_that_is_down_are_not_gone(cloud: Replay, source: OpenStack) -> None:
    """Nova reports only ids and the status UNKNOWN of them, from 2.69 on."""
    web, *_ = cloud.recording["servers"]
    unknown = {"id": web, "status": "UNKNOWN", "tenant_id": "t", "links": []}
    cloud.changed = edited(
        servers=lambda row: unknown if row["id"] == web else row,
        services=lambda row: {**row, "status": "UNKNOWN"} if row["host"] == "h01" else row,
        hypervisors=lambda row: None if row["hypervisor_hostname"] == "h01" else row,
    )
    reading = source.read()
    assert web in reading.unclear
    assert reading.every_instance
    assert not reading.every_host


def test_an_absent_server_is_reported_and_the_next_read_tries_again(cloud: Replay) -> None:
    cloud.changed = lambda path, answer: (503, {"error": {"message": "down"}}) if "auth/tokens" in path else answer
    source = OpenStack(connection=cloud.connect)
    assert set(states(source.read()).values()) == {"failed"}
    cloud.changed = lambda _, answer: answer
    assert source.read().complete


def test_the_command_tells_the_parts_and_ends_with_1_where_one_is_missing(
    cloud: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "OS_AUTH_URL": f"{cloud.url}/keystone/v3", "OS_USERNAME": "admin", "OS_PASSWORD": "secret",
        "OS_PROJECT_NAME": "admin", "OS_USER_DOMAIN_ID": "default", "OS_PROJECT_DOMAIN_ID": "default",
        "OS_REGION_NAME": "RegionOne",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    first = cli_runs.run("sync", "openstack")
    assert first.exit_code == 0, first.output
    assert "Put 10 hosts and 6 instances that are new or changed, of 10 hosts" in first.stdout
    cloud.changed = refuse("resource_providers")
    second = cli_runs.run("sync", "openstack", "--json")
    assert second.exit_code == 1
    reported = json.loads(second.stdout)
    assert (reported["complete"], reported["hosts"], reported["gone_hosts"]) == (False, [], [])
    assert [part["state"] for part in reported["parts"] if part["name"] == "placement"] == ["refused"]
    assert "secret" not in first.output + second.output


def test_the_command_says_which_settings_it_lacks_and_that_nothing_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    result = cli_runs.run("sync", "openstack")
    assert result.exit_code == 1
    said = " ".join(result.stdout.split())
    assert "OS_CLOUD" in said
    assert "Nothing could be read of openstack, so nothing was changed." in said
    assert "Put 0 hosts" not in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["openstack", "--merge"], "--merge goes with a file"),
        (["cloud.yaml", "--every", "5s"], "--every go with a system"),
        (["openstack", "--uri", "qemu:///system"], "--uri does not go with openstack, which takes --cloud"),
        (["libvirt", "--uri=-oProxyCommand=x"], "is not a URI of libvirt"),
        (["cloud.yaml"], "there is no file"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(words: list[str], reason: str) -> None:
    result = cli_runs.run("sync", *words)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_a_source_has_the_name_of_its_cloud() -> None:
    assert open_source("openstack", cloud="west").name == "openstack:west"  # type: ignore[attr-defined]


def test_policies_of_server_groups_become_labels() -> None:
    groups: list[dict[str, Any]] = [
        {"id": "g1", "policy": "anti-affinity", "rules": {"max_server_per_host": 3}, "members": ["a"]},
        {"id": "g2", "policy": "affinity", "rules": {}, "members": ["b"]},
        {"id": "g3", "policy": "soft-affinity", "members": ["c"]},
        {"id": "g4", "policy": "soft-anti-affinity", "members": ["d"]},
        {"id": "g5", "policy": "anti-affinity", "rules": {"max_server_per_host": 1}, "members": ["e"]},
    ]
    assert group_labels(groups) == {
        "a": {"anti_affinity": "g1", "anti_affinity_most": "3"}, "b": {"affinity": "g2"},
        "c": {"soft_affinity": "g3"}, "d": {"soft_anti_affinity": "g4"}, "e": {"anti_affinity": "g5"},
    }  # fmt: skip


def test_resource_classes_of_placement_are_counted_and_passed_devices_keep_their_servers_in_place() -> None:
    promised = {"total": 8, "reserved": 1, "allocation_ratio": 1.0}
    there: Any = {"hypervisor_hostname": "c1", "hypervisor_type": "QEMU", "vcpus": 4, "memory_mb": 4096, "state": "up"}
    classes = {"VCPU": promised, "CUSTOM_GPU": promised}
    facts = host_facts(there, source="o", zones={}, aggregates=[], inventories=classes)
    assert {name: text for name, text in facts["labels"].items() if name.startswith("has.")} == {"has.CUSTOM_GPU": "7"}
    specs = {"resources:CUSTOM_GPU": "2", "resources:VCPU": "4", "pci_passthrough:alias": "nic:1"}
    row: Any = {"id": "s", "flavor": {"vcpus": 1, "ram": 512, "original_name": "f", "extra_specs": specs}}
    labels = instance_facts(row, source="o", current_specs={}, groups={}, classes={"CUSTOM_GPU"})["labels"]
    assert (labels["needs.CUSTOM_GPU"], labels["never_move"]) == ("2", "true")
    assert "needs.VCPU" not in labels
    unread = instance_facts(row, source="o", current_specs={}, groups={})["labels"]
    assert not any(name.startswith("needs.") for name in unread)


@pytest.mark.parametrize(
    ("value", "label"),
    [("ssd", "require.metadata.disk.ssd"), ("<or> ssd <or> nvme", None), ("s== ssd", None), (">= 3", None), ("", None)],
)
def test_a_flavor_that_asks_for_metadata_of_aggregates_asks_its_hosts_for_it(value: str, label: str | None) -> None:
    specs = {"aggregate_instance_extra_specs:disk": value}
    row: Any = {
        "id": "s", "name": "n", "OS-EXT-AZ:availability_zone": "az1",
        "flavor": {"vcpus": 1, "ram": 512, "original_name": "f", "extra_specs": specs},
    }  # fmt: skip
    labels = instance_facts(row, source="openstack", current_specs={}, groups={}, zoned=True)["labels"]
    asked = {name: value for name, value in labels.items() if name.startswith("require.")}
    assert asked == {"require.zone": "az1"} | ({} if label is None else {label: "true"})
    assert "require.zone" not in instance_facts(row, source="openstack", current_specs={}, groups={})["labels"]


def test_a_host_has_the_metadata_of_its_aggregates_each_value_as_a_label() -> None:
    aggregates: Any = [
        {"name": "fast", "hosts": ["k1"], "metadata": {"disk": "ssd, nvme", "availability_zone": "az1"}},
        {"name": "other", "hosts": ["k2"], "metadata": {"disk": "hdd"}},
    ]
    row: Any = {"hypervisor_hostname": "k1", "hypervisor_type": "QEMU", "vcpus": 4, "memory_mb": 1024}
    labels = host_facts(row, source="openstack", zones={}, aggregates=aggregates, inventories=None)["labels"]
    metadata = {name for name in labels if name.startswith("metadata.")}
    assert metadata == {"metadata.disk.ssd", "metadata.disk.nvme"}


def test_traits_that_flavors_require_or_forbid_are_labels_of_hosts_and_rules_of_servers(
    cloud: Replay, source: OpenStack
) -> None:
    """Placement says which hosts have a flag of their CPUs; Nova offers a server no other ones."""
    first, other, *_ = sorted(str(one["id"]) for one in source.read().hosts)
    ids: dict[str, str] = {}

    def changed(path: str, answer: Answer) -> Answer:
        status, body = answer
        if "os-hypervisors/detail" in path:
            ids.update({row["hypervisor_hostname"]: row["id"] for row in body["hypervisors"]})
        if "servers/detail" in path:
            specs = {
                "trait:HW_CPU_X86_AVX512F": "required",
                "trait:CUSTOM_OLD": "forbidden",
                "trait:odd name": "required",
            }
            rows = [{**row, "flavor": {**row["flavor"], "extra_specs": specs}} for row in body["servers"]]
            return status, {**body, "servers": rows}
        if "required=" in path:
            has = first if "AVX512F" in path else other
            return 200, {"resource_providers": [{"uuid": ids[has], "name": has, "generation": 1}]}
        return answer

    cloud.changed = changed
    reading = OpenStack(connection=cloud.connect).read()
    labels = {str(one["id"]): one["labels"] for one in reading.hosts}
    assert {name for name, each in labels.items() if "trait.HW_CPU_X86_AVX512F" in each} == {first}
    assert {name for name, each in labels.items() if "trait.CUSTOM_OLD" in each} == {other}
    rules = {name: text for name, text in reading.instances[0]["labels"].items() if "trait." in name}
    assert rules == {"require.trait.HW_CPU_X86_AVX512F": "true", "require_none.trait.CUSTOM_OLD": "true"}
