"""The gate: what is worse than noise allows is refused, what is not passes, and it says what it compared."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.evaluation import matched_outcomes
from models.evaluation.gate import NEGLIGIBLE, gate
from models.learning.held_out import HeldOutPredictions
from tests.examples import examples
from tests.models.held_out_cases import table


def test_a_model_better_than_prior_and_active_passes_with_its_numbers() -> None:
    verdict = gate([table(0.02)], [table(0.05, seed=1)], against="m-old")
    (figures,) = verdict.figures
    assert verdict.passed
    assert verdict.against == "m-old"
    assert figures.rows == 90
    assert figures.pairs == 30
    assert figures.error == pytest.approx(0.02, abs=0.003)
    assert figures.analytic.other == pytest.approx(0.1, abs=0.001)
    assert figures.active is not None
    assert figures.active.other == pytest.approx(0.05, abs=0.003)
    assert figures.active.low <= figures.active.difference <= figures.active.high < 0
    assert figures.coverage > 0.95
    assert "mean error 0.02" in verdict.reasons[-1]
    assert json.loads(json.dumps(verdict.to_json()))["passed"] is True


def test_a_model_worse_than_the_prior_is_refused_and_says_by_how_much() -> None:
    verdict = gate([table(0.15, half=0.3)], None)
    assert not verdict.passed
    why, *nothing_learned = verdict.refusals
    assert [one.split(",")[0] for one in nothing_learned] == [
        "throughput: under no protocol is it better than the analytic model beyond noise.",
        "throughput",
    ]
    assert why.startswith("throughput, unseen_pair: worse than the analytic model, mean error 0.1")
    assert "against 0.1 on 90 rows of 30 pairs, by 0.04" in why
    assert verdict.reasons[0] == why


def test_a_model_better_than_the_prior_and_worse_than_the_active_one_is_refused() -> None:
    verdict = gate([table(0.06, half=0.1)], [table(0.02, seed=1)], against="m-old")
    assert [why.split(", mean")[0] for why in verdict.refusals] == [
        "throughput, unseen_pair: worse than the active model"
    ]


def test_one_bad_protocol_is_enough() -> None:
    good, bad = table(0.02), table(0.15, half=0.3, protocol="unseen_workload")
    verdict = gate([good, bad], None)
    assert [why.split(":")[0] for why in verdict.refusals] == ["throughput, unseen_workload"]
    assert len(verdict.figures) == 2


def test_worse_by_less_than_noise_passes() -> None:
    """The candidate is a hair worse on average, and better on nearly half of the pairs."""
    base = table(0.05, pairs=12)
    off = np.repeat(np.random.default_rng(5).normal(0.055, 0.03, 12), 3)
    candidate = replace(base, expected=base.measured + off, lower=base.measured * 0, upper=base.measured + 1)
    verdict = gate([candidate], [base])
    assert verdict.figures[0].active is not None
    assert verdict.figures[0].active.difference > NEGLIGIBLE
    assert verdict.passed


def test_what_is_better_than_the_prior_by_less_than_noise_has_learned_nothing() -> None:
    base = table(0.05, pairs=12, prior_off=0.1)
    off = np.repeat([0.05, 0.14] * 6, 3)
    candidate = replace(base, expected=base.measured + off, lower=base.measured * 0, upper=base.measured + 1)
    verdict = gate([candidate], None)
    assert verdict.figures[0].analytic.difference < -NEGLIGIBLE
    assert verdict.refusals[0] == "throughput: under no protocol is it better than the analytic model beyond noise."


def test_the_best_constant_is_the_median_of_what_was_measured() -> None:
    base = table(0.02)
    measured = np.where(np.arange(len(base)) % 5 == 0, 0.2, 0.9)
    (figures,) = gate([replace(base, measured=measured)], None).figures
    assert figures.constant is not None
    assert figures.constant.other == pytest.approx(np.abs(measured - np.median(measured)).mean(), abs=1e-6)


def test_throughput_and_share_must_be_better_than_the_prior_somewhere() -> None:
    """Which latency and jitter need not be: they may answer as the prior does."""
    same = [replace(one, expected=one.prior, lower=one.prior - 0.2, upper=one.prior + 0.2) for one in _shares()]
    lab = replace(same[0], target="throughput", protocol="unseen_pair")
    assert gate([lab], None).refusals == (
        "throughput: under no protocol is it better than the analytic model beyond noise.",
    )
    assert gate([replace(lab, target="latency")], None).passed
    assert gate([replace(lab, target="latency"), table(protocol="unseen_workload"), lab], None).passed
    assert gate(same, None).refusals == (
        "share: on no left-out campaign or host is it better than the analytic model beyond noise.",
    )
    by_host, newest = _shares()
    assert gate([by_host, same[1]], None).passed
    assert gate([same[0], newest], None).passed


def test_a_share_must_be_better_than_a_constant_on_unseen_hosts() -> None:
    by_host, newest = _shares(prior_off=0.25)
    middle = np.full(len(by_host), float(np.median(by_host.measured)))
    flat = replace(by_host, expected=middle, lower=middle - 0.25, upper=middle + 0.25)
    verdict = gate([flat, newest], None)
    (why,) = verdict.refusals
    assert why.startswith("share, unseen_host: no better beyond noise than the best constant, mean error 0.1")
    assert all(one.analytic.high < 0 for one in verdict.figures)


def test_throughput_of_shuffled_outcomes_is_refused_though_the_prior_errs_more() -> None:
    made = table(prior_off=0.25)
    shuffled = np.random.default_rng(3).permutation(made.measured)
    mixed_up = replace(made, measured=shuffled, lower=made.expected * 0, upper=made.expected + 1)
    verdict = gate([mixed_up], None)
    assert verdict.figures[0].analytic.high < 0
    (why,) = verdict.refusals
    assert why.startswith("throughput, unseen_pair: no better than the best constant, mean error 0.1")


def test_a_pair_or_two_of_a_left_out_campaign_decide_nothing() -> None:
    good, few = table(), table(0.15, protocol="unseen_campaign", half=0.3, pairs=4)
    assert gate([good, few], None).passed
    assert not gate([good, table(0.15, protocol="unseen_campaign", half=0.3)], None).passed


def _shares(prior_off: float = 0.1) -> list[HeldOutPredictions]:
    return [table(target="share", protocol=name, prior_off=prior_off) for name in ("unseen_host", "newest")]


def test_intervals_that_hold_far_less_than_they_claim_are_refused() -> None:
    verdict = gate([table(0.02, half=0.012)], None)
    (why,) = verdict.refusals
    assert "90 % intervals cover" in why
    assert verdict.figures[0].coverage < 0.5
    assert not verdict.figures[0].covers


def test_without_an_active_model_the_verdict_says_that_only_the_prior_was_compared() -> None:
    verdict = gate([table()], None)
    assert verdict.passed
    assert "No learned model is active, so it was compared with the analytic model only." in verdict.reasons


@pytest.mark.parametrize("other", [{"dataset": "other"}, {"world": 1}], ids=["other-data", "a-key-measured-again"])
def test_rows_that_are_not_the_same_are_not_compared_and_the_verdict_says_so(other: dict[str, Any]) -> None:
    verdict = gate([table(0.06, half=0.1)], [table(0.0, **other)])
    assert verdict.passed
    assert verdict.figures[0].active is None
    no_rows = "It shares no held-out rows with the active model, so it was compared with the analytic model only."
    assert no_rows in verdict.reasons


def test_what_only_one_of_two_protocols_shares_is_said_for_the_other() -> None:
    pair, workload = table(0.02), table(0.02, protocol="unseen_workload")
    verdict = gate([pair, workload], [table(0.03), table(0.03, target="latency")])
    assert verdict.passed
    assert (
        "throughput, unseen_workload: no rows in common with the active model, only the analytic model was compared."
        in verdict.reasons
    )
    assert (
        "The active model has learned latency, this one has not: the analytic model would answer for it."
        in verdict.reasons
    )


def test_only_common_rows_are_compared_with_the_active_model() -> None:
    mine, theirs = table(0.03), table(0.03, seed=3)
    half = theirs.take(np.arange(0, 45))
    verdict = gate([mine], [half])
    assert verdict.figures[0].active is not None
    assert (verdict.figures[0].rows, verdict.figures[0].active.rows, verdict.figures[0].active.pairs) == (90, 45, 15)
    assert "on 45 common rows" in verdict.reasons[-1]


def test_a_row_left_out_twice_counts_once_beside_the_active_model() -> None:
    once = table(0.02, pairs=4, repeats=1, protocol="unseen_workload")
    twice = once.take(np.array([0, 0, 1, 2, 3]))
    verdict = gate([twice], [once])
    assert verdict.figures[0].active is not None
    assert (verdict.figures[0].rows, verdict.figures[0].active.rows) == (5, 4)


def test_latency_is_judged_on_its_logarithm() -> None:
    """Ratios of 1.1 and of 100, both twice too high: neither outweighs the other."""
    base = table(pairs=2, repeats=1, target="latency")
    measured = np.array([1.1, 100.0])
    one = replace(
        base, measured=measured, prior=measured * 3, expected=measured * 2, lower=measured, upper=measured * 4
    )
    verdict = gate([one], None)
    assert verdict.figures[0].error == pytest.approx(np.log(2))
    assert verdict.passed


def test_nothing_held_out_is_refused() -> None:
    for empty in ([], [table().take(np.array([], dtype=np.int64))]):
        verdict = gate(empty, [table()])
        assert not verdict.passed
        assert "no held-out predictions" in verdict.refusals[0]


@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_few_pairs_are_decided_by_their_mean_and_coverage_is_not_judged(pairs: int) -> None:
    assert gate([table(0.05, pairs=pairs, half=0.01)], None).passed
    assert not gate([table(0.15, pairs=pairs, half=0.3)], None).passed


def test_more_pairs_than_are_held_at_once_give_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gate([table()], [table(0.05)])
    monkeypatch.setattr("models.evaluation.error_metrics.CHUNK", 50)
    assert gate([table()], [table(0.05)]) == whole


cases = st.builds(
    table,
    st.floats(0, 0.2),
    target=st.sampled_from(["throughput", "latency"]),
    pairs=st.integers(1, 8),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 5),
    half=st.floats(0.01, 0.3),
)


@settings(max_examples=examples(15), deadline=None)
@given(cases)
def test_the_active_model_never_refuses_its_own_twin(one: HeldOutPredictions) -> None:
    verdict = gate([one], [one])
    assert verdict.figures[0].active is not None
    assert verdict.figures[0].active.passed
    assert verdict.figures[0].active.difference == 0


@settings(max_examples=examples(15), deadline=None)
@given(cases, st.integers(0, 100))
def test_the_order_of_rows_does_not_matter(one: HeldOutPredictions, seed: int) -> None:
    mixed = one.take(np.random.default_rng(seed).permutation(len(one)))
    here, there = gate([one], None), gate([mixed], None)
    assert here.passed == there.passed
    assert here.figures[0].analytic.low == pytest.approx(there.figures[0].analytic.low, abs=2e-6)


@settings(max_examples=examples(15), deadline=None)
@given(cases, st.floats(0, 0.05))
def test_a_model_with_smaller_errors_everywhere_is_never_refused_for_them(one: HeldOutPredictions, gain: float) -> None:
    nearer = one.measured + (one.expected - one.measured) * (1 - gain)
    better = replace(one, expected=nearer)
    verdict = gate([better], [one])
    assert verdict.figures[0].active is not None
    assert verdict.figures[0].active.passed


@pytest.mark.parametrize("pairs", [5, 40])
def test_models_that_are_truly_equal_are_seldom_refused(pairs: int) -> None:
    """Both off by the same amount on average, apart by chance on every pair; the rule promises 5 % of cases."""
    refused = sum(
        not gate(
            [_by_chance(pairs, 2 * trial, protocol) for protocol in ("unseen_pair", "unseen_workload")],
            [_by_chance(pairs, 2 * trial + 1, protocol) for protocol in ("unseen_pair", "unseen_workload")],
        ).passed
        for trial in range(60)
    )
    assert refused <= 8  # at most 3 expected; 9 or more would come by chance once in 300


def test_the_more_is_checked_the_farther_a_bound_lies() -> None:
    """All checks share one error rate: what is checked beside it makes no table more likely to be refused."""
    one, other = table(0.05), table(0.02, protocol="unseen_workload")
    alone, together = gate([one], None).figures[0], gate([one, other], None).figures[0]
    assert together.analytic.low < alone.analytic.low
    assert together.analytic.high > alone.analytic.high
    assert together.coverage_high >= alone.coverage_high


def test_a_bound_from_few_pairs_is_as_far_away_as_it_says() -> None:
    """One in a hundred on either side; the bootstrap of five pairs as it comes misses 11 of these 200."""
    random = np.random.default_rng(0)
    found = [matched_outcomes.means_of(random.normal(0, 1, (5, 1)), tuple("abcde")).bounds(0, 0.01) for _ in range(100)]
    assert sum((bounds[0] > 0) + (bounds[1] < 0) for bounds in found if bounds) <= 6
    assert all(found)


def _by_chance(pairs: int, seed: int, protocol: str) -> HeldOutPredictions:
    base = table(pairs=pairs, repeats=2, prior_off=0.3, half=0.3, protocol=protocol)
    random = np.random.default_rng([seed, len(protocol)])
    off = np.repeat(random.exponential(0.05, pairs), 2)
    return replace(base, expected=base.measured + off, lower=base.measured - 0.01, upper=base.measured + 1)


def test_a_calm_cloud_passes_by_its_contended_rows_and_is_refused_where_calm_ones_get_worse() -> None:
    """Nine rows in ten are calm, where the prior is right: they would drown what was learned of the others."""
    random = np.random.default_rng(0)
    count, hosts = 2_000, 40
    measured = np.where(np.arange(count) % 10 == 0, random.uniform(0.3, 0.9, count), 1.0)
    prior = np.where(measured < 1, np.minimum(measured * np.exp(random.normal(0.2, 0.05, count)), 1.0), 1.0)

    def held(calm: float, protocol: str = "unseen_host", **changes: object) -> HeldOutPredictions:
        expected = np.where(measured < 1, measured * np.exp(random.normal(0, 0.05, count)), calm)
        rows = {
            "key": tuple(f"k{at}" for at in range(count)),
            "platform": ("p",) * count,
            "pair": tuple(f"h{at % hosts}" for at in range(count)),
            "measured": measured,
            "prior": prior,
            "expected": expected,
            "lower": expected * 0.85,
            "upper": np.maximum(expected * 1.18, 1.0),
            **changes,
        }
        return HeldOutPredictions("share", protocol, **rows)  # type: ignore[arg-type]

    verdict = gate([held(0.9995), held(0.9995, "newest")], None)
    assert verdict.passed, verdict.refusals
    assert {one.part for one in verdict.figures} == {"contended", "calm"}
    (why,) = gate([held(0.97), held(0.9995, "newest")], None).refusals
    assert why.startswith("share, unseen_host, calm rows: worse than the analytic model")
    nothing = gate([held(1.0, expected=prior)], None).refusals
    assert any("is it better than the analytic model" in why for why in nothing)
