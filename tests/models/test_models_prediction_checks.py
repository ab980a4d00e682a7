"""Figures of predicted against observed, what they rest on, and how far intervals are widened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from models.evaluation.prediction_checks import (
    COVERAGE,
    FEW,
    STRANGEST,
    WIDEST,
    WINDOW,
    chance_of_coverage,
    coverage_bounds,
    covered,
    figures,
    is_short,
    residual,
    widen,
    widening,
)
from tests.models.checked_rows import HALF, honest, one, series

ratios = st.floats(0.01, 2.0)


@given(ratios, st.floats(0.011, 1.0), st.floats(0.011, 1.0), st.floats(0.0, 3.0))
def test_a_residual_within_one_is_a_measurement_inside_the_interval(
    expected: float, below: float, above: float, observed: float
) -> None:
    row = one(expected=expected, lower=expected * np.exp(-below), upper=expected * np.exp(above), observed=observed)
    assume(abs(abs(residual(row)) - 1) > 1e-9)
    assert covered(row) == (abs(residual(row)) < 1)


def test_nothing_measured_at_all_is_far_off_and_still_a_number() -> None:
    assert residual(one(observed=0.0)) == -STRANGEST
    assert residual(one(observed=1e9)) == STRANGEST


def test_an_interval_without_width_does_not_blow_up_what_is_noise() -> None:
    row = replace(one(), expected=1.0, lower=1.0, upper=1.0, observed=1.005)
    assert residual(row) == pytest.approx(0.5, abs=0.01)


def test_figures_count_by_hand() -> None:
    rows = [
        one(0, expected=0.8, lower=0.7, upper=0.9, observed=0.85),
        one(0, expected=0.8, lower=0.7, upper=0.9, observed=0.60, instance="b", outside=True),
        one(1, expected=0.5, lower=0.4, upper=0.6, observed=0.55),
        one(2, expected=0.5, lower=0.4, upper=0.6, observed=0.40),
    ]
    found = figures(rows)
    assert (found.rows, found.scenes, found.coverage, found.outside) == (4, 3, 0.75, 0.25)
    assert found.error == pytest.approx((0.05 + 0.20 + 0.05 + 0.10) / 4)
    assert found.bias == pytest.approx((0.05 - 0.20 + 0.05 - 0.10) / 4)
    assert (found.since, found.until) == (rows[0].time, rows[-1].time)


@given(st.integers(1, 400), st.data())
def test_bounds_of_coverage_are_clopper_and_pearsons(count: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, count))
    exact = binomtest(hits, count).proportion_ci(0.9, method="exact")
    assert coverage_bounds(hits / count, count) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert chance_of_coverage(hits / count, count) == pytest.approx(binom.cdf(hits, count, 0.9), abs=1e-9)


def test_few_scenes_are_never_called_short_however_many_rows_they_have() -> None:
    rows = [one(number // 10, off=3.0, instance=str(number % 10)) for number in range((FEW - 1) * 10)]
    assert not is_short(rows)
    assert widening(rows) == 1.0
    assert is_short([*rows, one(FEW - 1, off=3.0)])


@pytest.mark.parametrize("heavy", [False, True])
def test_a_model_that_keeps_its_promise_is_hardly_ever_widened(heavy: bool) -> None:
    factors = [widening(series(honest(400, seed, heavy=heavy))) for seed in range(40)]
    assert sum(factor > 1 for factor in factors) <= 5  # one-sided test at 5 %


@pytest.mark.parametrize("times", [1.5, 2.0, 3.0])
def test_widened_intervals_cover_what_the_models_own_did_not(times: float) -> None:
    """Residuals are `times` as large as promised: the factor learned so far is used on 200 further scenes."""
    missed = []
    for seed in range(8):
        offs = honest(600, seed) * times
        factor = widening(series(offs[:400]))
        missed.append(np.mean(np.abs(offs[400:]) > factor))
        assert factor == pytest.approx(times, rel=0.35)
    assert 0.05 <= np.mean(missed) <= 0.13


def test_errors_that_keep_growing_are_widened_beyond_what_was_seen_of_late() -> None:
    """The level gives way while intervals miss too often: a quantile of the past alone would always come too late."""
    offs = np.linspace(0.5, 3.0, 400) * np.resize([1.0, -1.0], 400)
    of_late = sorted(np.abs(offs[-WINDOW:]))[int(np.ceil((WINDOW + 1) * COVERAGE)) - 1]
    assert widening(series(offs)) > 1.02 * of_late


def test_widening_follows_a_change_and_ends_with_it() -> None:
    offs = np.concatenate([honest(200, 1), honest(120, 2) * 2.5, honest(400, 3)])
    assert widening(series(offs[:200])) == 1.0
    assert widening(series(offs[:320])) > 1.5
    assert widening(series(offs)[-400:]) == 1.0


@given(st.lists(st.floats(-50, 50), max_size=120))
def test_the_factor_is_between_one_and_the_widest(offs: list[float]) -> None:
    assert 1.0 <= widening(series(offs)) <= WIDEST


@given(ratios, st.floats(0.0, 2.0), st.floats(1.0, WIDEST))
def test_widening_grows_the_half_width_and_can_be_taken_back(expected: float, half: float, factor: float) -> None:
    for edge in (expected * np.exp(-half), expected * np.exp(half)):
        wide = widen(expected, edge, factor)
        assert np.log(wide / expected) == pytest.approx(np.log(edge / expected) * factor, abs=1e-9)
        assert widen(expected, wide, 1 / factor) == pytest.approx(edge, rel=1e-9)


def test_what_has_no_logarithm_is_not_widened() -> None:
    assert widen(0.5, float("inf"), 2.0) == float("inf")
    assert widen(0.5, 0.0, 2.0) == 0.0
    assert widen(0.5, HALF, 1.0) == HALF
