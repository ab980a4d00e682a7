"""The noise of both ways of measuring: equal time, undisturbed windows only, and one row for each member of a pair."""

from __future__ import annotations

import pytest

from lab.on_off.measure import OnOffRun, OnOffWindow
from research.on_off_noise import ALL_WAYS, DWELL_S, SECONDS, WAYS, plan, ratios, table


def test_all_ways_measure_each_state_equally_long() -> None:
    for way in ALL_WAYS:
        made = plan(way, 2, "seed")
        spent = {state: made.dwell_s * sum(one == state for _, one in made.order) for _, state in made.order}
        assert spent == pytest.approx(dict.fromkeys([(0,), (1,), (0, 1)], SECONDS))
    assert plan(WAYS[1], 2, "").dwell_s == DWELL_S


def test_ratios_leave_out_disturbed_windows() -> None:
    def window(state: tuple[int, ...], done: float, *, disturbed: bool = False) -> OnOffWindow:
        return OnOffWindow(0, state, 0.0, 0.1, (done, 3.0), (0, 0), (0.0, 0.0), disturbed)

    windows = (window((0,), 10), window((0, 1), 5), window((0, 1), 1, disturbed=True), window((1,), 0))
    run = OnOffRun("", 1.0, 1.0, ("a.1", "b.2"), ("", ""), windows, {}, 0.0, 0.0, {}, 0.0)
    assert ratios(run) == pytest.approx({"a.1": 0.5, "b.2": 1.0})


def test_the_table_has_a_row_for_each_member_and_leaves_out_what_is_too_seldom_measured() -> None:
    lines = [
        {"run": "same:a:b", "way": way, "repeat": n, "ratios": {"a.1": 0.5 + 0.01 * n * (way == WAYS[0]), "b.2": 1.0}}
        for way in ALL_WAYS
        for n in range(3)
    ]
    rows = table([*lines, {"run": "same:a:c", "way": WAYS[0], "repeat": 0, "ratios": {"c.2": 1.0}}])
    assert "| `same:a:b` | `a.1` | 0.500 | 0.500 | 0.010 | 0.000 | 0.000 | 0.000 | 3 |" in rows
    assert len(rows) == 5
