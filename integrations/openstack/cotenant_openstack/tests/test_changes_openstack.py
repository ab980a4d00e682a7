"""Servers are live-migrated and compute services disabled by the real openstacksdk, before a stand-in of Nova."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cotenant_openstack.executor import REASON, OpenStack
from cotenant_openstack.tests.nova_server import Nova, serving

from advisor.changes.controller import HOST, NO, OPEN, YES, ChangeFailed, Gone
from advisor.changes.migrations import Waiting
from advisor.domain import Change, Host, Instance
from advisor.errors import InvalidInput

pytestmark = pytest.mark.filterwarnings("ignore:::openstack", "ignore:::keystoneauth1")
LABELS = {"source": "openstack", "render": "openstack"}
H01, H02 = (Host(name, "kvm", pcpus=16, memory_mb=65536, labels=LABELS) for name in ("h01", "h02"))
THERE = {HOST: "h02"}


@pytest.fixture
def nova() -> Iterator[Nova]:
    with serving() as made:
        yield made


@pytest.fixture
def executor(nova: Nova) -> OpenStack:
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    return OpenStack(Waiting(60.0, clock=lambda: passed[0], sleep=sleep), lambda cloud: nova.connect())


def move(nova: Nova, executor: OpenStack) -> Change:
    server = Instance(str(nova.of("h01")["id"]), host="h01", labels={"source": "openstack"})
    understood = executor.moving(server, H01, H02)
    return Change(
        0, "h01", server.id, understood.kind, "openstack", understood.target, understood.before, understood.after
    )


def place(nova: Nova, change: Change) -> str:
    return str(nova.servers[change.instance]["OS-EXT-SRV-ATTR:hypervisor_hostname"])


def test_a_server_moves_once_is_where_it_is_and_comes_back(nova: Nova, executor: OpenStack) -> None:
    change = move(nova, executor)
    assert executor.read(change) == {HOST: "h01"}
    executor.write(change, THERE)
    assert place(nova, change) == "h02"
    executor.write(change, THERE)
    assert len(nova.migrations) == 1
    executor.write(change, {HOST: "h01"})
    assert place(nova, change) == "h01"


def test_a_server_that_migrates_already_is_waited_for(nova: Nova, executor: OpenStack) -> None:
    change = move(nova, executor)
    nova.migrate(change.instance, {"host": "h02", "block_migration": "auto"})
    assert executor.read(change) == THERE
    assert len(nova.migrations) == 1


def test_an_answer_of_500_after_which_it_moves_all_the_same_is_no_second_migration(
    nova: Nova, executor: OpenStack
) -> None:
    nova.codes["POST action"], nova.begins_all_the_same = 500, True
    change = move(nova, executor)
    executor.write(change, THERE)
    assert (place(nova, change), len(nova.migrations)) == ("h02", 1)


def test_an_answer_of_500_after_which_nothing_moves_is_a_failure(nova: Nova, executor: OpenStack) -> None:
    nova.codes["POST action"] = 500
    change = move(nova, executor)
    with pytest.raises(ChangeFailed, match="it does not work"):
        executor.write(change, THERE)
    assert (place(nova, change), nova.migrations) == ("h01", [])


def test_a_migration_that_nova_gives_up_says_why(nova: Nova, executor: OpenStack) -> None:
    nova.fails = "No valid host was found"
    with pytest.raises(ChangeFailed, match="No valid host was found"):
        executor.write(move(nova, executor), THERE)


def test_a_migration_that_does_not_end_is_aborted(nova: Nova, executor: OpenStack) -> None:
    nova.asks_left = 10_000
    change = move(nova, executor)
    with pytest.raises(ChangeFailed, match="aborted"):
        executor.write(change, THERE)
    assert place(nova, change) == "h01"
    assert nova.migrations[0]["left"] == 0


@pytest.mark.parametrize(("status", "task"), [("ERROR", None), ("SHUTOFF", None), ("ACTIVE", "rebooting")])
def test_a_server_in_another_state_is_left_alone(
    nova: Nova, executor: OpenStack, status: str, task: str | None
) -> None:
    change = move(nova, executor)
    nova.servers[change.instance] |= {"status": status, "OS-EXT-STS:task_state": task}
    with pytest.raises(ChangeFailed, match=task or status):
        executor.write(change, THERE)
    assert nova.migrations == []


def test_a_server_that_is_deleted_and_an_api_that_fails_are_kept_apart(nova: Nova, executor: OpenStack) -> None:
    change = move(nova, executor)
    nova.codes[f"GET {change.instance}"] = 503
    with pytest.raises(ChangeFailed) as failed:
        executor.read(change)
    assert not isinstance(failed.value, Gone)
    nova.codes.clear()
    del nova.servers[change.instance]
    with pytest.raises(Gone):
        executor.read(change)


def test_an_account_that_sees_no_hosts_changes_nothing(nova: Nova, executor: OpenStack) -> None:
    change = move(nova, executor)
    for name in ("host", "hypervisor_hostname"):
        del nova.servers[change.instance][f"OS-EXT-SRV-ATTR:{name}"]
    with pytest.raises(ChangeFailed, match="administrator"):
        executor.read(change)


def test_a_host_that_nova_does_not_have_is_a_failure(nova: Nova, executor: OpenStack) -> None:
    nova.hypervisors = [row for row in nova.hypervisors if row["hypervisor_hostname"] != "h02"]
    with pytest.raises(ChangeFailed, match="no hypervisor h02"):
        executor.write(move(nova, executor), THERE)


def test_a_compute_service_is_disabled_with_a_reason_and_enabled(nova: Nova, executor: OpenStack) -> None:
    understood = executor.closing(H01)
    change = Change(0, "h01", "", understood.kind, "openstack", understood.target, understood.before, understood.after)
    assert executor.read(change) == {OPEN: YES}
    executor.write(change, {OPEN: NO})
    (row,) = (one for one in nova.hypervisors if one["hypervisor_hostname"] == "h01")
    assert (row["status"], row["service"]["disabled_reason"]) == ("disabled", REASON)
    assert executor.read(change) == {OPEN: NO}
    executor.write(change, {OPEN: YES})
    assert row["status"] == "enabled"


def test_a_server_goes_to_no_host_but_those_of_its_change(nova: Nova, executor: OpenStack) -> None:
    with pytest.raises(InvalidInput):
        executor.write(move(nova, executor), {HOST: "h09"})
