"""Scores on pages: the histogram, the mean with its level, and where the figures come from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from advisor.domain import NO_SCORES, HostMemory, ScorePoint, ScoreSummary, VmScore, codec
from api.web import chart, worth

OF = ScoreSummary.of((0, 1, 0, 3, 12), 84.6, 31.2, 10)


def test_a_histogram_has_a_bar_for_each_fifth_and_the_largest_fills_its_bar() -> None:
    pane = worth.score_pane(OF)
    assert pane is not None
    assert [(bar.name, bar.figure, bar.level, bar.length) for bar in pane.buckets] == [
        ("0-20", "0", "bad", 0.0),
        ("20-40", "1", "bad", 8.3),
        ("40-60", "0", "bad", 0.0),
        ("60-80", "3", "fair", 25.0),
        ("80-100", "12", "good", 100.0),
    ]
    assert (pane.mean, pane.lowest, pane.level, pane.instances) == ("85", "31", "good", 16)
    assert pane.charts == ()


def test_a_host_without_vms_has_no_pane() -> None:
    assert worth.score_pane(NO_SCORES) is None


@pytest.mark.parametrize(("score", "level"), [(100.0, "good"), (80.0, "good"), (79.9, "fair"), (59.9, "bad")])
def test_the_level_of_a_score_goes_by_its_bucket(score: float, level: str) -> None:
    assert worth.score_level(score) == level


def test_the_history_is_drawn_from_0_to_100_with_mean_and_lowest() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    history = [ScorePoint(**codec.columns(OF), time=begin + timedelta(minutes=5 * at)) for at in range(4)]
    pane = worth.score_pane(OF, history)
    assert pane is not None
    (chart,) = pane.charts
    assert [line.name for line in chart.lines] == ["mean", "lowest"]
    assert chart.top == "100"
    assert {(row.name, row.last) for row in chart.figures} == {("mean", "84.6"), ("lowest", "31.2")}


def test_the_factors_of_one_vm_say_what_was_measured() -> None:
    found = worth.score_in_words(VmScore("a", "h1", 57.0, "measured", 0.8, 0.95, 0.75))
    assert "CPU delivered 80 % (measured)" in found
    assert "stalls for memory 25 % of the time (measured)" in found
    assert "not measured" in worth.score_in_words(VmScore("a", "h1", 76.0, "predicted", 0.8, 0.95, None))


def test_a_host_that_swaps_is_not_shown_by_what_was_promised() -> None:
    assert chart.memory_bar(6200, 10_000).figure == "62 %"
    swapping = chart.memory_bar(6200, 10_000, HostMemory(stalled=22.0, swap_mb=900.0, swap_in_mb_s=4.0))
    assert (swapping.figure, swapping.level) == ("swaps", "bad")
    stalling = chart.memory_bar(6200, 10_000, HostMemory(stalled=4.0))
    assert (stalling.figure, stalling.level) == ("stalls 4 %", "fair")
    assert chart.memory_bar(6200, 10_000, HostMemory(stalled=0.2, swap_mb=900.0)).figure == "62 %"
