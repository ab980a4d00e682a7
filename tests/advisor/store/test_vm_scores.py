"""Scores of VMs over time: each window in its place, whichever is stored first, and days that are forgotten."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.store import scores
from advisor.store.engine import Database
from advisor.store.scores import Mark
from tests.examples import examples

DAY = 86_400.0
MIDNIGHT = 20_000 * DAY
marks = st.tuples(st.floats(0, 100), st.booleans())


@settings(max_examples=examples(30), deadline=None)
@given(st.dictionaries(st.tuples(st.sampled_from(["a", "b"]), st.integers(-300, 300)), marks, max_size=12), st.data())
def test_what_is_stored_is_read_back_whatever_the_order(
    database: Database, found: dict[tuple[str, int], Mark], data: st.DataObject
) -> None:
    with database.write() as connection:
        scores.expire_vms(connection, MIDNIGHT + 100 * DAY)
        for name, window in data.draw(st.permutations(sorted(found))):
            scores.put_vms(connection, MIDNIGHT + 300 * window, {name: found[name, window]})
        for name in ("a", "b"):
            kept = scores.history_of_vm(connection, name, MIDNIGHT - 2 * DAY, MIDNIGHT + 2 * DAY)
            mine = sorted((window, mark) for (other, window), mark in found.items() if other == name)
            assert [time_s for time_s, _ in kept] == [MIDNIGHT + 300 * window for window, _ in mine]
            for (_, (score, measured)), (_, (given_score, given_measured)) in zip(kept, mine, strict=True):
                assert measured == given_measured
                assert abs(score - given_score) <= 0.5


def test_a_window_that_is_stored_again_takes_the_place_of_the_first_alone(database: Database) -> None:
    with database.write() as connection:
        for window, score in ((1, 10.0), (2, 20.0), (3, 30.0), (2, 99.0)):
            scores.put_vms(connection, MIDNIGHT + 300 * window, {"a": (score, True)})
        kept = scores.history_of_vm(connection, "a", MIDNIGHT, MIDNIGHT + DAY)
        assert [mark[0] for _, mark in kept] == [10.0, 99.0, 30.0]


def test_windows_before_now_are_counted_as_long_as_they_are_measured_and_low(database: Database) -> None:
    """`long` is low on both sides of midnight, `gap` lacks a window, `mixed` is predicted in between."""
    with database.write() as connection:
        for window in range(-4, 3):
            low: dict[str, Mark] = {"long": (59.4, True), "mixed": (10.0, window != 0), "fine": (60.0, True)}
            scores.put_vms(connection, MIDNIGHT + 300 * window, low | ({} if window == -1 else {"gap": (1.0, True)}))
        now_s = MIDNIGHT + 600
        names = ("long", "gap", "mixed", "fine", "nowhere")
        assert scores.lasting(connection, names, now_s, 60.0) == {"long": 7, "gap": 3, "mixed": 2, "fine": 0}
        assert scores.low_at(connection, MIDNIGHT, 60.0) == ["gap", "long"]
        assert scores.low_at(connection, MIDNIGHT - 300, 60.0) == ["long", "mixed"]


def test_days_are_forgotten_whole(database: Database) -> None:
    with database.write() as connection:
        for day in range(4):
            scores.put_vms(connection, MIDNIGHT + day * DAY + 300, {"a": (50.0, False)})
        scores.expire_vms(connection, MIDNIGHT + 2.5 * DAY)
        kept = scores.history_of_vm(connection, "a", 0.0, MIDNIGHT + 9 * DAY)
        assert [time_s for time_s, _ in kept] == [MIDNIGHT + day * DAY + 300 for day in (2, 3)]
