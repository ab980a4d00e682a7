"""The time grid with a clock that the test turns: rounds on time, late ones skipped and said, also after a break."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaign import Temporal, read_campaign
from lab.journal import Journal
from lab.rounds import Round
from lab.time_grid import TimeGrid
from tests.lab.lab_commands import TINY

BEGAN = 1_000_000.0


class TurnedClock:
    """A campaign of an hour with a round each ten minutes, begun at BEGAN; `now` is the time, `shown` what it said."""

    def __init__(self, directory: Path) -> None:
        self.now = BEGAN
        self.shown: list[str] = []
        self._directory = directory

    def grid(self) -> TimeGrid:
        """The grid as a lab has it that starts, or starts again."""
        journal = Journal(self._directory, read_campaign(TINY))
        return TimeGrid(Temporal(10.0, 1.0), journal, self.shown.append, lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(tmp_path: Path) -> TurnedClock:
    return TurnedClock(tmp_path)


def _step(number: int) -> Round:
    return Round(number, (), None, (number - 1) * 600.0)


def test_rounds_are_waited_for_from_the_first_ones_start_on(clock: TurnedClock) -> None:
    grid = clock.grid()
    assert grid.wait(_step(1), resumed=False)
    clock.now += 100  # the first round takes its time
    assert grid.wait(_step(2), resumed=False)
    assert clock.now == BEGAN + 600
    assert grid.end == BEGAN + 3600
    assert "round 2 begins at" in clock.shown[0]


def test_a_round_that_would_be_late_is_skipped_and_the_next_is_on_time(clock: TurnedClock) -> None:
    grid = clock.grid()
    assert grid.wait(_step(1), resumed=False)
    clock.now += 900  # half into the time of the second
    assert not grid.wait(_step(2), resumed=False)
    assert "round 2 is skipped: it was due 5.0 minutes ago" in clock.shown
    assert grid.wait(_step(3), resumed=False)
    assert clock.now == BEGAN + 1200


def test_a_little_late_is_on_time(clock: TurnedClock) -> None:
    grid = clock.grid()
    assert grid.wait(_step(1), resumed=False)
    clock.now += 650
    assert grid.wait(_step(2), resumed=False)
    assert clock.now == BEGAN + 650


def test_after_a_break_the_grid_is_the_same_and_a_begun_round_is_ended(clock: TurnedClock) -> None:
    assert clock.grid().wait(_step(1), resumed=False)
    clock.now += 500
    again = clock.grid()
    assert again.wait(_step(1), resumed=True)
    assert again.wait(_step(2), resumed=False)
    assert clock.now == BEGAN + 600
    clock.now += 5000
    assert not clock.grid().wait(_step(2), resumed=True)


def test_calibrations_have_no_time(clock: TurnedClock) -> None:
    assert clock.grid().wait(Round(0, ()), resumed=False)
    assert clock.now == BEGAN
