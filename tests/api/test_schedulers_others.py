"""Cortex' and OpenNebula's questions: what is held, and what counts in."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.api_client import Client

NAMES = tuple(str(number) for number in range(6))


@pytest.fixture
def equal(advisor: Advisor) -> Advisor:
    """Six equal hosts with nothing on them."""
    hosts = tuple(Host(name, "kvm", 1, 16_384.0) for name in NAMES)
    busy = WorkloadProfile("busy", {"cpu": 100.0, "block": 0.0})
    advisor.inventory.put(Inventory(hosts, (), (busy,)), mode="replace", generation=None)
    return advisor


@pytest.fixture
def client(equal: Advisor, settings: Settings) -> Client:
    return Client(create_app(equal, settings))


def _cortex(client: Client, server: str, *, read_only: bool = False, hosts: tuple[str, ...] = NAMES) -> list[str]:
    flavor = {"vcpus": 1, "memory_mb": 1024, "extra_specs": {"cotenant:workload": "busy"}}
    body = {
        "spec": {"nova_object.data": {"instance_uuid": server, "flavor": {"nova_object.data": flavor}}},
        "hosts": [{"host": name, "hypervisor_hostname": name} for name in hosts],
        "options": {"read_only": read_only},
    }
    answer = client.ask("POST", "/scheduler/nova/external", json=body)
    assert (answer.status_code, set(answer.json())) == (200, {"hosts"})
    found: list[str] = answer.json()["hosts"]
    return found


def test_servers_that_boot_in_a_row_have_hosts_of_their_own(client: Client) -> None:
    first = [_cortex(client, f"i-{number}") for number in range(6)]
    assert sorted(one[0] for one in first) == list(NAMES)
    assert all(sorted(one) == list(NAMES) for one in first)


def test_a_read_only_question_holds_nothing(client: Client, equal: Advisor) -> None:
    assert {_cortex(client, f"i-{number}", read_only=True)[0] for number in range(3)} == {"0"}
    assert equal.outcomes.page().items == ()


def test_a_server_that_is_asked_about_again_holds_one_host(client: Client) -> None:
    assert len({_cortex(client, "i-1")[0] for _ in range(3)}) == 1
    others = {_cortex(client, f"j-{number}")[0] for number in range(5)}
    assert len(others) == 5


def test_unknown_hosts_keep_their_order_behind_known_ones(client: Client) -> None:
    assert _cortex(client, "i-1", hosts=("z", "3", "y", "x"))[:1] == ["3"]
    assert _cortex(client, "i-1", hosts=("z", "3", "y", "x"))[1:] == ["z", "y", "x"]


def _place(client: Client, *numbers: int, **more: Any) -> dict[int, int | None]:
    vms = [
        {"ID": number, "STATE": "PENDING", "HOST_IDS": [int(name) for name in NAMES],
         "CAPACITY": {"CPU": 1.0, "MEMORY": 1048576, "DISK_SIZE": 0},
         "VM_ATTRIBUTES": {"COTENANT_WORKLOAD": "busy"}, **more}
        for number in numbers
    ]  # fmt: skip
    answer = client.ask("POST", "/opennebula/place", json={"VMS": vms})
    assert answer.status_code == 200
    return {row["ID"]: row.get("HOST_ID") for row in answer.json()["VMS"]}


def test_virtual_machines_of_one_request_and_of_the_next_spread(client: Client) -> None:
    first, then = _place(client, 1, 2, 3), _place(client, 4, 5, 6)
    assert sorted(str(host) for host in (*first.values(), *then.values())) == list(NAMES)


def test_one_that_is_asked_about_twice_in_one_request_is_answered_once(client: Client) -> None:
    assert len(_place(client, 1, 1)) == 1


def test_a_virtual_machine_that_the_inventory_knows_is_placed_as_what_it_is(client: Client, equal: Advisor) -> None:
    equal.inventory.put_instance(Instance("one-7", 1, 1024.0, workload="busy", exclusive=True))
    (host,) = _place(client, 7, VM_ATTRIBUTES={}).values()
    again = _place(client, 8)
    assert again[8] != host


def _newest(advisor: Advisor, since: int) -> list[str]:
    """Operations of the entries of the audit log after the first `since`, oldest first."""
    return [one.operation for one in advisor.access.audit(limit=1000).items][::-1][since:]


def _pod(memory: str) -> dict[str, Any]:
    asks = {"containers": [{"resources": {"requests": {"memory": memory}}}]}
    about = {"metadata": {"name": "p", "namespace": "d", "uid": "p-1", "labels": {"kubevirt.io": "virt-launcher"}}}
    return {"Pod": {**about, "spec": asks}, "NodeNames": list(NAMES)}


def test_every_recommendation_to_a_scheduler_has_one_entry_in_the_audit_log(client: Client, equal: Advisor) -> None:
    for name in NAMES:
        equal.inventory.put_host(Host(name, "kvm", 1, 16_384.0, labels={"cluster": "c1"}))
    vms = {"VMS": [{"ID": 1, "HOST_ID": 0, "HOST_IDS": [0, 1], "CAPACITY": {"CPU": 1.0, "MEMORY": 1024}}]}
    asked = [
        ("POST", "/kubernetes/filter", _pod("1Ti"), "placement.look"),
        ("POST", "/kubernetes/prioritize", _pod("1Ti"), "placement.look"),
        ("POST", "/kubernetes/prioritize", _pod("1Gi"), "placement.answer"),
        ("POST", "/opennebula/place", vms, "placement.answer"),
        ("POST", "/opennebula/optimize", vms, "moves.answer"),
        ("GET", "/cloudstack/drs-plan/c1", None, "moves.answer"),
    ]
    before = len(equal.access.audit(limit=1000).items)
    for method, path, body, _ in asked:
        assert client.ask(method, path, json=body).status_code == 200
    assert _newest(equal, before) == [operation for *_, operation in asked]
    assert _cortex(client, "i-1", read_only=True)
    assert _cortex(client, "i-1")
    equal.inventory.put_instance(Instance("i-2", exclusive=True))
    for number, name in enumerate(NAMES):
        equal.inventory.put_instance(Instance(f"r-{number}", host=name))
    before += len(asked)
    assert _cortex(client, "i-2") == []
    assert _newest(equal, before) == [
        "placement.look", "placement.answer", *["instance.put"] * (1 + len(NAMES)), "placement.look",
    ]  # fmt: skip
