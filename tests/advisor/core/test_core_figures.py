"""Figures are shown with the digits that are known, and in the order that they have."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.figures import decimals, score_figure, significant

finite = st.floats(min_value=-1e9, max_value=1e9)


@pytest.mark.parametrize(
    ("value", "reported"),
    [(0.987654321, 0.9877), (12.34567, 12.35), (0.000123456, 0.0001235), (1.00000001, 1.0), (0, 0)],
)
def test_a_ratio_has_four_significant_digits(value: float, reported: float) -> None:
    assert significant(value) == reported


def test_a_score_keeps_four_decimals_however_large_it_is() -> None:
    assert (score_figure(1487.234567), score_figure(-0.01234567)) == (1487.2346, -0.0123)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_not_reported(value: float) -> None:
    assert (significant(value), score_figure(value), decimals(value, 1)) == (None, None, None)


@given(finite, finite)
def test_rounding_turns_no_order_round(one: float, other: float) -> None:
    low, high = sorted((one, other))
    for reported in (significant, score_figure):
        assert (reported(low) or 0.0) <= (reported(high) or 0.0)


@given(finite)
def test_an_answer_that_was_given_is_given_the_same_again(value: float) -> None:
    reported = significant(value)
    assert reported is not None and significant(reported) == reported
