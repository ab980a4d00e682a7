"""Weeks in which containers move: what a window delivers, what a move costs, and what balancing averages does."""

from __future__ import annotations

import numpy as np
import pytest

from research.arena import weeks
from research.arena.evenings import HOST_CPUS, HOSTS, MOST
from research.arena.weeks import A_DAY, Week, balance, by_averages


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weeks, "DAYS", 1)


def test_a_week_is_the_same_again_and_fits_its_hosts() -> None:
    one, other = Week.draw(1), Week.draw(1)
    assert np.array_equal(one.demand, other.demand)
    assert np.array_equal(one.host_of, other.host_of)
    assert np.bincount(one.host_of, minlength=HOSTS).max() <= MOST
    assert not np.array_equal(one.demand, Week.draw(2).demand)


def test_no_host_does_more_than_its_cpus_and_a_full_one_delivers_less() -> None:
    week, least = Week.draw(1), np.ones(HOSTS)
    for _ in range(A_DAY):
        run, delivered = week.step()
        assert np.bincount(week.host_of, weights=run, minlength=HOSTS).max() <= HOST_CPUS + 1e-9
        np.minimum.at(least, week.host_of, delivered)
    most = np.max([np.bincount(week.host_of, weights=row, minlength=HOSTS) for row in week.demand[:A_DAY]], axis=0)
    assert ((least == 1.0) == (most <= HOST_CPUS)).all()
    assert 0 < (least < 1.0).sum() < HOSTS
    assert week.delivered == [], "the first day does not count"


def test_a_move_is_a_contended_window_of_who_moves() -> None:
    week = Week.draw(1)
    week.demand[:] = 0.01
    while not week.over:
        if week.at == A_DAY + 5:
            week.move(0, (int(week.host_of[0]) + 1) % HOSTS)
        week.step()
    contended = (np.array(week.delivered) < weeks.CONTENDED).sum(axis=0)
    assert contended[0] == 1
    assert contended[1:].sum() == 0
    assert week.judged()["moves"] == 1


def test_balancing_brings_the_averages_of_hosts_together() -> None:
    week = Week.draw(1)
    used = [week.step()[0] for _ in range(A_DAY)]

    def spread() -> float:
        load = np.bincount(week.host_of, weights=np.mean(used, axis=0), minlength=HOSTS)
        return float(np.ptp(load))

    before = spread()
    balance(week, used)
    assert spread() < 0.5 * before
    assert 0 < week.moves <= 20
    moved = week.moves
    balance(week, used, most=0)
    assert week.moves == moved


def test_who_never_looks_never_moves() -> None:
    assert by_averages(1, 10**9, 1).moves == 0
