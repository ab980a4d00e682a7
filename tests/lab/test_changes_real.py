"""Changes of real control groups: the kernel takes them as read back, and an undo leaves every file as it was."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.changes.control_groups import ControlGroups
from advisor.changes.controller import Controller
from advisor.domain import Change, Host, Instance, IsolationSettings, Rollout, RolloutStanding
from advisor.render import commands
from advisor.store import rollouts
from lab.control_groups import GroupMaker, group_places, remove_group
from profiler.backends.lxc.control_groups import cgroup_version, find_mounts
from profiler.backends.sources import LiveSource
from profiler.observed import Pinning
from tests.advisor.changes.simulated import Bench

pytestmark = pytest.mark.lab
CHANGED = (
    "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpuset.cpus",
    "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "cpu.weight", "cpu.max", "cpu.max.burst",
    "io.max",
)  # fmt: skip
WANTED = (
    IsolationSettings(weight=2048),
    IsolationSettings(cap_percent=37.5),
    IsolationSettings(cap_percent=150.0),
    IsolationSettings(pinning=Pinning(((0,),))),
    IsolationSettings(weight=77, cap_percent=20.0, pinning=Pinning(((1,),))),
)


@pytest.fixture
def group() -> Iterator[str]:
    name = f"cotenant-test-{secrets.token_hex(3)}"
    GroupMaker(find_mounts(LiveSource())).make(name, tuple(range(os.cpu_count() or 1)), IsolationSettings(), None)
    try:
        yield name
    finally:
        remove_group(name)


def files(group: str) -> dict[str, bytes]:
    """Every file that a change may write, byte by byte."""
    paths = [Path(place, name) for place in group_places(group) for name in CHANGED]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def rollout_of(bench: Bench, executor: ControlGroups, group: str, wanted: IsolationSettings) -> str:
    host = Host(
        "here", "lxc", pcpus=os.cpu_count() or 1, memory_mb=1024,
        labels={"cgroup_version": cgroup_version(LiveSource()), "kernel": os.uname().release},
    )  # fmt: skip
    instance = Instance("vm", vcpus=1, host="here", labels={"cgroup": group})
    changes = []
    for number, command in enumerate(commands(host, instance, IsolationSettings(), wanted)):
        meaning = executor.meaning(host, command)
        changes.append(
            Change(number, "here", "vm", meaning.kind, "groups", meaning.target, meaning.before, meaning.after)
        )
    bench.number += 1
    bench.rollout = f"real{bench.number}"
    with bench.transactions.write() as connection:
        rollouts.add(connection, Rollout(bench.rollout, bench.clock(), "local", "p1", tuple(changes)))
    ledger = bench.ledger()
    with ledger.held():
        ledger.add(bench.rollout, "planned")
        ledger.add(bench.rollout, "approved")
    return bench.rollout


def acted(bench: Bench, executor: ControlGroups, what: str) -> RolloutStanding:
    ledger = bench.ledger()
    with ledger.held():
        return bench.run(Controller(ledger, lambda name: executor), what)


def test_an_undo_leaves_every_file_of_a_group_as_it_was(tmp_path: Path, group: str) -> None:
    bench = Bench(tmp_path)
    executor = ControlGroups(frozenset({"here"}))
    before = files(group)
    assert before
    for wanted in WANTED:
        rollout_of(bench, executor, group, wanted)
        standing = acted(bench, executor, "carry_out")
        assert standing.state == "carried_out", standing.why
        assert files(group) != before
        assert acted(bench, executor, "undo").state == "taken_back"
        assert files(group) == before


def test_what_the_kernel_refuses_takes_back_what_was_done(tmp_path: Path, group: str) -> None:
    """A CPU that the machine does not have: the weight before it is taken back."""
    bench = Bench(tmp_path)
    executor = ControlGroups(frozenset({"here"}))
    before = files(group)
    rollout_of(bench, executor, group, IsolationSettings(weight=512, cap_percent=50.0))
    with bench.transactions.write() as connection:
        rollout = rollouts.get(connection, bench.rollout)
        assert rollout is not None
        absent = Change(2, "here", "vm", "pin", "groups", group, {}, {"cpuset.cpus": "4000"})
        rollouts.add(connection, Rollout("refused", bench.clock(), "local", "p1", (*rollout.changes, absent)))
    bench.rollout = "refused"
    ledger = bench.ledger()
    with ledger.held():
        ledger.add("refused", "planned")
        ledger.add("refused", "approved")
    standing = acted(bench, executor, "carry_out")
    assert standing.state == "taken_back"
    assert "cpuset.cpus" in standing.why
    assert files(group) == before


def test_a_group_that_goes_leaves_nothing_to_take_back(tmp_path: Path) -> None:
    name = f"cotenant-test-{secrets.token_hex(3)}"
    GroupMaker(find_mounts(LiveSource())).make(name, (0,), IsolationSettings(), None)
    bench = Bench(tmp_path)
    executor = ControlGroups(frozenset({"here"}))
    try:
        rollout_of(bench, executor, name, IsolationSettings(weight=512))
        assert acted(bench, executor, "carry_out").state == "carried_out"
    finally:
        remove_group(name)
    standing = acted(bench, executor, "undo")
    assert standing.state == "taken_back"
    assert "any more" in standing.changes[0].why
