"""VMs of a pool move and hosts are closed through a stand-in of XAPI."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cotenant_xapi.calls import XapiAccount, XapiSession
from cotenant_xapi.executor import Xapi
from cotenant_xapi.tests.xapi_server import PASSWORD, USER, Pool, serving

from advisor.changes.controller import HOST, NO, OPEN, YES, ChangeFailed, Gone
from advisor.changes.migrations import Waiting
from advisor.domain import Change, Host, Instance
from advisor.errors import InvalidInput

LABELS = {"source": "xapi"}
XEN1, XEN2 = (Host(name, "xen", pcpus=16, memory_mb=65536, labels=LABELS) for name in ("xen1", "xen2"))
UUID = "11111111-0000-4000-8000-000000000001"
VM = Instance("vm1", vcpus=2, host="xen1", labels={"source": "xapi", "uuid": UUID})
THERE = {HOST: "xen2"}


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def executor(pool: Pool) -> Iterator[Xapi]:
    with serving(pool) as url:
        passed = [0.0]

        def sleep(seconds: float) -> None:
            passed[0] += seconds

        waiting = Waiting(60.0, clock=lambda: passed[0], sleep=sleep)
        yield Xapi(waiting, lambda cloud: XapiSession(XapiAccount(url, USER, PASSWORD)))


def move(executor: Xapi) -> Change:
    meant = executor.moving(VM, XEN1, XEN2)
    return Change(
        0, "xen1", VM.id, meant.kind, "xapi", meant.target, meant.before, meant.after, meant.command, meant.undo
    )


def resident(pool: Pool) -> str:
    return str(pool.classes["VM"]["OpaqueRef:v1"]["resident_on"])


def test_a_vm_moves_once_is_where_it_is_and_comes_back(pool: Pool, executor: Xapi) -> None:
    change = move(executor)
    assert change.command == ("xe", "vm-migrate", f"uuid={UUID}", "host=xen2", "live=true")
    assert executor.read(change) == {HOST: "xen1"}
    executor.write(change, THERE)
    assert resident(pool) == "OpaqueRef:h2"
    executor.write(change, THERE)
    assert len(pool.tasks) == 1
    executor.write(change, {HOST: "xen1"})
    assert resident(pool) == "OpaqueRef:h1"
    assert pool.sessions == set(), "each session is logged out"


def test_a_vm_that_moves_already_is_waited_for(pool: Pool, executor: Xapi) -> None:
    pool.changed("Async.VM.pool_migrate", ["OpaqueRef:v1", "OpaqueRef:h2", {"live": "true"}])
    assert executor.read(move(executor)) == THERE
    assert len(pool.tasks) == 1


def test_a_migration_that_fails_says_why(pool: Pool, executor: Xapi) -> None:
    pool.fails = ["HOST_NOT_ENOUGH_FREE_MEMORY", "8589934592", "1024"]
    with pytest.raises(ChangeFailed, match="HOST_NOT_ENOUGH_FREE_MEMORY"):
        executor.write(move(executor), THERE)
    assert executor.read(move(executor)) == {HOST: "xen1"}


def test_a_migration_that_does_not_end_is_called_off(pool: Pool, executor: Xapi) -> None:
    pool.asks_left = 10_000
    with pytest.raises(ChangeFailed, match="TASK_CANCELLED"):
        executor.write(move(executor), THERE)
    assert resident(pool) == "OpaqueRef:h1"


def test_a_vm_in_another_state_is_left_alone(pool: Pool, executor: Xapi) -> None:
    pool.classes["VM"]["OpaqueRef:v1"]["allowed_operations"] = ["hard_shutdown"]
    with pytest.raises(ChangeFailed, match="does not let it move"):
        executor.write(move(executor), THERE)
    pool.classes["VM"]["OpaqueRef:v1"] |= {"power_state": "Suspended"}
    with pytest.raises(ChangeFailed, match="suspended"):
        executor.write(move(executor), THERE)
    assert pool.tasks == {}


def test_a_vm_that_is_gone_and_a_pool_that_refuses_are_distinguished(pool: Pool, executor: Xapi) -> None:
    change = move(executor)
    pool.refuses["VM.get_record"] = ["INTERNAL_ERROR", "x"]
    with pytest.raises(ChangeFailed, match="INTERNAL_ERROR") as failed:
        executor.read(change)
    assert not isinstance(failed.value, Gone)
    pool.refuses.clear()
    del pool.classes["VM"]["OpaqueRef:v1"]
    with pytest.raises(Gone):
        executor.read(change)


def test_a_host_is_closed_and_opened(pool: Pool, executor: Xapi) -> None:
    meant = executor.closing(XEN1)
    change = Change(0, "xen1", "", meant.kind, "xapi", meant.target, meant.before, meant.after)
    assert executor.read(change) == {OPEN: YES}
    executor.write(change, {OPEN: NO})
    assert pool.classes["host"]["OpaqueRef:h1"]["enabled"] is False
    assert executor.read(change) == {OPEN: NO}
    executor.write(change, {OPEN: YES})
    assert pool.classes["host"]["OpaqueRef:h1"]["enabled"] is True


def test_a_vm_without_a_uuid_is_not_moved(executor: Xapi) -> None:
    with pytest.raises(InvalidInput, match="uuid"):
        executor.moving(Instance("vm1"), XEN1, XEN2)
