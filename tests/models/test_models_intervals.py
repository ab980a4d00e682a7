"""Conformal intervals: the quantile as it is defined, and coverage that holds for workloads nobody has seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.intervals import FEW, FLOOR, OUTSIDE_FACTOR, Calibration, calibrate, contention, finite_quantile

SCORES = st.lists(st.floats(0, 100), min_size=1, max_size=60)


@settings(max_examples=100, deadline=None)
@given(SCORES, st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_the_quantile_is_the_ceiling_th_smallest_score(scores: list[float], level: float) -> None:
    rank = math.ceil((len(scores) + 1) * level)
    found = finite_quantile(np.array(scores), level)
    if rank <= len(scores):
        assert found == sorted(scores)[rank - 1]
        assert sum(score <= found for score in scores) >= rank
    else:
        assert found == max(scores) * 1.5


def test_a_nine_in_ten_quantile_needs_nine_scores() -> None:
    assert finite_quantile(np.arange(1.0, 10.0)) == 9.0
    assert finite_quantile(np.arange(1.0, 9.0)) == 12.0
    assert finite_quantile(np.arange(1.0, 20.0)) == 18.0


def test_without_scores_the_interval_is_wide() -> None:
    half = calibrate(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool)).half_width(
        np.array([1.0, 0.5]), np.array([True, False]), np.array([False, False])
    )
    assert (np.exp(half) > 2).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 120), st.floats(0, 1), st.integers(0, 99))
def test_what_is_known_is_never_less_certain_than_what_is_not(rows: int, share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    base, error = random.uniform(0.05, 1, rows), random.normal(0, 0.2, rows)
    fitted = calibrate(base, error, random.random(rows) < share)
    asked = np.linspace(0.01, 1, 50)
    no, yes = np.zeros(50, dtype=bool), np.ones(50, dtype=bool)
    assert (fitted.half_width(asked, yes, no) <= fitted.half_width(asked, no, no)).all()
    np.testing.assert_allclose(fitted.half_width(asked, no, yes), OUTSIDE_FACTOR * fitted.half_width(asked, no, no))
    assert (fitted.half_width(asked, no, no) >= 0).all()


def test_perfect_predictions_still_have_an_interval_where_they_were_judged() -> None:
    fitted = calibrate(np.ones(50), np.zeros(50), np.zeros(50, dtype=bool))
    assert min(fitted.scales) >= FLOOR


def test_few_scores_of_a_kind_are_judged_together_with_the_rest() -> None:
    base, error = np.full(100, 0.5), np.concatenate([np.full(FEW - 1, 0.01), np.full(101 - FEW, 0.3)])
    fitted = calibrate(base, error, np.arange(100) < FEW - 1)
    assert fitted.quantile["known"] == fitted.quantile["unknown"]
    fitted = calibrate(base, error, np.arange(100) < FEW)
    assert fitted.quantile["known"] < fitted.quantile["unknown"]


def noisy_workloads(random: np.random.Generator, workloads: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Base ratios and errors of log ratio: every workload is off in its own way, and more so where it is contended."""
    base = random.uniform(0.1, 1.0, (workloads, rows))
    bias = random.normal(0, 1, (workloads, 1))
    error = (0.03 + 0.25 * contention(base)) * (0.7 * bias + 0.7 * random.normal(0, 1, (workloads, rows)))
    return base.ravel(), error.ravel()


@pytest.mark.parametrize("seed", range(4))
def test_nine_in_ten_results_of_left_out_workloads_lie_inside(seed: int) -> None:
    random = np.random.default_rng(seed)
    base, error = noisy_workloads(random, 150, 8)
    fitted = calibrate(base, error, np.zeros(len(base), dtype=bool))
    asked, missed = noisy_workloads(random, 400, 8)
    off = np.zeros(len(asked), dtype=bool)
    inside = np.abs(missed) <= fitted.half_width(asked, off, off)
    assert 0.85 <= inside.mean() <= 0.95
    hard = contention(asked) > np.quantile(contention(asked), 2 / 3)
    assert 0.82 <= inside[hard].mean() <= 0.98
    assert 0.82 <= inside[~hard].mean() <= 0.98


def test_intervals_are_wider_where_the_errors_were_larger() -> None:
    base, error = noisy_workloads(np.random.default_rng(0), 200, 8)
    fitted = calibrate(base, error, np.zeros(len(base), dtype=bool))
    no = np.zeros(2, dtype=bool)
    quiet, busy = fitted.half_width(np.array([0.98, 0.15]), no, no)
    assert busy > 2 * quiet


def test_a_calibration_survives_json() -> None:
    base, error = noisy_workloads(np.random.default_rng(1), 20, 5)
    fitted = calibrate(base, error, np.arange(100) % 2 == 0)
    assert Calibration.from_json(fitted.to_json()) == fitted
    with pytest.raises(KeyError):
        Calibration.from_json({"quantile": {"known": 1.0}})
