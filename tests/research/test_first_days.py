"""What days that were seen tell of the next ones, on days that were made up."""

from __future__ import annotations

import numpy as np

from research.first_days import errors, hourly_means

OFFICE = np.where((np.arange(24) >= 9) & (np.arange(24) < 17), 2.0, 0.5)


def test_hours_help_where_days_are_alike_and_hurt_less_where_the_class_counts_for_more() -> None:
    generator = np.random.default_rng(3)
    chance = 0.2 * generator.gamma(2.0, 0.5, (16, 24, 30))
    alike = errors(OFFICE[:, None] * chance, 24.0)
    assert alike[7][0] < alike[1][0] < 0.7
    assert alike[1][1] < 1
    trusting, careful = (errors(chance, prior)[1][0] for prior in (1.0, 48.0))
    assert careful < trusting


def test_windows_become_hours_of_whole_days() -> None:
    windows = np.repeat(np.arange(48.0), 12)[:, None]
    hours = hourly_means(np.concatenate([windows, windows[:5]]))
    assert hours.shape == (2, 24, 1)
    assert hours[1, 3, 0] == 27
