"""Classes of a real uplink, in network namespaces: set by the ledger, read back from the kernel, and undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.changes.controller import Controller
from advisor.changes.traffic import Traffic, run_tc
from advisor.domain import Change, Command, RolloutStanding
from advisor.render import commands, plan
from advisor.store import rollouts
from profiler.observed import IsolationSettings, NetworkSettings
from tests.advisor.changes.simulated import Bench as Ledgers
from tests.advisor.changes.test_changes_traffic import rollout_of
from tests.advisor.render.render_machine import do, need, run
from tests.advisor.render.test_render_tc_for_real import (
    GUEST,
    HOST,
    OTHER,
    Bench,
    _kernel_can,
    _line,
    _plain_where_needed,
)

pytestmark = pytest.mark.lab


@pytest.fixture
def machine() -> Iterator[Bench]:
    need("ip", "tc")
    built = Bench.build()
    try:
        _kernel_can(built)
        yield built
    finally:
        built.remove()


@pytest.fixture
def ledgers(tmp_path: Path) -> Ledgers:
    return Ledgers(tmp_path)


def executor(machine: Bench) -> Traffic:
    return Traffic(frozenset({HOST.id}), lambda argv: run_tc(["ip", "netns", "exec", machine.host, *argv]))


def begin(ledgers: Ledgers, machine: Bench, rendered: Sequence[Command]) -> tuple[Change, ...]:
    made = rollout_of(executor(machine), HOST, _plain_where_needed(machine, tuple(rendered)), ledgers.clock())
    ledgers.number += 1
    ledgers.rollout = f"tc{ledgers.number}"
    with ledgers.transactions.write() as connection:
        rollouts.add(connection, replace(made, id=ledgers.rollout))
    ledger = ledgers.ledger()
    with ledger.held():
        ledger.add(ledgers.rollout, "planned")
        ledger.add(ledgers.rollout, "approved")
    return made.changes


def act(ledgers: Ledgers, machine: Bench, what: str) -> RolloutStanding:
    ledger, traffic = ledgers.ledger(), executor(machine)
    with ledger.held():
        return ledgers.run(Controller(ledger, lambda name: traffic), what)


def limited(now: NetworkSettings | None, then: NetworkSettings) -> tuple[Command, ...]:
    before, after = IsolationSettings(network=now), IsolationSettings(network=then)
    return commands(HOST, GUEST, before, after, neighbours=())


def test_the_first_class_brings_its_tree_and_an_undo_leaves_the_uplink_as_it_was(
    machine: Bench, ledgers: Ledgers
) -> None:
    before = machine.dump()
    changes = begin(ledgers, machine, limited(None, NetworkSettings("shared", 50, 300)))
    standing = act(ledgers, machine, "carry_out")
    assert standing.state == "carried_out", standing.why
    assert [next(iter(change.after)).split()[0] for change in changes] == [
        "root", "class", "class", "leaf", "class", "leaf", "filter",
    ]  # fmt: skip
    shown = run("tc", "class", "show", "dev", "up0", inside=machine.host)
    assert "rate 50Mbit ceil 300Mbit" in shown
    assert act(ledgers, machine, "undo").state == "taken_back"
    assert machine.dump() == before


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (NetworkSettings("dedicated", 50), NetworkSettings("dedicated", 200)),
        (NetworkSettings("shared", 1.234, 10), NetworkSettings("dedicated", 7.5)),
        (NetworkSettings("dedicated", 940), NetworkSettings("shared", 0.5, 1000)),
    ],
)
def test_a_class_is_changed_in_place_and_an_undo_restores_its_very_numbers(
    machine: Bench, ledgers: Ledgers, now: NetworkSettings, then: NetworkSettings
) -> None:
    do(_plain_where_needed(machine, limited(None, now)), machine.host)
    before = machine.dump()
    begin(ledgers, machine, limited(now, then))
    standing = act(ledgers, machine, "carry_out")
    assert standing.state == "carried_out", standing.why
    assert machine.dump() != before
    assert act(ledgers, machine, "undo").state == "taken_back"
    assert machine.dump() == before


def test_the_last_one_to_leave_takes_the_tree_along_and_an_undo_brings_all_back(
    machine: Bench, ledgers: Ledgers
) -> None:
    empty = machine.dump()
    now = NetworkSettings("shared", 100, 400)
    do(_plain_where_needed(machine, limited(None, now)), machine.host)
    before = machine.dump()
    begin(ledgers, machine, limited(now, NetworkSettings("none")))
    assert act(ledgers, machine, "carry_out").state == "carried_out"
    assert machine.dump() == empty
    assert act(ledgers, machine, "undo").state == "taken_back"
    assert machine.dump() == before


def test_one_s_class_goes_to_another_and_comes_back(machine: Bench, ledgers: Ledgers) -> None:
    shaped = IsolationSettings(network=NetworkSettings("dedicated", 90))
    made = commands(HOST, OTHER, IsolationSettings(), shaped, neighbours=())
    do(_plain_where_needed(machine, made), machine.host)
    before = machine.dump()
    free = IsolationSettings(network=NetworkSettings())
    made = plan(HOST, GUEST, shaped, (replace(OTHER, settings=shaped),), {OTHER.id: free})
    begin(ledgers, machine, [command for command in made if command.argv])
    standing = act(ledgers, machine, "carry_out")
    assert standing.state == "carried_out", standing.why
    assert act(ledgers, machine, "undo").state == "taken_back"
    assert machine.dump() == before


def test_a_qdisc_of_another_program_is_refused_and_left(machine: Bench, ledgers: Ledgers) -> None:
    _line(machine, 1000)
    before = machine.dump()
    begin(ledgers, machine, limited(None, NetworkSettings("dedicated", 100)))
    standing = act(ledgers, machine, "carry_out")
    assert standing.state == "taken_back"
    assert "tbf" in standing.why
    assert machine.dump() == before


def test_a_class_that_the_operator_changed_since_is_left_by_an_undo(machine: Bench, ledgers: Ledgers) -> None:
    now, then = NetworkSettings("dedicated", 50), NetworkSettings("dedicated", 200)
    do(_plain_where_needed(machine, limited(None, now)), machine.host)
    begin(ledgers, machine, limited(now, then))
    act(ledgers, machine, "carry_out")
    do(limited(then, NetworkSettings("dedicated", 77)), machine.host)
    by_hand = machine.dump()
    assert act(ledgers, machine, "undo").state == "stopped"
    assert machine.dump() == by_hand
