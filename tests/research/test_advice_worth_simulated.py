"""The simulated clouds that the reported worth of advice is tried on: shares by hand, and lives that differ by lot."""

from __future__ import annotations

import numpy as np
import pytest

from research.advice_worth import by_lot, fair, least_asked, most_free, simulated, trial


def test_cpus_are_shared_by_max_min() -> None:
    wanted = np.array([[1.0, 2.0, 5.0, 0.0], [1.0, 1.0, 1.0, 0.0], [4.0, 4.0, 4.0, 4.0]])
    assert fair(wanted, 6).tolist() == pytest.approx([3.0, np.inf, 1.5])


def test_lives_of_one_cloud_differ_only_in_who_asks() -> None:
    lives = [
        simulated(np.random.default_rng(1), np.random.default_rng(lot), least_asked, most_free, 0.9, 12)
        for lot in (2, 3)
    ]
    assert (lives[0].wanted == lives[1].wanted).all()
    assert (lives[0].followed != lives[1].followed).any()
    found = [trial(one) for one in lives]
    assert all(one.found.lower is not None and one.found.lower < one.drawn < (one.found.upper or 0) for one in found)


def test_nobody_is_told_a_difference_where_the_advice_is_a_lot() -> None:
    found = trial(simulated(np.random.default_rng(4), np.random.default_rng(5), by_lot, by_lot, 0.9, 12)).found
    assert found.lower is not None and found.upper is not None and found.lower < 0 < found.upper
