"""A fitted target: what it says of itself, and that it steps back outside its training data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.arrays import Floats
from models.features.examples import Examples
from models.learning import fitted_target
from models.learning.fitted_target import ALONE, FittedTarget, TargetEstimate, fit_target
from models.learning.intervals import OUTSIDE_FACTOR
from models.learning.learned_predictor import LearnedPredictor
from models.learning.residual_model import HIGHEST, LEAST_ROWS, LOWEST, NOTHING_LEARNED, StackingWeights
from models.physics.prior import prior_spread


@pytest.fixture
def fitted(predictor: LearnedPredictor) -> FittedTarget:
    return predictor.throughput


def ask(
    fitted: FittedTarget, examples: Examples, *, x: Floats | None = None, effects: float = 0.0, more: int = 0
) -> TargetEstimate:
    """All workloads known, on the platform of training, `more` instances than measured."""
    rows = len(examples)
    return fitted.estimate(
        examples.x if x is None else x, examples.base, np.full(rows, effects), np.ones(rows, dtype=bool),
        examples.size + more, np.full(rows, "p1"),
    )  # fmt: skip


def test_with_few_rows_nothing_is_learned_and_intervals_are_wide(world_examples: Examples) -> None:
    few = world_examples.take(np.arange(LEAST_ROWS - 1))
    found = fit_target(few, "throughput")
    assert found.model is NOTHING_LEARNED
    assert found.figures == {}
    said = found.ask(few)
    np.testing.assert_array_equal(said.expected, few.base)
    assert (said.expected / said.lower > 2).all()


def test_it_says_how_it_did_on_what_was_left_out(fitted: FittedTarget, world_examples: Examples) -> None:
    assert set(fitted.figures) == {"unseen_pair", "unseen_workload"}
    for held in fitted.held_out:
        figures = fitted.figures[held.protocol]
        off = np.abs(held.measured - held.expected)
        assert figures["rows"] == len(held)
        assert figures["mae"] == pytest.approx(off.mean(), abs=1e-5)
        assert figures["p90_abs_error"] == pytest.approx(np.quantile(off, 0.9), abs=1e-5)
        inside = (held.measured >= held.lower) & (held.measured <= held.upper)
        assert figures["coverage"] == pytest.approx(inside.mean(), abs=1e-5)
        assert 0.8 <= inside.mean() <= 1.0
        assert set(held.key) == set(world_examples.key)
        assert (held.lower <= 1.0).all()
    by_pair = fitted.held_out[0]
    assert sorted(by_pair.key) == sorted(world_examples.key)


def test_it_is_not_worse_than_the_prior_on_what_it_was_judged_on(fitted: FittedTarget) -> None:
    rows = sum(one["rows"] for one in fitted.figures.values())
    ours, prior = (
        sum(one[key] * one["rows"] for one in fitted.figures.values()) / rows for key in ("mae", "mae_prior")
    )
    assert ours < 0.5 * prior


def test_held_out_rows_are_worse_than_those_it_was_fitted_on(fitted: FittedTarget, world_examples: Examples) -> None:
    """Left-out figures that were as good as fitted ones would be no left-out figures."""
    own = np.abs(fitted.ask(world_examples).expected - world_examples.ratio).mean()
    assert own < fitted.figures["unseen_pair"]["mae"] < fitted.figures["unseen_workload"]["mae"]


def test_expected_lies_between_its_bounds(fitted: FittedTarget, world_examples: Examples) -> None:
    said = fitted.ask(world_examples)
    assert (said.lower <= said.expected).all()
    assert (said.expected <= said.upper).all()
    assert (said.lower <= 1.0).all()
    assert said.known.all()
    assert not said.outside.any()


def test_who_is_alone_gets_what_the_prior_says_and_hardly_any_interval(
    fitted: FittedTarget, world_examples: Examples
) -> None:
    one = replace(world_examples, base=np.ones(len(world_examples)))
    said = ask(fitted, one, effects=0.5, more=-1)
    np.testing.assert_array_equal(said.expected, 1.0)
    np.testing.assert_allclose(said.lower, np.exp(-ALONE))
    np.testing.assert_allclose(said.upper, np.exp(ALONE))


def test_a_question_far_outside_the_training_data_is_marked_and_gets_a_wider_interval(
    fitted: FittedTarget, world_examples: Examples
) -> None:
    examples = world_examples
    assert not fitted.outside(examples.x).any()
    assert fitted.outside(examples.x * 50 + 1000).all()
    row = examples.take(np.array([0]))
    near = ask(fitted, row)
    far = ask(fitted, row, x=row.x * 50 + 1000, effects=0.5)
    crowd = ask(fitted, row, more=5)
    assert not near.outside.any()
    for other in (far, crowd):
        assert other.outside.all()
        assert (np.log(other.expected / other.lower) > np.log(near.expected / near.lower)).all()
    assert far.expected[0] == row.base[0]
    same = np.log(crowd.expected / crowd.lower) / np.log(near.expected / near.lower)
    assert (same >= OUTSIDE_FACTOR - 1e-9).all()


def test_unknown_features_do_not_count_as_far_away(fitted: FittedTarget, world_examples: Examples) -> None:
    examples = world_examples
    blind = np.full_like(examples.x, np.nan)
    kind = examples.names.index("kind")
    blind[:, kind] = examples.x[:, kind]
    assert not fitted.outside(blind).any()


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize(("name", "seen", "asked"), [("cpu_set", 1, 2), ("load", 0.6, 1.0)])
def test_to_choose_among_cpus_or_a_higher_load_is_outside_where_training_had_none(
    world_examples: Examples, name: str, seen: float, asked: float
) -> None:
    column = world_examples.names.index(name)
    x = world_examples.x.copy()
    x[:, column] = seen
    fitted = fit_target(replace(world_examples, x=x), "throughput")
    assert not fitted.outside(x).any()
    x[:, column] = asked
    assert fitted.outside(x).all()


def test_a_limit_that_training_never_saw_is_outside_whatever_else_is_alike(
    fitted: FittedTarget, world_examples: Examples
) -> None:
    examples = world_examples
    cap = examples.names.index("cap")
    assert np.isnan(fitted.low[cap])
    capped = examples.x.copy()
    capped[:, cap] = 50.0
    assert fitted.outside(capped).all()
    row = examples.take(np.array([0]))
    by_effects = replace(fitted, model=replace(fitted.model, known_weights=StackingWeights(effects=1.0)))
    assert ask(by_effects, row, effects=0.1).expected[0] == pytest.approx(row.base[0] * np.exp(0.1))
    said = ask(by_effects, row, x=capped[:1], effects=0.1)
    assert said.expected[0] == pytest.approx(row.base[0])


def test_on_a_host_of_another_kind_the_answer_and_its_interval_are_the_priors(
    fitted: FittedTarget, world_examples: Examples
) -> None:
    calibration = replace(fitted.calibration, difficulty=None, typical=5.0)  # however far off it was elsewhere
    x = world_examples.x.copy()
    x[:, world_examples.names.index("kind")] = 99.0
    said = ask(replace(fitted, calibration=calibration), world_examples, x=x, effects=0.5)
    assert said.outside.all()
    np.testing.assert_array_equal(said.expected, world_examples.base)
    spread = prior_spread(world_examples.base, np.ones(len(world_examples), dtype=bool))
    inside = said.lower > LOWEST["throughput"]
    np.testing.assert_allclose(np.log(said.expected / said.lower)[inside], spread[inside])


def one_victim(examples: Examples) -> Examples:
    """What one workload has beside the others, on two platforms that differ in what pressure does there."""
    rows = np.array([at for at, name in enumerate(examples.victim) if name == "w0"])
    there = examples.take(np.concatenate([rows] * 3))
    elsewhere = np.repeat(["d/p1", "d/p2", "d/p3"], len(rows))
    return replace(
        there,
        platform=tuple(elsewhere.tolist()),
        ratio=there.base * np.exp(there.x[:, there.names.index("near cpu")] / 200 - 0.2),
    )


@pytest.mark.usefixtures("few_trees")
def test_with_one_victim_rows_are_left_out_and_what_was_measured_is_learned(world_examples: Examples) -> None:
    """Every left-out pair leaves out its neighbour: without rows nobody would be judged as known."""
    examples = one_victim(world_examples)
    found = fit_target(examples, "throughput")
    assert "random_row" in found.figures
    assert found.figures["random_row"]["mae"] < 0.5 * found.figures["random_row"]["mae_prior"]
    assert not found.model.known_weights.prior_only
    said = found.ask(examples)
    assert said.known.all()
    assert np.abs(said.expected - examples.ratio).mean() < 0.3 * np.abs(examples.base - examples.ratio).mean()


def with_memory(examples: Examples, memory_mb: Floats) -> Examples:
    """The same rows on hosts with so much memory, (R,)."""
    x = examples.x.copy()
    x[:, examples.names.index("memory_mb")] = memory_mb
    return replace(examples, x=x)


@pytest.mark.usefixtures("few_trees")
def test_a_new_platform_is_unknown_and_no_more_certain_than_those_of_training(world_examples: Examples) -> None:
    """Platforms p2 and p3 have the same numbers, which tell only p1 from a new one."""
    examples = one_victim(world_examples)
    own = np.array([name == "d/p1" for name in examples.platform])
    examples = with_memory(examples, np.where(own, 2048.0, 4096.0))
    more = with_memory(examples, np.where(own, 2100.0, 4200.0))
    renamed, new = (replace(one, platform=("d/new",) * len(one)) for one in (examples, more))
    found = fit_target(examples, "throughput")
    assert "unseen_platform" in found.figures
    assert found.ask(examples).known.all()
    assert found.ask(more).known.all()
    np.testing.assert_array_equal(found.ask(renamed).known, own)
    here, there = found.ask(examples), found.ask(new)
    assert not there.known.any()
    width = [np.log(one.upper / one.lower).mean() for one in (here, there)]
    assert width[1] > width[0]


@pytest.mark.usefixtures("few_trees")
def test_what_misleads_on_left_out_platforms_is_not_believed_on_new_ones(world_examples: Examples) -> None:
    """Each platform has a shift of its own, which hosts' numbers tell of those that were seen only."""
    examples = one_victim(world_examples)
    shift = np.repeat([-0.6, 0.0, 0.6], len(examples) // 3)
    apart = with_memory(examples, (1 + np.abs(shift)) * 1000 + shift)
    apart = replace(apart, ratio=np.clip(examples.base * np.exp(shift), 0.01, 1.1))
    model = fit_target(apart, "throughput").model
    assert model.platform_weights is not None
    assert model.platform_weights.prior_only
    assert not model.known_weights.prior_only
    assert not model.correction(np.ones((2, 4)), np.ones(2), np.zeros(2, dtype=bool), True).any()
    mixed = model.correction(np.ones((2, 4)), np.ones(2), np.ones(2, dtype=bool), np.array([True, False]))
    assert mixed[0] == 0.0 != mixed[1]


@pytest.mark.usefixtures("few_trees")
def test_the_ratio_itself_carries_over_to_new_platforms_where_left_out_ones_say_so(
    world_examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prior is off by another factor on each platform, and T/B is the same on all."""
    monkeypatch.setattr(fitted_target, "DIRECT_ROWS", LEAST_ROWS)
    examples = one_victim(world_examples)
    shift = np.repeat([-0.5, 0.0, 0.5], len(examples) // 3)
    model = fit_target(replace(examples, base=examples.ratio * np.exp(shift)), "throughput").model
    assert model.platform_weights is not None
    assert model.platform_weights.of("direct") > 0


@pytest.mark.usefixtures("few_trees")
def test_what_carries_over_among_hosts_of_one_kind_says_nothing_of_a_kind_with_a_single_platform(
    world_examples: Examples,
) -> None:
    examples = one_victim(world_examples)
    kind = examples.names.index("kind")
    x = examples.x.copy()
    x[:, kind] = np.where(np.array(examples.platform) == "d/p3", 0.0, 2.0)
    examples = replace(examples, x=x)
    found = fit_target(examples, "throughput")
    assert found.carried == (2.0,)
    asked = examples.take(np.flatnonzero(x[:, kind] == 2.0))
    for known, answered in ((2.0, False), (0.0, True)):
        x = asked.x.copy()
        x[:, kind] = known
        new = with_memory(replace(asked, x=x, platform=("d/new",) * len(asked)), np.full(len(asked), 70_000.0))
        said = found.ask(new)
        unchanged = said.expected == np.clip(asked.base, LOWEST["throughput"], HIGHEST["throughput"])
        assert (unchanged.all(), said.outside.all()) == (answered, answered)
    assert not found.ask(examples).outside.any()  # on platforms of training their kind does not matter
