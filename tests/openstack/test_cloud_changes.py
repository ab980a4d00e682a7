"""Changes by the ledger on a real Nova: live migrations there and back, and a host that is closed and opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cotenant_openstack.executor import EXECUTOR, REASON, OpenStack

from advisor.changes.controller import NO, OPEN, YES, Controller, Executors, Reach
from advisor.changes.from_plans import changes_of
from advisor.changes.migrations import Waiting
from advisor.domain import Change, Host, Instance, Inventory, PlanStep, Rollout, RolloutStanding
from advisor.store import rollouts
from tests.advisor.changes.simulated import Bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.openstack.openstack_lab.lab import OpenStackLab

LABELS = {"source": "openstack", "render": "openstack"}


@pytest.fixture
def executor(lab: OpenStackLab) -> OpenStack:
    return OpenStack(Waiting(300.0, poll_s=0.5), lambda _cloud: lab.connect())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def flavor(lab: OpenStackLab) -> Iterator[None]:
    made = lab.connect().compute.create_flavor(name="moving", vcpus=1, ram=512, disk=1)
    yield
    lab.delete_servers()
    lab.connect().compute.delete_flavor(made)


def host(name: str) -> Host:
    return Host(name, "kvm", pcpus=16, memory_mb=65_536, labels=LABELS)


def begin(bench: Bench, changes: Sequence[Change]) -> None:
    bench.number += 1
    bench.rollout = f"nova{bench.number}"
    with bench.transactions.write() as connection:
        rollouts.add(connection, Rollout(bench.rollout, bench.clock(), "local", "p1", tuple(changes)))
    ledger = bench.ledger()
    with ledger.held():
        ledger.add(bench.rollout, "planned")
        ledger.add(bench.rollout, "approved")


def act(bench: Bench, executor: OpenStack, what: str) -> RolloutStanding:
    ledger = bench.ledger()
    with ledger.held():
        return bench.run(Controller(ledger, lambda _name: executor), what)


def moves(executor: OpenStack, placed: dict[str, str], target: str) -> tuple[Change, ...]:
    """The changes of a plan that moves these servers, by id and host, to one other host."""
    hosts = tuple(host(name) for name in sorted({*placed.values(), target}))
    instances = tuple(Instance(server, vcpus=1, host=there, labels=LABELS) for server, there in placed.items())
    steps = tuple(PlanStep(server, target, action="move", source=there) for server, there in placed.items())
    kinds = {"openstack": replace(EXECUTOR, open=lambda _reach: executor)}
    return changes_of(steps, Inventory(hosts, instances), Executors(Reach(), kinds))


def another(lab: OpenStackLab, placed: dict[str, str]) -> str:
    names = [str(one.host) for one in lab.connect().compute.services(binary="nova-compute")]
    return next(name for name in sorted(names) if name not in placed.values())


def test_servers_move_as_a_plan_says_and_an_undo_brings_them_home(
    lab: OpenStackLab, executor: OpenStack, bench: Bench
) -> None:
    servers = [lab.boot(name, "moving") for name in ("first", "second")]
    before = lab.placed(servers)
    target = another(lab, before)
    begin(bench, moves(executor, before, target))
    standing = act(bench, executor, "carry_out")
    assert standing.state == "carried_out", standing.why
    assert lab.placed(servers) == dict.fromkeys(servers, target)
    assert act(bench, executor, "undo").state == "taken_back"
    assert lab.placed(servers) == before


def test_a_move_that_nova_refuses_leaves_the_server_where_it_was_and_says_why(
    lab: OpenStackLab, executor: OpenStack, bench: Bench
) -> None:
    servers = [lab.boot(name, "moving") for name in ("one", "other")]
    before = lab.placed(servers)
    target = another(lab, before)
    compute = lab.connect().compute
    service = next(one for one in compute.services(binary="nova-compute") if one.host == target)
    changes = moves(executor, before, target)
    begin(bench, changes[:1])
    assert act(bench, executor, "carry_out").state == "carried_out"
    compute.update_service_forced_down(service, forced=True)  # no conductor lets a server go there
    try:
        begin(bench, [replace(changes[1], number=0)])
        standing = act(bench, executor, "carry_out")
    finally:
        compute.update_service_forced_down(service, forced=False)
    assert standing.state == "taken_back"
    assert "No valid host" in standing.changes[0].why
    stays = changes[1].instance
    assert lab.placed([stays]) == {stays: before[stays]}


def test_a_host_is_closed_with_its_reason_and_opened_again(lab: OpenStackLab, executor: OpenStack) -> None:
    name = str(max(one.host for one in lab.connect().compute.services(binary="nova-compute")))
    understood = executor.closing(host(name))
    change = Change(
        0, name, "", understood.kind, "openstack", understood.target, understood.before, understood.after,
        understood.command, understood.undo,
    )  # fmt: skip

    def service() -> tuple[str, str | None]:
        found = next(one for one in lab.connect().compute.services(binary="nova-compute") if one.host == name)
        return str(found.status), found.disabled_reason

    executor.write(change, {OPEN: NO})
    assert service() == ("disabled", REASON)
    assert executor.read(change) == {OPEN: NO}
    executor.write(change, {OPEN: YES})
    assert service()[0] == "enabled"
