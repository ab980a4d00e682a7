"""Nova's external scheduler call, as Cortex answers it: what is held, and what counts in."""

from __future__ import annotations

from pathlib import Path

import pytest
from cotenant_cortex.external import ROUTES

from advisor.domain import Instance
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.any_json import check_that_no_json_breaks
from tests.api.api_client import Client
from tests.conversations.playing import play, silent
from tests.servers.services import EQUAL_HOSTS as NAMES


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


def _newest(advisor: Advisor, since: int) -> list[str]:
    """Operations of the entries of the audit log after the first `since`, oldest first."""
    return [one.operation for one in advisor.access.audit(limit=1000).items][::-1][since:]


def test_every_answer_has_one_entry_in_the_audit_log(client: Client, equal: Advisor) -> None:
    before = len(equal.access.audit(limit=1000).items)
    assert _cortex(client, "i-1", read_only=True)
    assert _cortex(client, "i-1")
    equal.inventory.put_instance(Instance("i-2", exclusive=True))
    for number, name in enumerate(NAMES):
        equal.inventory.put_instance(Instance(f"r-{number}", host=name))
    assert _cortex(client, "i-2") == []
    assert _newest(equal, before) == [
        "placement.look", "placement.answer", *["instance.put"] * (1 + len(NAMES)), "placement.look",
    ]  # fmt: skip


def test_a_flag_of_another_type_is_refused(client: Client) -> None:
    body = {"spec": {}, "hosts": [], "options": {"read_only": 0}}
    assert client.ask("POST", "/scheduler/nova/external", json=body).status_code == 422


@pytest.mark.hypothesis
def test_no_json_breaks_it(client: Client) -> None:
    check_that_no_json_breaks(client, "/scheduler/nova/external", ["spec", "hosts", "options"])


def test_the_conversation_of_nova(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(__file__).with_name("cortex.yaml")
    play(file, tmp_path, monkeypatch)
    assert silent(ROUTES, [file]) == []
