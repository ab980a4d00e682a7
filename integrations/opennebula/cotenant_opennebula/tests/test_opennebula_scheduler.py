"""OpenNebula's questions: what is held, what counts in, and what no question breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cotenant_opennebula.scheduler import ROUTES

from advisor.domain import Instance
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.any_json import check_that_no_json_breaks
from tests.api.api_client import Client
from tests.conversations.playing import play, silent
from tests.servers.locking import locked
from tests.servers.services import EQUAL_HOSTS as NAMES


@pytest.fixture
def client(equal: Advisor, settings: Settings) -> Client:
    return Client(create_app(equal, settings))


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


def test_every_answer_has_one_entry_in_the_audit_log(client: Client, equal: Advisor) -> None:
    vms = {"VMS": [{"ID": 1, "HOST_ID": 0, "HOST_IDS": [0, 1], "CAPACITY": {"CPU": 1.0, "MEMORY": 1024}}]}
    before = len(equal.access.audit(limit=1000).items)
    for path in ("/opennebula/place", "/opennebula/optimize"):
        assert client.ask("POST", path, json=vms).status_code == 200
    assert _newest(equal, before) == ["placement.answer", "moves.answer"]


def test_a_placement_holds_a_host_and_needs_scope_write_and_moves_are_only_asked_for() -> None:
    assert {route.path: route.needs for route in ROUTES} == {
        "/opennebula/place": "write",
        "/opennebula/optimize": "read",
    }


def test_moves_are_answered_while_another_program_writes(client: Client, settings: Settings) -> None:
    with locked(settings):
        assert client.ask("POST", "/opennebula/optimize", json={"VMS": [], "HOSTS": []}).status_code == 200


@pytest.mark.parametrize("vm", [{"ID": False}, {"ID": 1, "VM_ATTRIBUTES": {"VCPU": True}}])
def test_a_number_of_another_type_is_refused(client: Client, vm: dict[str, Any]) -> None:
    assert client.ask("POST", "/opennebula/place", json={"VMS": [vm]}).status_code == 422


@pytest.mark.hypothesis
@pytest.mark.parametrize("path", ["/opennebula/place", "/opennebula/optimize"])
def test_no_json_breaks_it(client: Client, path: str) -> None:
    check_that_no_json_breaks(client, path, ["VMS", "LIMIT", "hosts"])


def test_the_conversation_of_opennebula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(__file__).with_name("opennebula.yaml")
    play(file, tmp_path, monkeypatch)
    assert silent(ROUTES, [file]) == []
