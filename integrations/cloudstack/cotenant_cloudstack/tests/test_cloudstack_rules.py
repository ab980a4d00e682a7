"""What of CloudStack becomes rules: affinity groups, dedication, scopes of storage, tags of offerings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cotenant_cloudstack.calls import Account, Api
from cotenant_cloudstack.source import CloudStack
from cotenant_cloudstack.tests.cloudstack_server import (
    C1,
    H1,
    H2,
    H3,
    KEY,
    SECRET,
    Cloud,
    host,
    machine,
    pool,
    serving,
    volume,
)

from advisor.domain import PlacementRequest
from advisor.service import Advisor

ONE, TWO, THREE = (str(machine(number)["id"]) for number in range(3))
RULES = ("require", "soft_", "affinity", "anti_affinity", "never_move", "local_storage")


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def source(cloud: Cloud) -> Iterator[CloudStack]:
    with serving(cloud) as endpoint:
        yield CloudStack(open_api=lambda: Api(Account(endpoint, KEY, SECRET)))


def _rules(source: CloudStack) -> dict[str, dict[str, str]]:
    return {
        str(one["id"]): {name: text for name, text in one["labels"].items() if name.startswith(RULES)}
        for one in source.read().instances
    }


def _group(name: str, kind: str) -> dict[str, Any]:
    return {"id": name, "name": f"group {name}", "type": kind, "account": "admin", "domain": "ROOT"}


def test_a_cloud_without_rules_has_none(source: CloudStack) -> None:
    assert list(_rules(source).values()) == [{}, {}, {}]


def test_affinity_groups_of_each_type_become_rules(source: CloudStack, cloud: Cloud) -> None:
    cloud.virtualmachine[0]["affinitygroup"] = [
        _group("a2", "host anti-affinity"), _group("a1", "host anti-affinity"), _group("x", "an extension's own"),
    ]  # fmt: skip
    cloud.virtualmachine[1]["affinitygroup"] = [_group("b", "host affinity")]
    cloud.virtualmachine[2]["affinitygroup"] = [
        _group("c", "non-strict host anti-affinity"), _group("d", "non-strict host affinity"),
    ]  # fmt: skip
    assert _rules(source) == {
        ONE: {"anti_affinity": "a1, a2"},
        TWO: {"affinity": "b"},
        THREE: {"soft_anti_affinity": "c", "soft_affinity": "d"},
    }


def test_dedicated_hosts_are_for_machines_of_their_group_alone(source: CloudStack, cloud: Cloud) -> None:
    cloud.dedicated["dedicatedhost"] = [{"id": "d1", "hostid": H3, "affinitygroupid": "mine", "domainid": "x"}]
    cloud.virtualmachine[1]["affinitygroup"] = [_group("mine", "ExplicitDedication")]
    shared = {"require.dedicated": "no"}
    assert _rules(source) == {ONE: shared, TWO: {"require.dedicated": "mine"}, THREE: shared}
    hosts = {one["id"]: one["labels"]["dedicated"] for one in source.read().hosts}
    assert hosts == {H1: "no", H2: "no", H3: "mine"}


@pytest.mark.parametrize(
    ("item", "name"), [("dedicatedcluster", "clusterid"), ("dedicatedpod", "podid"), ("dedicatedzone", "zoneid")]
)
def test_dedication_of_what_is_wider_counts_for_its_hosts(
    source: CloudStack, cloud: Cloud, item: str, name: str
) -> None:
    cloud.host[1] = host("kvm-2", H2, clusterid="other", podid="other", zoneid="other")
    cloud.dedicated[item] = [{"id": "d1", name: "other", "affinitygroupid": "wide"}]
    cloud.dedicated["dedicatedhost"] = [{"id": "d2", "hostid": H3, "affinitygroupid": "narrow"}]
    hosts = {one["id"]: one["labels"]["dedicated"] for one in source.read().hosts}
    assert hosts == {H1: "no", H2: "wide", H3: "narrow"}


def test_the_scope_of_its_storage_bounds_a_machine(source: CloudStack, cloud: Cloud) -> None:
    cloud.storagepool += [pool("of-cluster", "CLUSTER", clusterid=C1), pool("of-host", "HOST", clusterid=C1)]
    cloud.volume += [volume(0, "of-cluster", type="DATADISK"), volume(2, "of-host"), volume(1, "unknown")]
    assert _rules(source) == {ONE: {"require.cluster": C1}, TWO: {}, THREE: {"local_storage": "true"}}
    cloud.host[2]["zonename"] = "z2"
    cloud.virtualmachine[1]["zonename"] = "z1"
    assert _rules(source)[TWO] == {"require.zone": "z1"}


def test_tags_of_an_offering_are_required_of_hosts(source: CloudStack, cloud: Cloud, advisor: Advisor) -> None:
    cloud.serviceoffering[0]["hosttags"] = "ssd, gold"
    cloud.host[1]["hosttags"] = "ssd"
    cloud.host[2] |= {"hosttags": "tags[0] == 'gold'", "istagarule": True}
    assert _rules(source)[ONE] == {"require.tag.ssd": "true", "require.tag.gold": "true"}
    assert not any(name.startswith("tag.") for name in list(source.read().hosts)[2]["labels"])
    advisor.inventory.follow(source.read())
    one = next(one for one in advisor.cloud.inventory().instances if one.id == ONE)
    answer = advisor.placements.place(PlacementRequest(one, dry_run=True)).recommendation
    assert {each.host: each.code for each in answer.rejected} == dict.fromkeys((H2, H3), "constraint.label")


def test_a_machine_with_a_device_of_its_host_never_moves(source: CloudStack, cloud: Cloud) -> None:
    cloud.serviceoffering[0]["serviceofferingdetails"] = {"pciDevice": "Group of NVIDIA GPUs"}
    assert _rules(source)[ONE] == {"never_move": "true"}


def test_rules_that_an_account_may_not_list_stay(source: CloudStack, cloud: Cloud, advisor: Advisor) -> None:
    cloud.storagepool.append(pool("of-cluster", "CLUSTER", clusterid=C1))
    cloud.volume.append(volume(0, "of-cluster"))
    advisor.inventory.follow(source.read())
    cloud.refused["listVolumes"] = 432
    assert {part.name: part.state for part in source.read().parts}["volumes"] == "refused"
    advisor.inventory.follow(source.read())
    labels = {one.id: one.labels for one in advisor.cloud.inventory().instances}
    assert labels[ONE]["require.cluster"] == C1
    cloud.refused.clear()
    cloud.volume.pop()
    advisor.inventory.follow(source.read())
    labels = {one.id: one.labels for one in advisor.cloud.inventory().instances}
    assert "require.cluster" not in labels[ONE]
