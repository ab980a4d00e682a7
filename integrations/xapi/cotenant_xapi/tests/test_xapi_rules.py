"""What of a pool becomes rules: reach of storage and networks, CPUs, groups, home servers, and what never moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cotenant_xapi.calls import XapiAccount, XapiSession
from cotenant_xapi.source import Xapi
from cotenant_xapi.tests.xapi_server import PASSWORD, POOL, STORE, USER, Pool, host, serving, vm

from advisor.domain import PlacementRequest
from advisor.service import Advisor

RULES = ("require", "prefer_any.", "soft_", "never_move", "local_storage")


@pytest.fixture
def pool() -> Pool:
    """Three hosts, of which the third has a local disk, no VLAN and an older CPU; a VM on each."""
    pool = Pool()
    for number in (1, 2, 3):
        features = "178bfbff-f7fa3203" if number < 3 else "178bfbff-f7da3203"
        info = {**host(number)["cpu_info"], "vendor": "AuthenticAMD", "features_hvm": features}
        pool.classes["host"][f"OpaqueRef:h{number}"] = host(number, cpu_info=info)
        pool.classes["host_metrics"][f"OpaqueRef:hm{number}"] = {"memory_total": str(64 << 30), "live": True}
        pool.classes["VM"][f"OpaqueRef:v{number}"] = vm(number, number)
    plug = {"host": "OpaqueRef:h3", "SR": "OpaqueRef:sr0", "currently_attached": True}
    pool.classes["PBD"]["OpaqueRef:pb3"] = plug
    return pool


@pytest.fixture
def source(pool: Pool) -> Iterator[Xapi]:
    with serving(pool) as url:
        yield Xapi(open_session=lambda: XapiSession(XapiAccount(url, USER, PASSWORD)))


def _rules(source: Xapi) -> dict[str, dict[str, str]]:
    """The rules of each VM, but for the pool's own."""
    own = f"{RULES[0]}.pool"
    found = {str(one["id"]): one["labels"] for one in source.read().instances}
    for labels in found.values():
        assert labels[own] == POOL
    return {
        name: {key: text for key, text in labels.items() if key.startswith(RULES) and key != own}
        for name, labels in found.items()
    }


def _labels(source: Xapi, name: str, prefix: str) -> dict[str, str]:
    labels = next(one["labels"] for one in source.read().hosts if one["id"] == name)
    return {key: text for key, text in labels.items() if key.startswith(prefix)}


def _plugged(pool: Pool, repository: str, *numbers: int, **more: Any) -> None:
    pool.classes["SR"][f"OpaqueRef:{repository}"] = {
        "uuid": f"{STORE}7", "name_label": repository, "shared": True, "VDIs": [f"OpaqueRef:{repository}-disk"], **more,
    }  # fmt: skip
    for number in numbers:
        plug = {"host": f"OpaqueRef:h{number}", "SR": f"OpaqueRef:{repository}", "currently_attached": True}
        pool.classes["PBD"][f"OpaqueRef:{repository}{number}"] = plug
    pool.classes["VBD"][f"OpaqueRef:{repository}"] = {
        "VM": "OpaqueRef:v1", "VDI": f"OpaqueRef:{repository}-disk", "empty": False,
    }  # fmt: skip


def test_storage_that_some_hosts_reach_is_a_rule_of_the_vms_on_it(source: Xapi, pool: Pool) -> None:
    assert set(map(len, _rules(source).values())) == {0}  # each host reaches NFS
    _plugged(pool, "ssd", 1, 3)
    assert _rules(source) == {"vm1": {"require.sr.ssd": "true"}, "vm2": {}, "vm3": {}}
    assert [bool(_labels(source, f"xen{number}", "sr.")) for number in (1, 2, 3)] == [True, False, True]


def test_an_unplugged_repository_does_not_count(source: Xapi, pool: Pool) -> None:
    _plugged(pool, "ssd", 1, 2, 3)
    assert _rules(source)["vm1"] == {}
    pool.classes["PBD"]["OpaqueRef:ssd2"]["currently_attached"] = False
    assert _rules(source)["vm1"] == {"require.sr.ssd": "true"}
    pool.classes["VBD"]["OpaqueRef:ssd"]["empty"] = True  # an empty drive
    assert _rules(source)["vm1"] == {}


def test_a_disk_on_a_host_itself_is_copied_by_a_move(source: Xapi, pool: Pool) -> None:
    _plugged(pool, "Local storage", 1, shared=False)
    assert _rules(source)["vm1"] == {"local_storage": "true"}


def test_a_network_that_a_host_lacks_is_a_rule(source: Xapi, pool: Pool) -> None:
    pool.classes["network"]["OpaqueRef:vlan"] = {"uuid": f"{STORE}8", "name_label": "VLAN 7"}
    for number in (1, 2):
        pool.classes["PIF"][f"OpaqueRef:vlan{number}"] = {
            "host": f"OpaqueRef:h{number}", "physical": False, "metrics": "OpaqueRef:pm2", "network": "OpaqueRef:vlan",
        }  # fmt: skip
    pool.classes["VIF"]["OpaqueRef:i9"] = {"VM": "OpaqueRef:v2", "network": "OpaqueRef:vlan", "qos_algorithm_type": ""}
    assert _rules(source)["vm2"] == {"require.network.VLAN 7": "true"}
    pool.classes["PIF"].pop("OpaqueRef:vlan1")
    pool.classes["PIF"].pop("OpaqueRef:vlan2")  # a network without interfaces is within each host
    assert _rules(source)["vm2"] == {}


def test_a_vm_goes_where_the_features_are_with_which_it_was_started(source: Xapi, pool: Pool) -> None:
    flags = {"vendor": "AuthenticAMD", "features": "178bfbff-f7fa3203"}
    pool.classes["VM"]["OpaqueRef:v1"]["last_boot_CPU_flags"] = flags
    pool.classes["VM"]["OpaqueRef:v2"]["last_boot_CPU_flags"] = {**flags, "features": "178bfbff-f7da3203"}
    pool.classes["VM"]["OpaqueRef:v3"]["last_boot_CPU_flags"] = {**flags, "features": "what a later version writes"}
    new, older = (_labels(source, name, "cpu_features")["cpu_features"] for name in ("xen1", "xen3"))
    assert new != older
    assert _rules(source) == {"vm1": {"require_any.cpu_features": new}, "vm2": {}, "vm3": {}}
    pool.classes["host"]["OpaqueRef:h3"]["cpu_info"]["vendor"] = "GenuineIntel"
    assert _rules(source)["vm2"] == {"require_any.cpu_features": new}


def test_groups_and_home_servers_are_soft(source: Xapi, pool: Pool) -> None:
    group = {"uuid": f"{STORE}6", "name_label": "web", "placement": "anti_affinity",
             "VMs": ["OpaqueRef:v1", "OpaqueRef:v2"]}  # fmt: skip
    normal = {**group, "name_label": "all", "placement": "normal", "VMs": ["OpaqueRef:v3"]}
    pool.classes["VM_group"] = {"OpaqueRef:g1": group, "OpaqueRef:g2": normal}
    pool.classes["VM"]["OpaqueRef:v3"]["affinity"] = "OpaqueRef:h2"
    assert _rules(source) == {
        "vm1": {"soft_anti_affinity": "web"}, "vm2": {"soft_anti_affinity": "web"}, "vm3": {"prefer_any.id": "xen2"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "field",
    [
        {"attached_PCIs": ["OpaqueRef:pci"]}, {"VUSBs": ["OpaqueRef:usb"]}, {"VGPUs": ["OpaqueRef:gpu"]},
        {"other_config": {"pci": "0/0000:04:01.0"}},
    ],
)  # fmt: skip
def test_a_vm_with_a_device_of_its_host_never_moves(source: Xapi, pool: Pool, field: dict[str, Any]) -> None:
    pool.classes["VM"]["OpaqueRef:v1"] |= field
    pool.classes["VIF"]["OpaqueRef:i2"]["reserved_pci"] = "OpaqueRef:function"
    assert _rules(source) == {"vm1": {"never_move": "true"}, "vm2": {"never_move": "true"}, "vm3": {}}


def test_a_pool_without_groups_of_vms_is_read_whole(source: Xapi, pool: Pool) -> None:
    pool.refuses["VM_group.get_all_records"] = ["MESSAGE_METHOD_UNKNOWN", "VM_group.get_all_records"]
    assert source.read().complete


def test_rules_that_could_not_be_read_stay(source: Xapi, pool: Pool, advisor: Advisor) -> None:
    _plugged(pool, "ssd", 1)
    advisor.inventory.follow(source.read())
    pool.refuses["PBD.get_all_records"] = ["INTERNAL_ERROR", "busy"]
    advisor.inventory.follow(source.read())
    labels = {one.id: one.labels for one in advisor.cloud.inventory().instances}
    assert labels["vm1"]["require.sr.ssd"] == "true"
    del pool.refuses["PBD.get_all_records"]
    pool.classes["VBD"].pop("OpaqueRef:ssd")
    advisor.inventory.follow(source.read())
    labels = {one.id: one.labels for one in advisor.cloud.inventory().instances}
    assert "require.sr.ssd" not in labels["vm1"]


def test_a_placement_offers_the_hosts_that_reach_the_storage(source: Xapi, pool: Pool, advisor: Advisor) -> None:
    _plugged(pool, "ssd", 1, 3)
    advisor.inventory.follow(source.read())
    one = next(one for one in advisor.cloud.inventory().instances if one.id == "vm1")
    asked = PlacementRequest(one, dry_run=True)
    answer = advisor.placements.place(asked).recommendation
    assert {one.host: one.code for one in answer.rejected} == {"xen2": "constraint.label"}
    assert {one.host for one in answer.candidates} == {"xen1", "xen3"}
