"""Value of information by simulation: against the closed form, and what a plan may never do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import erf, exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats, Ints
from models.probe_plan import SETTLED, Z90, MeasurementPlan, UncertainRatios, plan
from tests.examples import examples


@dataclass(frozen=True)
class Choice:
    """Takes the option with the highest expected ratio; each option is worth the smallest of its ratios."""

    uncertain: UncertainRatios
    options: tuple[tuple[int, ...], ...]  # rows of each

    def worth(self, ratios: Floats) -> Floats:
        return np.stack([ratios[:, list(rows)].min(axis=1) for rows in self.options], axis=1)

    def choose(self, expected: Floats, lower: Floats) -> Ints:
        return np.asarray(self.worth(expected).argmax(axis=1))


def question(options: Sequence[Sequence[tuple[float, float, int | None]]]) -> Choice:
    """Options as lists of (expected, standard deviation of the logarithm, error)."""
    rows = [row for option in options for row in option]
    errors = sorted({error for _, _, error in rows if error is not None})
    weights = np.array([[float(error == one) for one in errors] for _, _, error in rows]).reshape(len(rows), -1)
    expected, spread = (np.array([row[at] for row in rows], dtype=float) for at in (0, 1))
    ends = expected * np.exp(-Z90 * spread), expected * np.exp(Z90 * spread)
    starts = np.cumsum([0, *(len(option) for option in options)])
    places = tuple(tuple(range(a, b)) for a, b in pairwise(starts))
    return Choice(UncertainRatios(expected, *ends, np.array(errors, dtype=np.int64), weights), places)


def planned(
    questions: Sequence[Choice], budget: float = 100.0, pairs: Sequence[int] | None = None, **more: Any
) -> MeasurementPlan:
    """A plan in which each error is a pair of its own and costs 1."""
    count = 1 + max(int(error) for one in questions for error in one.uncertain.errors)
    return plan(questions, np.array(pairs if pairs is not None else range(count)), lambda *_: 1.0, budget, **more)


def normal(value: float) -> float:
    return (1 + erf(value / sqrt(2))) / 2


@pytest.mark.parametrize(("certain", "median", "spread"), [(0.8, 0.7, 0.2), (0.8, 0.8, 0.1), (0.5, 0.6, 0.3)])
def test_the_gain_of_one_measurement_is_the_closed_form_of_a_lognormal_choice(
    certain: float, median: float, spread: float
) -> None:
    found = planned([question([[(certain, 0.0, None)], [(median, spread, 0)]])], draws=40_000)
    mean, at = median * exp(spread**2 / 2), log(median / certain) / spread
    better = mean * normal(at + spread) - certain * normal(at)  # E[max(other - certain, 0)], Black and Scholes (1973)
    wanted = (
        better if median <= certain else better - (mean - certain)
    )  # today's choice is the one with the better median
    assert found.steps[0].gain == pytest.approx(wanted, rel=0.03, abs=2e-4)
    assert found.steps[0].probability == pytest.approx(normal(-abs(at)), abs=0.01)
    assert found.doubt.regret_after[0] == pytest.approx(0.0, abs=1e-12)


def test_a_pair_is_measured_for_all_the_choices_that_it_decides_together() -> None:
    shared = [question([[(0.8, 0.0, None)], [(0.78, 0.15, 0)]]) for _ in range(3)]
    alone = question([[(0.8, 0.0, None)], [(0.79, 0.2, 1)]])
    assert [step.pair for step in planned([*shared, alone]).steps] == [0, 1]
    assert [step.pair for step in planned([shared[0], alone]).steps] == [1, 0]


def test_what_another_measurement_has_decided_is_not_measured_again() -> None:
    """Either pair would show whether the first option is worth leaving; after one of them little is left to gain."""
    one = question([[(0.8, 0.0, None)], [(0.3, 0.2, 0)], [(0.3, 0.2, 1)], [(0.81, 0.3, 2)]])
    steps = planned([one]).steps
    assert [step.pair for step in steps] == [2]


def test_gains_of_equal_pairs_diminish() -> None:
    options: list[list[tuple[float, float, int | None]]] = [[(0.8, 0.0, None)]]
    options += [[(0.75, 0.15, error)] for error in range(4)]
    gains = [step.gain for step in planned([question(options)]).steps]
    assert len(gains) > 2
    assert gains[1] < gains[0]
    assert gains[2] < gains[1]


def test_pairs_that_only_help_together_are_found() -> None:
    """The other option is better only if both neighbours turn out well, so neither measurement alone turns anything."""
    spread = 0.25
    one = question([[(0.9, 0.0, None)], [(0.8, spread, 0), (0.8, spread, 1)]])
    found = planned([one])
    assert {step.pair for step in found.steps} == {0, 1}
    assert found.doubt.regret_before[0] > 0.002
    assert found.doubt.regret_after[0] == 0.0


def test_nothing_worth_measuring_is_an_answer() -> None:
    found = planned([question([[(0.95, 0.01, 0)], [(0.5, 0.02, 1)]])])
    assert (found.steps, found.ended) == ((), "settled")
    assert found.doubt.probability_before[0] < SETTLED


def test_a_doubt_that_costs_nothing_is_no_reason_to_measure() -> None:
    found = planned([question([[(0.9, 1e-4, 0)], [(0.9, 1e-4, 1)]])])
    assert (found.steps, found.ended) == ((), "no gain")


def test_what_cannot_be_measured_is_not_proposed() -> None:
    found = planned([question([[(0.8, 0.2, 0)], [(0.79, 0.2, 1)]])], pairs=[-1, -1])
    assert found.steps == ()


def test_the_dearer_of_two_equal_pairs_waits() -> None:
    options: list[list[tuple[float, float, int | None]]] = [[(0.8, 0.0, None)], [(0.75, 0.15, 0)], [(0.75, 0.15, 1)]]
    found = plan([question(options)], np.array([0, 1]), lambda _, pair: 5.0 if pair == 0 else 1.0, 100.0)
    assert [step.pair for step in found.steps] == [1, 0]


def test_no_questions_are_no_plan() -> None:
    found = plan([], np.zeros(0, dtype=np.int64), lambda *_: 1.0, 10.0)
    assert (found.steps, found.ended) == ((), "settled")


rows = st.tuples(st.floats(0.2, 1.0), st.floats(0.0, 0.4), st.integers(0, 5))
choices = st.lists(st.lists(rows, min_size=1, max_size=3), min_size=2, max_size=4).map(question)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(choices, min_size=1, max_size=3), st.integers(0, 5))
def test_a_plan_keeps_its_budget_repeats_nothing_and_leaves_no_more_regret_than_there_was(
    questions: list[Choice], budget: int
) -> None:
    found = plan(questions, np.arange(6), lambda *_: 1.0, float(budget), draws=256, seed=3)
    pairs = [step.pair for step in found.steps]
    assert len(pairs) <= budget
    assert len(set(pairs)) == len(pairs)
    assert found.doubt.regret_after.sum() <= found.doubt.regret_before.sum() + 1e-12
    assert all(turn.before != turn.after for step in found.steps for turn in step.turns)
    again = plan(questions, np.arange(6), lambda *_: 1.0, float(budget), draws=256, seed=3)
    assert again.steps == found.steps


@settings(max_examples=examples(40), deadline=None)
@given(st.floats(0.2, 1.2), st.floats(0.01, 0.5), st.floats(0.0, 0.3))
def test_ratios_drawn_have_the_predicted_median_and_ends(expected: float, down: float, up: float) -> None:
    band = expected, expected * exp(-down), expected * exp(up)
    median, lower, upper = (np.array([end]) for end in band)
    one = UncertainRatios(median, lower, upper, np.array([0, 1]), np.array([[0.6, 0.8]]))
    assert one.at(np.array([[0.0], [-Z90], [Z90]]))[:, 0] == pytest.approx(band)
    drawn = np.array([[0.0, 0.0]])
    assert [float(end[0, 0]) for end in one.known(drawn, np.array([False, False]))] == pytest.approx(band[:2])
    known, lower = one.known(np.array([[0.3, -1.0]]), np.array([True, True]))
    assert known == lower
    half = one.known(drawn, np.array([True, False]))[1][0, 0]
    assert band[1] < half < band[0]
