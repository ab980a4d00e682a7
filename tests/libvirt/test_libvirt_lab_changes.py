"""Changes of real domains by the ledger: set, read back, undone byte by byte, and migrated between two libvirtd."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from advisor.changes.controller import ChangeFailed, Controller, Executors, Reach
from advisor.changes.from_plans import changes_of
from advisor.changes.libvirt import EXECUTOR, Libvirt
from advisor.changes.migrations import Waiting
from advisor.domain import (
    Change,
    Instance,
    Inventory,
    IsolationSettings,
    PlanStep,
    Rollout,
    RolloutStanding,
)
from advisor.store import rollouts
from lab.errors import LabError
from profiler.acting.domains import run_virsh
from profiler.observed import NetworkSettings, Pinning
from tests.advisor.changes.simulated import Bench
from tests.libvirt.daemon import Daemon
from tests.libvirt.guests import Guest, Lab
from tests.libvirt.test_libvirt_lab_rendered import CGROUP, HOST, _polices, dump, mac_of, threads_allowed

pytestmark = [pytest.mark.libvirt, pytest.mark.timeout(900)]
HERE = replace(HOST, id="here", labels={"cgroup_version": str(CGROUP)})
THERE = replace(HERE, id="there")
LAST = HERE.pcpus - 1


@dataclass(slots=True)
class Pair:
    """The lab's own libvirtd, and a second one that takes itself for another host."""

    here: Lab
    there: Lab
    sockets: int = 0

    def run(self, argv: Sequence[str], patience_s: float) -> str:
        """virsh as the executor asks it; the way between the two, which share no network, and their one disk are what
        an operator's network and storage would be."""
        return run_virsh(self.between(argv), patience_s)

    def between(self, argv: Sequence[str]) -> list[str]:
        if "migrate" not in argv:
            return list(argv)
        self.sockets += 1
        return [*argv, "--unsafe", "--migrateuri", f"unix://{self.here.daemon.directory}/migrate{self.sockets}.sock"]

    def executor(self) -> Libvirt:
        uris = {"here": self.here.uri, "there": self.there.uri}
        return Libvirt(uris, self.run, Waiting(120.0, poll_s=0.3))

    def where(self, guest: Guest) -> list[str]:
        """The hosts on which it runs, by their own lists."""
        labs = {"here": self.here, "there": self.there}
        return [name for name, lab in labs.items() if guest.name in lab.daemon.virsh("list", "--name").split()]


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Iterator[Pair]:
    second = Daemon("another-host")
    try:
        second.start()
        there = Lab(second, lab.accelerator, lab.image)
        for _ in range(9):  # control groups of one kernel carry the numbers of domains: they are not to be the same
            there.destroy(there.add("passing", paused=True))
        yield Pair(lab, there)
    finally:
        second.close()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def begin(bench: Bench, changes: Sequence[Change]) -> None:
    bench.number += 1
    bench.rollout = f"libvirt{bench.number}"
    with bench.transactions.write() as connection:
        rollouts.add(connection, Rollout(bench.rollout, bench.clock(), "local", "p1", tuple(changes)))
    ledger = bench.ledger()
    with ledger.held():
        ledger.add(bench.rollout, "planned")
        ledger.add(bench.rollout, "approved")


def act(bench: Bench, executor: Libvirt, what: str) -> RolloutStanding:
    ledger = bench.ledger()
    with ledger.held():
        return bench.run(Controller(ledger, lambda name: executor), what)


def planned(executor: Libvirt, guest: Guest, labels: dict[str, str], *steps: PlanStep) -> tuple[Change, ...]:
    """The changes of a plan's steps for one guest on the first host."""
    kinds = {"libvirt": replace(EXECUTOR, open=lambda reach: executor)}
    inventory = Inventory((HERE, THERE), (Instance(guest.name, vcpus=1, host="here", labels=labels),))
    return changes_of(steps, inventory, Executors(Reach(), kinds))


def settings(guest: Guest, wanted: IsolationSettings) -> PlanStep:
    return PlanStep(guest.name, "here", action="settings", source="here", settings=wanted)


WANTED = {
    "weight": IsolationSettings(weight=2048),
    "cap": IsolationSettings(cap_percent=37.5),
    "pin": IsolationSettings(pinning=Pinning(((LAST,),))),
    "disk": IsolationSettings(disk_limit_mb_s=12.5),
    "all": IsolationSettings(Pinning(((0,),)), 62.5, 512, None, 9.0),
}


@pytest.mark.parametrize("name", WANTED)
def test_settings_of_a_real_domain_are_read_back_and_an_undo_leaves_it_as_it_was(
    pair: Pair, bench: Bench, name: str
) -> None:
    shop, executor = pair.here.guests[0], pair.executor()
    before = dump(pair.here, shop)
    begin(bench, planned(executor, shop, {"disk": "vda"}, settings(shop, WANTED[name])))
    standing = act(bench, executor, "carry_out")
    assert standing.state == "carried_out", standing.why
    assert dump(pair.here, shop) != before
    if name == "pin":
        assert threads_allowed(pair.here, shop)["vcpu"] == [(LAST,)]
    assert act(bench, executor, "undo").state == "taken_back"
    assert dump(pair.here, shop) == before


def test_the_limit_of_a_real_interface_is_set_and_undone_or_refused_by_the_kernel_and_taken_back(
    pair: Pair, bench: Bench
) -> None:
    """Beside a weight, which comes first: where the kernel has no policer, that one is taken back too."""
    shop, executor = pair.here.guests[0], pair.executor()
    before = dump(pair.here, shop)
    wanted = IsolationSettings(weight=512, network=NetworkSettings("dedicated", 80.0))
    begin(bench, planned(executor, shop, {"mac": mac_of(pair.here, shop)}, settings(shop, wanted)))
    standing = act(bench, executor, "carry_out")
    assert [change.kind for change in standing.rollout.changes] == ["weight", "tc"]
    if _polices(pair.here):
        assert standing.state == "carried_out", standing.why
        assert "10000" in dump(pair.here, shop)[5]
        assert act(bench, executor, "undo").state == "taken_back"
    else:
        assert standing.state == "taken_back"
        assert standing.changes[1].why
    assert dump(pair.here, shop) == before


def test_a_pinned_guest_moves_to_another_libvirtd_with_pins_of_the_new_place_and_an_undo_brings_it_home(
    pair: Pair, bench: Bench
) -> None:
    shop, executor = pair.here.guests[0], pair.executor()
    before, served = dump(pair.here, shop), pair.here.ask(shop, "1k")
    first = planned(executor, shop, {}, settings(shop, WANTED["pin"]))
    begin(bench, first)
    assert act(bench, executor, "carry_out").state == "carried_out"
    pinned_rollout, pinned = bench.rollout, dump(pair.here, shop)
    now = Instance(shop.name, vcpus=1, host="here", settings=WANTED["pin"])
    there = IsolationSettings(pinning=Pinning(((0,),)), weight=1024)
    step = PlanStep(shop.name, "there", action="move", source="here", settings=there)
    kinds = {"libvirt": replace(EXECUTOR, open=lambda reach: executor)}
    changes = changes_of((step,), Inventory((HERE, THERE), (now,)), Executors(Reach(), kinds))
    kinds_of = [change.kind for change in changes]
    assert kinds_of.index("pin") < kinds_of.index("move") < len(kinds_of) - 1
    begin(bench, changes)
    standing = act(bench, executor, "carry_out")
    assert standing.state == "carried_out", standing.why
    assert pair.where(shop) == ["there"]
    assert threads_allowed(pair.there, shop)["vcpu"] == [(0,)]
    assert pair.there.ask(shop, "1k") == served, "through the second host's network"
    with pytest.raises(LabError):
        pair.here.daemon.virsh("domstate", *shop.arguments)
    assert act(bench, executor, "undo").state == "taken_back"
    assert pair.where(shop) == ["here"]
    assert dump(pair.here, shop) == pinned
    bench.rollout = pinned_rollout
    assert act(bench, executor, "undo").state == "taken_back"
    assert dump(pair.here, shop) == before
    assert pair.here.ask(shop, "1k") == served


def test_a_virsh_that_is_killed_while_the_guest_moves_leaves_it_where_the_ledger_says(pair: Pair, bench: Bench) -> None:
    shop, kills = pair.here.guests[0], [True]

    def run(argv: Sequence[str], patience_s: float) -> str:
        if "migrate" not in argv or not kills:
            return pair.run(argv, patience_s)
        kills.clear()
        virsh = subprocess.Popen(pair.between(argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.7)
        assert virsh.poll() is None, "it is under way"
        virsh.kill()
        virsh.wait()
        raise ChangeFailed("virsh was killed")

    executor = Libvirt({"here": pair.here.uri, "there": pair.there.uri}, run, Waiting(240.0, poll_s=0.3))
    changes = planned(executor, shop, {}, PlanStep(shop.name, "there", action="move", source="here"))
    begin(bench, changes)
    standing = act(bench, executor, "carry_out")
    if standing.state == "taken_back":  # else libvirt had done all that is virsh's part
        assert "virsh was killed" in standing.why
        assert pair.where(shop) == ["here"]
        begin(bench, changes)
        standing = act(bench, executor, "carry_out")
    assert standing.state == "carried_out", standing.why
    assert pair.where(shop) == ["there"]
    assert act(bench, executor, "undo").state == "taken_back"
    assert pair.where(shop) == ["here"]


def test_a_domain_that_is_gone_leaves_nothing_to_take_back(pair: Pair, bench: Bench) -> None:
    executor = pair.executor()
    passing = pair.here.add("passing", paused=True)
    begin(bench, planned(executor, passing, {}, settings(passing, WANTED["weight"])))
    assert act(bench, executor, "carry_out").state == "carried_out"
    pair.here.destroy(passing)
    standing = act(bench, executor, "undo")
    assert standing.state == "taken_back"
    assert "nothing is left to take back" in standing.changes[0].why
