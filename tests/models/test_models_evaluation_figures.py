"""Figures of an evaluation: noise, bootstrap, compositions, factors, curves and clock, each against its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.evaluation import baselines
from models.evaluation.baselines import COMPOSITIONS, Entries, IntervalPrediction, ridge_factors
from models.evaluation.error_metrics import NoiseFloor, PairwiseRanking, interval, limiting, repeats, resampled_means
from models.evaluation.results_table import EvaluationProgress, average_ranks, ranks
from models.evaluation.run import examine
from models.features.examples import Examples
from tests.examples import examples
from tests.models.made_examples import Group, made_up
from tests.models.synthetic import World


def rows(ratio: list[float] | Floats, *groups: Group, runs: Sequence[str] = ()) -> Examples:
    """Rows with these measurements on one platform in one setting, each of a victim and its neighbours."""
    return made_up(groups, np.array(ratio, dtype=float), base=1.0, run=runs)


# noise


def test_noise_is_the_error_that_a_perfect_predictor_of_the_mean_would_show() -> None:
    random = np.random.default_rng(0)
    runs, repeat = 3000, 4
    ratio = 0.5 + random.normal(0, 0.02, (runs, repeat))
    number = np.repeat(np.arange(runs), repeat)
    found = NoiseFloor.of(rows(ratio.ravel(), *[("a", "b")] * ratio.size), number)
    perfect = np.abs(ratio - 0.5)
    assert found.mae == pytest.approx(perfect.mean(), rel=0.03)
    assert found.mape == pytest.approx((perfect / ratio).mean(), rel=0.03)


def test_rows_that_were_measured_once_have_no_noise() -> None:
    examples = rows([0.5, 0.6, 0.9], *[("a", "b")] * 3)
    found = NoiseFloor.of(examples, np.array([0, 0, 1]))
    assert found.repeated.tolist() == [True, True, False]
    assert found.mae == pytest.approx(0.1 * np.sqrt(0.5))
    assert NoiseFloor.of(examples, np.arange(3)).to_json() is None
    times = found.times(examples, found.repeated, np.array([0.55, 0.55, 0.0]))
    assert times is not None
    assert times["mae"] == pytest.approx(0.05 / (0.1 * np.sqrt(0.5)), abs=1e-4)


def test_repeats_are_of_the_same_run_and_instance_and_twins_in_a_run_are_distinguished() -> None:
    runs = ["d/r/1", "d/r/1", "d/r/2", "d/r/2", "d/s/1"]
    examples = rows([0.5] * 5, *[("a", "a")] * 5, runs=runs)
    assert repeats(examples).tolist() == [0, 1, 0, 1, 2]


# bootstrap


def test_intervals_of_a_mean_are_as_wide_as_theory_says() -> None:
    values = np.random.default_rng(0).normal(size=400)
    edges = interval(resampled_means(np.arange(400), values[:, None])[:, 0])  # type: ignore[index]
    assert edges is not None
    half = 1.96 * values.std() / 20
    assert edges == pytest.approx([values.mean() - half, values.mean() + half], abs=0.15 * half)


def test_copies_of_a_row_in_its_cluster_do_not_make_an_interval_narrower() -> None:
    values = np.random.default_rng(0).normal(size=50)
    once = resampled_means(np.arange(50), values[:, None])
    often = resampled_means(np.repeat(np.arange(50), 9), np.repeat(values, 9)[:, None])
    assert once is not None and often is not None
    np.testing.assert_allclose(once, often)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), min_size=1, max_size=40), st.floats(-1, 1))
@settings(max_examples=examples(40), deadline=None)
def test_columns_are_resampled_together_so_that_a_constant_difference_has_no_spread(
    drawn: list[tuple[int, float]], apart: float
) -> None:
    cluster, values = np.array([one for one, _ in drawn]), np.array([value for _, value in drawn])
    means = resampled_means(cluster, np.stack([values, values + apart], axis=1), resamples=50)
    if len(set(cluster.tolist())) < 2:
        assert means is None
    else:
        assert means is not None
        np.testing.assert_allclose(means[:, 1] - means[:, 0], apart, atol=1e-9)
        assert (means[:, 0] >= values.min() - 1e-9).all()
        assert (means[:, 0] <= values.max() + 1e-9).all()


# ranking


def plain_accuracy(examples: Examples, guess: Floats) -> float | None:
    """The same by loops: all pairs of neighbours of one victim whose means differ by more than noise."""
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for row, (victim, beside) in enumerate(zip(examples.victim, examples.neighbours, strict=True)):
        groups.setdefault((victim, tuple(sorted(one.workload for one in beside))), []).append(row)
    right = []
    for (one, at), (other, to) in combinations(groups.items(), 2):
        ratios = [examples.ratio[at], examples.ratio[to]]
        spread = [part.std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else 0.01 for part in ratios]
        gap = ratios[0].mean() - ratios[1].mean()
        if one[0] == other[0] and abs(gap) > 2 * np.hypot(spread[0], spread[1]):
            said = guess[at].mean() - guess[to].mean()
            right.append(0.5 if abs(said) < 1e-9 else float((said > 0) == (gap > 0)))
    return float(np.mean(right)) if right else None


@given(st.integers(0, 10_000))
@settings(max_examples=examples(30), deadline=None)
def test_the_ranking_is_that_of_a_plain_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 40))
    pairs = zip(random.integers(0, 3, count), random.integers(0, 6, count), strict=True)
    examples = rows(random.uniform(0.2, 1, count), *[(f"v{victim}", f"n{beside}") for victim, beside in pairs])
    guess = np.round(random.uniform(0.2, 1, count), 1)
    expected = plain_accuracy(examples, guess)
    assert PairwiseRanking.of(examples).accuracy(guess) == (
        None if expected is None else pytest.approx(expected, abs=1e-4)
    )


def test_a_row_that_is_judged_twice_is_one_measurement() -> None:
    examples = rows([0.90, 0.915], ("a", "b"), ("a", "c"))
    twice = examples.take(np.array([0, 1, 0, 1]))
    guess = np.array([0.9, 0.5, 0.9, 0.5])
    assert PairwiseRanking.of(twice, np.array([0, 1, 0, 1])).accuracy(guess) is None
    assert PairwiseRanking.of(examples).accuracy(guess[:2]) is None


# compositions


def test_compositions_are_their_formulas_where_all_pairs_were_measured() -> None:
    train = rows([0.8, 0.8, 0.5, 0.9, 1.0], ("a", "b"), ("a", "b"), ("a", "c"), ("b", "a"), ("c", "a"))
    test = rows([0.4, 0.4], ("a", "b", "c"), ("b", "a", "c"))
    found = {name: rule(train, test) for name, rule in COMPOSITIONS.items()}
    assert found["compose_additive"][0] == pytest.approx(1 / (1 + 0.25 + 1.0))
    assert found["compose_product"][0] == pytest.approx(0.4)
    assert found["compose_max"][0] == pytest.approx(0.5)
    for guess in found.values():  # b beside c was never measured
        assert guess[1] == pytest.approx(np.mean([0.8, 0.8, 0.5, 0.9, 1.0]))


def test_compositions_stand_beside_the_models_where_pairs_predict_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ours(_: Examples, test: Examples) -> IntervalPrediction:
        return IntervalPrediction(test.base, test.base * 0.9, test.base * 1.1)

    monkeypatch.setattr(baselines, "METHODS", {"cotenant": ours, "mean": baselines.METHODS["mean"]})
    world = World(workloads=4, repeats=2, triples=True).write(tmp_path / "world")
    found = examine(world, ["pairs_to_n", "unseen_pair"]).figures["protocols"]
    assert set(found["pairs_to_n"]["compositions"]) == set(COMPOSITIONS)
    assert "compositions" not in found["unseen_pair"]
    for figure, one in found["pairs_to_n"]["difference_to_composition"].items():
        table = found["pairs_to_n"]
        best = min(part[figure] for part in table["compositions"].values())
        assert one["value"] == pytest.approx(table["models"]["cotenant"][figure] - best, abs=2e-5)
        assert one["interval"][0] <= one["value"] <= one["interval"][1]


# factors


@given(st.integers(0, 10_000), st.integers(1, 3))
@settings(max_examples=examples(15), deadline=None)
def test_more_sweeps_never_fit_worse(seed: int, most: int) -> None:
    random = np.random.default_rng(seed)
    groups = [tuple(f"w{at}" for at in random.integers(0, 5, random.integers(2, most + 2))) for _ in range(40)]
    examples = rows(np.ones(40), *groups)
    names = {name: at for at, name in enumerate(examples.workloads)}
    entries, target = Entries.of(examples, names), random.normal(size=40)
    losses = []
    for sweeps in (1, 2, 4, 8, 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("models.evaluation.baselines.SWEEPS", sweeps)
            left, right = ridge_factors(entries, target, len(names), 2, 1.0)
        penalty = 1.0 * ((left[:, 1:] ** 2).sum() + (right[:, [0, 2, 3]] ** 2).sum())
        losses.append(((target - entries.predict(left, right)) ** 2).sum() + penalty)
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(losses))


# ranks, resources, progress


def test_ranks_are_places_by_both_errors_with_ties_shared() -> None:
    models = {"a": {"mae": 1, "mape": 2}, "b": {"mae": 2, "mape": 1}, "c": {"mae": 2, "mape": 3}}
    assert ranks(models) == {"a": 1.5, "b": 1.75, "c": 2.75}
    tables = [{"models": {name: {"rank": rank} for name, rank in one.items()}} for one in ({"a": 1, "b": 2}, {"b": 1})]
    assert average_ranks([*tables, {"models": {}}]) == {"b": 1.5}
    assert average_ranks([]) == {}


def test_the_limiting_resource_is_the_one_the_prior_lets_an_instance_go_least() -> None:
    examples = replace(
        rows([1.0] * 3, *[("a", "b")] * 3),
        x=np.log([[0.5, 0.9, 0.5], [1.0, 0.2, 0.2], [1.0, 1.0, 1.0]]),
        names=("analytic cpu", "analytic disk", "analytic"),
    )
    assert limiting(examples) == ("cpu", "disk", "none")


def test_the_time_left_is_that_of_what_is_left() -> None:
    said: list[tuple[str, float]] = []
    now = [0.0]
    clock = EvaluationProgress(lambda what, done: said.append((what, done)), {"slow": 2, "fast": 2}, now=lambda: now[0])
    for (name, seconds), fold in product((("slow", 90.0), ("fast", 10.0)), (1, 2)):
        with clock.doing(name, f"fold {fold}"):
            now[0] += seconds
    expected = ["fold 1, slow", "fold 2, slow", "fold 1, fast", "fold 2, fast, about 10 s left"]
    assert [what for what, _ in said] == expected
    assert said[-1][1] == pytest.approx(190 / 200)
    assert [done for _, done in said] == sorted(done for _, done in said)
    assert clock.seconds("slow") == 180.0
