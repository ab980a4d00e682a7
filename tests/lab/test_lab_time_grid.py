"""The time grid with a clock that the test turns: rounds on time, late ones skipped and said, also after a break."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaign import Campaign, Temporal, read_campaign
from lab.journal import Journal
from lab.rounds import Round
from lab.time_grid import TimeGrid

TINY = Path(__file__).with_name("tiny.yaml")
BEGAN = 1_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def campaign() -> Campaign:
    return read_campaign(TINY)


def _grid(directory: Path, campaign: Campaign, clock: Clock, said: list[str]) -> TimeGrid:
    journal = Journal(directory, campaign)
    return TimeGrid(Temporal(10.0, 1.0), journal, said.append, lambda: clock.now, clock.sleep)


def _step(number: int) -> Round:
    return Round(number, (), None, (number - 1) * 600.0)


def test_rounds_are_waited_for_from_the_first_ones_start_on(tmp_path: Path, campaign: Campaign) -> None:
    clock, said = Clock(), list[str]()
    grid = _grid(tmp_path, campaign, clock, said)
    assert grid.wait(_step(1), resumed=False)
    clock.now += 100  # the first round takes its time
    assert grid.wait(_step(2), resumed=False)
    assert clock.now == BEGAN + 600
    assert grid.end == BEGAN + 3600
    assert "round 2 begins at" in said[0]


def test_a_round_that_would_be_late_is_skipped_and_the_next_is_on_time(tmp_path: Path, campaign: Campaign) -> None:
    clock, said = Clock(), list[str]()
    grid = _grid(tmp_path, campaign, clock, said)
    assert grid.wait(_step(1), resumed=False)
    clock.now += 900  # half into the time of the second
    assert not grid.wait(_step(2), resumed=False)
    assert "round 2 is skipped: it was due 5.0 minutes ago" in said
    assert grid.wait(_step(3), resumed=False)
    assert clock.now == BEGAN + 1200


def test_a_little_late_is_on_time(tmp_path: Path, campaign: Campaign) -> None:
    clock, said = Clock(), list[str]()
    grid = _grid(tmp_path, campaign, clock, said)
    assert grid.wait(_step(1), resumed=False)
    clock.now += 650
    assert grid.wait(_step(2), resumed=False)
    assert clock.now == BEGAN + 650


def test_after_a_break_the_grid_is_the_same_and_a_begun_round_is_ended(tmp_path: Path, campaign: Campaign) -> None:
    clock, said = Clock(), list[str]()
    assert _grid(tmp_path, campaign, clock, said).wait(_step(1), resumed=False)
    clock.now += 500
    again = _grid(tmp_path, campaign, clock, said)
    assert again.wait(_step(1), resumed=True)
    assert again.wait(_step(2), resumed=False)
    assert clock.now == BEGAN + 600
    clock.now += 5000
    assert not _grid(tmp_path, campaign, clock, said).wait(_step(2), resumed=True)


def test_calibrations_have_no_time(tmp_path: Path, campaign: Campaign) -> None:
    clock = Clock()
    assert _grid(tmp_path, campaign, clock, []).wait(Round(0, ()), resumed=False)
    assert clock.now == BEGAN
