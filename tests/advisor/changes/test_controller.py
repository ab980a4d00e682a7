"""A rollout that is killed, fails or meets another controller ends as a whole or is taken back, with a line for all."""

from __future__ import annotations

import itertools

import pytest

from advisor.changes.controller import Controller, LeaseLost
from advisor.domain import RolloutStanding
from advisor.errors import Conflict
from tests.advisor.changes.simulated import AFTER, BEFORE, Bench
from tests.examples import STRIDE


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("changes"))


@pytest.fixture(autouse=True)
def begun(bench: Bench) -> None:
    bench.begin()


def events(standing: RolloutStanding) -> list[tuple[str, int | None]]:
    return [(line.event, line.change) for line in standing.lines]


def check_lines(standing: RolloutStanding) -> None:
    """Every step stands between two lines: what was done was said before it, with what was read, and after it."""
    begun: dict[str, set[int]] = {"applying": set(), "undoing": set()}
    for event, change in events(standing):
        if event in begun and change is not None:
            begun[event].add(change)
        if event == "applied":
            assert change in begun["applying"]
    assert all(one.before for one in standing.changes if one.state in ("applied", "undone"))
    assert [line.line for line in standing.lines] == list(range(len(standing.lines)))


def test_all_is_applied_in_order_and_each_step_has_a_line_before_and_after(bench: Bench) -> None:
    standing = bench.act("carry_out")
    assert standing.state == "carried_out"
    assert bench.system.texts == AFTER
    steps = [(event, number) for number in range(5) for event in ("applying", "applied")]
    assert events(standing)[2:] == [*steps, ("carried_out", None)]
    assert standing.changes[2].before == BEFORE["g2"]
    assert set(bench.system.writes.values()) == {1}


def test_undo_brings_back_what_was_read_in_reverse_order(bench: Bench) -> None:
    bench.act("carry_out")
    standing = bench.act("undo")
    assert standing.state == "taken_back"
    assert bench.system.texts == BEFORE
    assert [number for event, number in events(standing) if event == "undoing"] == [4, 3, 2, 1, 0]
    with pytest.raises(Conflict):
        bench.act("undo")
    with pytest.raises(Conflict):
        bench.act("carry_out")


def kills(bench: Bench, first: str, then: str, *, begin: int, prepare: str = "") -> int:
    """Kill at moments of `first` from `begin` on, then go on with `then`; returns the number of moments."""
    for at in itertools.count(1 + begin % STRIDE, STRIDE):
        bench.begin()
        if prepare:
            bench.act(prepare)
        bench.system.writes.clear()
        was_killed = bench.killed(first, at)
        standing = bench.standing()
        nothing_left = {"carry_out": ("carried_out", "taken_back"), "undo": ("approved", "taken_back")}
        if was_killed and standing.state not in nothing_left[then]:
            standing = bench.act(then)
        check_lines(bench.standing())
        assert max(bench.system.writes.values(), default=1) == 1, f"something was done twice after kill {at}"
        if was_killed:
            wanted = AFTER if then == "carry_out" and first == "carry_out" else BEFORE
            ended = "carried_out" if wanted is AFTER else "taken_back"
            if standing.state == "approved":  # killed before the first line: nothing was begun
                ended, wanted = "approved", BEFORE
            if first == "undo" and not any(event == "undo_begun" for event, _ in events(standing)):
                ended, wanted = "carried_out", AFTER
            assert (standing.state, bench.system.texts) == (ended, wanted), f"kill {at}"
        else:
            return at - 1
    raise AssertionError("it goes on without end")


@pytest.mark.exhaustive
def test_a_kill_between_any_two_steps_loses_nothing_and_does_nothing_twice(bench: Bench) -> None:
    number = kills(bench, "carry_out", "carry_out", begin=0) + kills(bench, "carry_out", "undo", begin=1)
    number += kills(bench, "undo", "undo", begin=2, prepare="carry_out")
    number += kills(bench, "undo", "carry_out", begin=0, prepare="carry_out")
    assert number >= 200


def test_a_second_kill_while_going_on_loses_nothing(bench: Bench) -> None:
    for first in range(1, 40, 3):
        for second in range(1, 14, 4):
            bench.begin()
            assert bench.killed("carry_out", first)
            bench.killed("carry_out", second)
            standing = bench.standing()
            if standing.state != "carried_out":
                standing = bench.act("carry_out")
            assert standing.state == "carried_out"
            assert bench.system.texts == AFTER
            assert max(bench.system.writes.values()) == 1
            check_lines(standing)


@pytest.mark.parametrize("failing", range(5))
def test_a_failed_step_takes_back_what_was_done_in_reverse_order(bench: Bench, failing: int) -> None:
    bench.system.refuses.add((f"g{failing}", "50000"))
    standing = bench.act("carry_out")
    assert standing.state == "taken_back"
    assert bench.system.texts == BEFORE
    assert [number for event, number in events(standing) if event == "undone"] == list(range(failing, -1, -1))
    assert f"change {failing + 1} failed" in standing.why


@pytest.mark.exhaustive
def test_a_kill_while_a_failed_rollout_is_taken_back_goes_on_with_that(bench: Bench) -> None:
    for at in itertools.count(1, STRIDE):
        bench.begin()
        bench.system.refuses.add(("g3", "50000"))
        if not bench.killed("carry_out", at):
            assert at > 60
            return
        standing = bench.standing()
        if standing.state != "taken_back":
            standing = bench.act("carry_out")
        assert (standing.state, bench.system.texts) == ("taken_back", BEFORE), f"kill {at}"
        check_lines(standing)


def test_a_system_in_another_state_than_planned_for_is_left_as_it_is(bench: Bench) -> None:
    bench.system.texts["g3"]["quota"] = "777"
    standing = bench.act("carry_out")
    assert standing.state == "taken_back"
    assert bench.system.texts == {**BEFORE, "g3": {"quota": "777", "period": "100000"}}
    assert "quota = 777" in standing.changes[3].why
    assert bench.system.writes["g3", "period", "50000"] == 0


def test_what_is_as_wanted_already_is_not_set(bench: Bench) -> None:
    bench.system.texts["g1"] = dict(AFTER["g1"])
    assert bench.act("carry_out").state == "carried_out"
    assert ("g1", "quota", "50000") not in bench.system.writes
    bench.act("undo")
    assert bench.system.texts["g1"] == AFTER["g1"], "it was so before"


def test_an_instance_that_vanishes_while_applied_leaves_nothing_to_take_back(bench: Bench) -> None:
    bench.system.on_write = lambda target: bench.system.texts.pop("g4", None)
    standing = bench.act("carry_out")
    assert standing.state == "taken_back"
    assert bench.system.texts == {target: texts for target, texts in BEFORE.items() if target != "g4"}
    bench.begin()
    bench.act("carry_out")
    del bench.system.texts["g2"]
    standing = bench.act("undo")
    assert standing.state == "taken_back"
    assert bench.system.texts == {target: texts for target, texts in BEFORE.items() if target != "g2"}
    assert "gone" in standing.changes[2].why


def test_what_another_program_set_since_is_not_overwritten_by_an_undo(bench: Bench) -> None:
    bench.act("carry_out")
    bench.system.texts["g2"]["quota"] = "12345"
    standing = bench.act("undo")
    assert standing.state == "stopped"
    assert bench.system.texts == {**BEFORE, "g2": {"quota": "12345", "period": "50000"}}
    assert standing.changes[2].state == "left"
    bench.system.texts["g2"]["quota"] = "50000"
    assert bench.act("undo").state == "taken_back", "once the operator has put it right"
    assert bench.system.texts == BEFORE


def test_two_controllers_do_not_act_at_once(bench: Bench) -> None:
    ledger = bench.ledger()
    with ledger.held(), pytest.raises(Conflict):
        bench.act("carry_out")
    assert bench.system.texts == BEFORE


def test_a_controller_that_slept_beyond_its_lease_stops_before_it_does_anything_more(bench: Bench) -> None:
    sleeper = bench.ledger()
    with sleeper.held():
        slept: list[str] = []

        def sleep(target: str) -> None:
            if target == "g2" and not slept:
                slept.append(target)
                bench.clock.forward(1000)
                assert bench.act("undo").state == "taken_back", "another controller takes over meanwhile"

        bench.system.on_write = sleep
        with pytest.raises(LeaseLost):
            Controller(sleeper, lambda name: bench.system).carry_out(bench.rollout)
    check_lines(bench.standing())
    assert bench.standing().state == "taken_back"


def test_a_clock_that_steps_back_does_not_keep_the_lease_for_ever(bench: Bench) -> None:
    bench.clock.forward(10_000)
    assert bench.killed("carry_out", 9)
    bench.clock.forward(-10_000 - 121)
    assert bench.act("carry_out").state == "carried_out"


def test_nothing_is_applied_while_changes_are_frozen_but_all_can_be_taken_back(bench: Bench) -> None:
    from advisor.store import rollouts

    def freeze(target: str) -> None:
        with bench.transactions.write() as connection:
            rollouts.freeze(connection, "token:ann", bench.clock(), "night of the release")

    bench.system.on_write = freeze
    assert bench.act("carry_out").state == "applying"
    assert bench.system.texts == {**BEFORE, "g0": AFTER["g0"]}
    assert bench.act("undo").state == "taken_back"
    assert bench.system.texts == BEFORE
    with bench.transactions.write() as connection:
        assert rollouts.thaw(connection)


def test_a_canary_waits_until_the_rest_may_go_on(bench: Bench) -> None:
    bench.begin(canary=2)
    assert bench.act("carry_out").state == "canary"
    assert bench.act("carry_out").state == "canary"
    assert bench.system.texts == {**BEFORE, "g0": AFTER["g0"], "g1": AFTER["g1"]}
    ledger = bench.ledger()
    with ledger.held():
        ledger.add(bench.rollout, "continued")
    assert bench.act("carry_out").state == "carried_out"
    assert bench.system.texts == AFTER


def test_an_executor_that_lies_is_found_out(bench: Bench) -> None:
    bench.system.on_write = lambda target: bench.system.texts["g1"].update(period="100000")
    standing = bench.act("carry_out")
    assert standing.state == "taken_back"
    assert bench.system.texts == BEFORE
