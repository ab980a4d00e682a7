"""The learned residual: its members, the blend that left-out rows choose, and the way back to the prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.features.examples import Examples, Neighbour
from models.features.repeats import group_repeats
from models.learning.effects import Effects
from models.learning.fitted_target import FittedTarget
from models.learning.learned_predictor import LearnedPredictor
from models.learning.residual_model import (
    BASE_LEARNERS,
    NOTHING_LEARNED,
    BaseLearners,
    ResidualModel,
    StackingWeights,
    choose_stacking_weights,
    fit_base_learners,
    levelled,
    stacked,
    unlevelled,
)
from tests.examples import examples
from tests.models.made_examples import made_up


def judged(rows: int, seed: int = 0) -> tuple[Examples, Floats, Floats]:
    """Examples of twenty pairs, what four members said of them, and what was right: near, noisy, wrong, nothing."""
    random = np.random.default_rng(seed)
    truth = random.normal(-0.2, 0.3, rows)
    near, noisy = truth + random.normal(0, 0.02, rows), truth + random.normal(0, 0.4, rows)
    said = np.stack([near, noisy, -truth, 0 * truth], axis=1)
    pairs = [(f"a{at % 20}", f"b{at % 20}") for at in range(rows)]
    return made_up(pairs, 0.6 * np.exp(truth), base=0.6), said, truth


def blend_of(examples: Examples, parts: Floats, effects: Floats | None = None) -> StackingWeights:
    rows = np.arange(len(examples))
    return choose_stacking_weights(
        examples, examples.ratio, rows, parts, np.zeros(len(rows)) if effects is None else effects
    )


def test_the_member_that_is_right_is_kept_and_the_others_are_not() -> None:
    examples, said, _ = judged(200)
    assert blend_of(examples, said) == StackingWeights((1.0, 0.0, 0.0, 0.0))
    assert blend_of(examples, said[:, [2, 0, 1, 3]]) == StackingWeights((0.0, 1.0, 0.0, 0.0))


def test_members_that_err_in_opposite_ways_are_blended() -> None:
    examples, _, truth = judged(200)
    off = np.random.default_rng(1).normal(0, 0.3, 200)
    found = blend_of(examples, np.stack([truth + off, truth - off, 0 * truth, 0 * truth], axis=1))
    assert found == StackingWeights((0.5, 0.5, 0.0, 0.0))


def test_who_says_twice_too_much_is_believed_by_half_and_the_prior_has_the_rest() -> None:
    examples, _, truth = judged(200)
    assert blend_of(examples, np.stack([2 * truth, *[0 * truth] * 3], axis=1)).base_learners[0] == 0.5


def test_effects_are_kept_where_they_help() -> None:
    examples, _, truth = judged(200)
    nothing = np.zeros((200, 4))
    assert blend_of(examples, nothing, truth) == StackingWeights(effects=1.0)
    assert blend_of(examples, nothing, 2 * truth) == StackingWeights(effects=0.5)
    assert blend_of(examples, nothing, -truth) == StackingWeights()


@pytest.mark.parametrize("seed", range(5))
def test_of_noise_nothing_is_kept(seed: int) -> None:
    """Members that were fitted on noise say noise, of the same size and about something else."""
    random = np.random.default_rng(seed)
    pairs = [(f"a{at}", f"b{at}") for at in range(400)]
    examples = made_up(pairs, 0.7 * np.exp(random.normal(0, 0.2, 400)), base=0.7)
    assert blend_of(examples, random.normal(0, 0.2, (400, 4)), random.normal(0, 0.2, 400)).prior_only


def test_a_tie_goes_to_the_prior() -> None:
    exact = made_up([("a", "b")] * 10, np.full(10, 0.8), base=0.8)
    assert blend_of(exact, np.zeros((10, 4)), np.zeros(10)).prior_only
    half_way = made_up([("a", "b")] * 10, np.full(10, 0.8 * np.exp(0.25)), base=0.8)
    parts = np.zeros((10, 4))
    parts[:, 0] = -1e-9
    assert blend_of(half_way, parts).prior_only
    assert blend_of(half_way, np.zeros((10, 4)), np.full(10, 1e-12)).prior_only


def test_without_judgements_nothing_is_kept() -> None:
    examples, said, _ = judged(20)
    none = np.zeros(0, dtype=np.int64)
    assert choose_stacking_weights(examples, examples.ratio, none, said[:0], np.zeros(0)).prior_only


def test_a_pair_counts_once_however_often_it_was_measured() -> None:
    """Forty rows of one pair for which a member is wrong against two of two others for which it is right."""
    pairs = [("a", "b")] * 40 + [("c", "d"), ("e", "f")]
    truth = np.array([-0.3] * 42)
    said = np.zeros((42, 4))
    said[:, 0] = [0.3] * 40 + [-0.3] * 2
    examples = made_up(pairs, 0.8 * np.exp(truth), base=0.8)
    assert not blend_of(examples, said).prior_only
    each = made_up([(f"a{at}", "b") for at in range(42)], 0.8 * np.exp(truth), base=0.8)
    assert blend_of(each, said).prior_only


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 1000), st.integers(3, 60))
def test_a_blend_is_never_worse_than_the_prior_on_what_it_was_chosen_by(seed: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    pairs = [(f"a{at}", "b") for at in range(rows)]
    examples = made_up(pairs, random.uniform(0.1, 1, rows), base=random.uniform(0.1, 1, rows))
    parts, effects = random.normal(-0.3, 0.5, (rows, 4)), random.normal(0, 0.3, rows)
    found = blend_of(examples, parts, effects)
    after = np.abs(examples.ratio - examples.base * np.exp(stacked(parts, effects, found))).mean()
    assert after <= np.abs(examples.ratio - examples.base).mean() + 1e-6
    assert sum(found.base_learners) <= 1.0 + 1e-9
    assert all(share >= 0 for share in found.base_learners)
    assert 0.0 <= found.effects <= 1.0


# the residual model


MODEL = ResidualModel(
    None,
    Effects({"victim|near|w0": 1.0}),
    StackingWeights(effects=1.0),
    StackingWeights(effects=0.5),
    frozenset({"w0", "w1"}),
)


def test_a_stranger_makes_a_row_unknown_whether_victim_or_neighbour() -> None:
    victims = ["w0", "x", "w0", "w0"]
    around = [[Neighbour("w1", 1.0)], [Neighbour("w1", 1.0)], [Neighbour("w1", 1.0), Neighbour("x", 0.0)], []]
    known = MODEL.all_known(victims, around)
    assert known.tolist() == [True, False, False, True]
    said = MODEL.correction(np.zeros((4, 4)), MODEL.effects.predict(victims, around), known)
    assert said.tolist() == [1.0, 0.0, 0.5, 0.0]


def test_nothing_learned_corrects_nothing() -> None:
    victims, around = ["a", "b"], [[], [Neighbour("a", 1.0)]]
    parts = NOTHING_LEARNED.parts(np.ones((2, 5)), np.ones(2))
    known = NOTHING_LEARNED.all_known(victims, around)
    assert not NOTHING_LEARNED.correction(parts, NOTHING_LEARNED.effects.predict(victims, around), known).any()
    assert NOTHING_LEARNED.known_weights.prior_only
    assert StackingWeights((0.25, 0.0, 0.5, 0.25), 1.0).named() == dict(
        zip((*BASE_LEARNERS, "effects"), (0.25, 0.0, 0.5, 0.25, 1.0), strict=True)
    )


def test_a_blend_of_nothing_gives_exactly_the_prior(predictor: LearnedPredictor, world_examples: Examples) -> None:
    fitted: FittedTarget = predictor.throughput
    bare = replace(
        fitted, model=replace(fitted.model, known_weights=StackingWeights(), unknown_weights=StackingWeights())
    )
    np.testing.assert_array_equal(bare.ask(world_examples).expected, world_examples.base)


def test_no_rows_get_no_correction(predictor: LearnedPredictor, world_examples: Examples) -> None:
    none = world_examples.take(np.zeros(0, dtype=np.int64))
    assert predictor.throughput.ask(none).expected.shape == (0,)


# members


@pytest.fixture(scope="module")
def members(world_examples: Examples) -> BaseLearners:
    rows = group_repeats(world_examples)
    return fit_base_learners(rows, np.arange(len(rows.examples)), seed=3, boosters=2)


def test_the_same_seed_gives_the_same_members(members: BaseLearners, world_examples: Examples) -> None:
    rows = group_repeats(world_examples)
    again = fit_base_learners(rows, np.arange(len(rows.examples)), seed=3, boosters=2)
    trees, same = ((*found.boosters, found.forest, *found.direct) for found in (members, again))
    for one, other in zip(trees, same, strict=True):
        assert one.model_to_string() == other.model_to_string()
    assert again.smooth.to_json() == members.smooth.to_json()


def test_every_member_learns_what_the_prior_leaves(members: BaseLearners, world_examples: Examples) -> None:
    rows = group_repeats(world_examples)
    off = np.abs(members.predict(rows.examples.x, rows.examples.base) - rows.residual[:, None]).mean(axis=0)
    assert (off < 0.6 * np.abs(rows.residual).mean()).all(), off


@given(st.floats(1e-3, 1e6))
def test_what_is_learned_directly_is_the_ratio_again(ratio: float) -> None:
    assert unlevelled(levelled(np.array([ratio])))[0] == pytest.approx(ratio)


def test_a_ratio_that_no_instance_can_have_is_the_least() -> None:
    assert unlevelled(np.array([-1.0, 0.0])).tolist() == [1e-3, 1e-3]


def test_where_the_direct_member_has_no_weight_it_is_left_out(world_examples: Examples) -> None:
    rows = group_repeats(world_examples)
    found = fit_base_learners(rows, np.arange(len(rows.examples)), seed=3, boosters=1, direct=False)
    assert found.direct == ()
    assert not found.predict(rows.examples.x, rows.examples.base)[:, 3].any()
