"""Plans with migrations: killed, refused, unanswered or too slow, each instance moves once or comes back, and no host
holds more than it has room for. The cloud is simulated."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from advisor.changes.controller import ChangeFailed
from advisor.domain import RolloutStanding
from advisor.errors import Conflict
from tests.advisor.changes.simulated_moves import AFTER, BEFORE, PLACES, PLAN, TAKES_S, THEN, WEIGHED, MovesBench
from tests.advisor.changes.test_controller import check_lines, events
from tests.examples import STRIDE, examples

SEED, KILLS = 46, examples(200)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> MovesBench:
    return MovesBench(tmp_path_factory.mktemp("moves"))


@pytest.fixture(autouse=True)
def begun(bench: MovesBench) -> None:
    bench.begin()


def judge(bench: MovesBench, standing: RolloutStanding) -> None:
    """The rollout is at its end as a whole, by the cloud's own account."""
    check_lines(standing)
    assert bench.cloud.broken == []
    if standing.state == "carried_out":
        assert bench.state() == AFTER
        assert max(bench.cloud.begun.values(), default=1) == 1
    else:
        assert (standing.state, bench.state()) == ("taken_back", BEFORE)
        for (name, there), times in bench.cloud.begun.items():
            assert times == 1, f"{name} went to {there} {times} times"
            assert there == PLACES[name] or bench.cloud.begun[name, PLACES[name]] == 1, f"{name} came back once"


def test_moves_and_settings_are_carried_out_in_order_and_taken_back_in_reverse(bench: MovesBench) -> None:
    judge(bench, bench.act("carry_out"))
    assert dict(bench.cloud.begun) == {("c", "h3"): 1, ("a", "h2"): 1, ("b", "h3"): 1}
    bench.cloud.begun.clear()
    standing = bench.act("undo")
    judge(bench, standing)
    assert list(bench.cloud.begun) == [("b", "h1"), ("a", "h1"), ("c", "h2")]
    assert [number for event, number in events(standing) if event == "undone"] == [4, 3, 2, 1, 0]


def test_an_instance_that_is_there_already_is_not_moved(bench: MovesBench) -> None:
    bench.cloud.places["c"] = "h3"
    assert bench.act("carry_out").state == "carried_out"
    assert ("c", "h3") not in bench.cloud.begun
    bench.act("undo")
    assert bench.cloud.places["c"] == "h3", "it was there before"


@pytest.mark.exhaustive
def test_a_kill_at_every_moment_of_a_plan_with_moves_loses_nothing_and_moves_nothing_twice(bench: MovesBench) -> None:
    number = 0
    for begin, (first, then, prepare) in enumerate((
        ("carry_out", "carry_out", ""), ("carry_out", "undo", ""), ("undo", "undo", "carry_out"),
        ("undo", "carry_out", "carry_out"),
    )):  # fmt: skip
        for at in itertools.count(1 + begin % STRIDE, STRIDE):
            bench.begin()
            if prepare:
                bench.act(prepare)
                bench.cloud.begun.clear()
            if not bench.killed(first, at):
                break
            number += 1
            standing = bench.standing()
            if standing.state == "approved" or (first == "undo" and standing.state == "carried_out"):
                continue  # nothing was begun
            standing = bench.act(then) if standing.state not in ("carried_out", "taken_back") else standing
            if standing.state == "carried_out" and then == "undo":
                standing = bench.act("undo")
            judge(bench, standing)
    assert number >= 150 // STRIDE


@pytest.mark.exhaustive
def test_kills_at_random_of_controllers_that_go_on_or_take_back(bench: MovesBench) -> None:
    """Each rollout is killed again and again, by a seed, while migrations go on or have not been answered."""
    draw, number = random.Random(SEED), 0
    while number < KILLS:
        bench.begin()
        while (standing := bench.standing()).state not in ("carried_out", "taken_back"):
            begun = standing.state not in ("planned", "approved")
            what = "undo" if begun and draw.random() < 0.2 else "carry_out"
            if draw.random() < 0.3:
                bench.cloud.settle()
            number += bench.killed(what, draw.randint(1, 40))
        judge(bench, standing)


@pytest.mark.parametrize("name", ["c", "a", "b"])
def test_a_move_that_is_refused_takes_back_what_was_done(bench: MovesBench, name: str) -> None:
    bench.cloud.refuses.add((name, THEN[name]))
    standing = bench.act("carry_out")
    judge(bench, standing)
    assert f"{THEN[name]} does not take {name}" in standing.why


def test_what_cannot_come_back_keeps_the_room_of_all_hosts(bench: MovesBench) -> None:
    """a does not come back, so c stays as well: on h2 there is no room for both."""
    bench.act("carry_out")
    bench.cloud.refuses.add(("a", "h1"))
    standing = bench.act("undo")
    assert standing.state == "stopped"
    assert standing.changes[2].state == "left"
    assert bench.cloud.broken == []
    assert bench.cloud.places == {"a": "h2", "b": "h1", "c": "h3", "d": "h2"}
    bench.cloud.refuses.clear()
    judge_all_back = bench.act("undo")
    assert (judge_all_back.state, bench.state()) == ("taken_back", BEFORE)


def test_an_answer_that_is_lost_is_no_second_migration(bench: MovesBench) -> None:
    def lose(name: str) -> None:
        raise ChangeFailed("Nova: HTTP 500")

    bench.cloud.lost = lose
    judge(bench, bench.act("carry_out"))
    assert bench.standing().state == "carried_out"


def test_a_system_that_is_away_for_a_minute_is_waited_for(bench: MovesBench) -> None:
    def away(what: str) -> None:
        if what == "place" and 40 <= bench.cloud.now % 100 < 90:
            raise ChangeFailed("no answer")

    bench.cloud.answers = away
    judge(bench, bench.act("carry_out"))
    assert bench.standing().state == "carried_out"


def test_a_system_that_stays_away_leaves_a_stop_and_the_undo_reads_the_truth_when_it_is_back(
    bench: MovesBench,
) -> None:
    def away(what: str) -> None:
        if bench.cloud.begun:
            raise ChangeFailed("no answer")

    bench.cloud.answers = away
    standing = bench.act("carry_out")
    assert standing.state == "stopped"
    check_lines(standing)
    bench.cloud.answers = lambda what: None
    bench.cloud.settle()
    assert bench.cloud.places["c"] == "h3", "it went there meanwhile"
    judge(bench, bench.act("undo"))


def test_a_migration_that_does_not_end_is_called_off(bench: MovesBench) -> None:
    bench.patience_s = TAKES_S / 3
    standing = bench.act("carry_out")
    bench.patience_s = 300.0
    assert bench.cloud.called_off == ["c"]
    assert (standing.state, bench.state()) == ("taken_back", BEFORE)
    assert dict(bench.cloud.begun) == {("c", "h3"): 1}


def test_an_instance_in_another_state_or_on_another_host_is_left_alone(bench: MovesBench) -> None:
    bench.cloud.states["a"] = "it is ERROR"
    standing = bench.act("carry_out")
    judge(bench, standing)
    assert "it is ERROR" in standing.why
    bench.begin()
    bench.cloud.places["b"] = "h2"
    bench.cloud.places["d"] = "h3"
    standing = bench.act("carry_out")
    assert standing.state == "taken_back"
    assert "host = h2" in standing.why
    assert bench.cloud.places == {**PLACES, "b": "h2", "d": "h3"}


def test_who_another_program_moved_since_is_not_moved_back(bench: MovesBench) -> None:
    bench.act("carry_out")
    bench.cloud.places["b"] = "h2"
    standing = bench.act("undo")
    assert standing.state == "stopped"
    assert bench.cloud.places["b"] == "h2"
    assert "another program set host = h2" in standing.changes[4].why


def test_an_instance_that_vanishes_while_it_moves_leaves_nothing_to_take_back(bench: MovesBench) -> None:
    def vanish(name: str) -> None:
        if name == "a":
            del bench.cloud.places[name]

    bench.cloud.lost = vanish
    standing = bench.act("carry_out")
    assert standing.state == "taken_back"
    assert bench.state() == ({name: host for name, host in PLACES.items() if name != "a"}, BEFORE[1])
    assert "gone" in standing.changes[2].why


def test_a_clock_that_steps_back_while_one_moves_changes_nothing(bench: MovesBench) -> None:
    bench.cloud.lost = lambda name: bench.clock.forward(-7200.0)
    judge(bench, bench.act("carry_out"))
    assert bench.standing().state == "carried_out"


def test_the_lease_is_kept_while_a_migration_takes_its_time(bench: MovesBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an hour passes for the lease while one migration runs; no other controller takes over."""
    monkeypatch.setattr("advisor.changes.controller.BEAT_S", 0.02)
    waited: list[int] = []

    def wait(name: str) -> None:
        import time

        for _ in range(18):
            bench.clock.forward(100.0)
            time.sleep(0.1)
            with pytest.raises(Conflict):
                bench.act("undo")
            waited.append(1)

    bench.cloud.lost = lambda name: wait(name) if name == "a" else None
    judge(bench, bench.act("carry_out"))
    assert len(waited) == 18


def test_a_rollout_that_keeps_what_was_done_stops_at_a_failed_step_and_tries_it_again(tmp_path: Path) -> None:
    bench = MovesBench(tmp_path, keeps=True)
    bench.cloud.refuses.add(("a", "h2"))
    standing = bench.act("carry_out")
    assert standing.state == "stopped"
    assert "what was done stays" in standing.why
    assert bench.cloud.places == {**PLACES, "c": "h3"}
    assert bench.system.texts["d"] == WEIGHED["d"]
    bench.cloud.refuses.clear()
    judge(bench, bench.act("carry_out"))
    assert bench.standing().state == "carried_out"
    for at in range(1, 60, 2):
        bench.begin()
        bench.cloud.refuses.add(("b", "h3"))
        killed = bench.killed("carry_out", at)
        bench.cloud.refuses.clear()
        if killed:
            standing = bench.standing()
            for _ in range(2):  # killed between the failed step and the stop, the first one only stops
                standing = standing if standing.state == "carried_out" else bench.act("carry_out")
            judge(bench, standing)
            assert standing.state == "carried_out"
    bench.begin()
    bench.cloud.refuses.add(("a", "h2"))
    bench.act("carry_out")
    bench.cloud.refuses.clear()
    judge(bench, bench.act("undo"))
    with pytest.raises(Conflict):
        bench.act("carry_out")


def test_every_change_of_the_plan_is_a_setting_that_can_be_read(bench: MovesBench) -> None:
    assert [change.kind for change in PLAN] == ["weight", "move", "move", "weight", "move"]
