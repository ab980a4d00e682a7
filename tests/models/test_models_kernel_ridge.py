"""The smooth member: learns what is smooth, stays inside what it saw, and loses nothing as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from models.arrays import Floats
from models.features.folds import Fold
from models.learning.kernel_ridge import CENTRES, KernelRidge, fit_feature_space, fit_kernel_ridge

NAMES = ("own cpu", "own llc_misses", "near cpu", "near llc_misses", "host cpu", "prior", "load")


def rows(count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Features, and a residual that is the product of who is sensitive and who presses."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, 20, (count, len(NAMES)))
    return x, -0.2 * np.log1p(x[:, 0]) * np.log1p(x[:, 2]) + 0.1 * np.log1p(x[:, 3])


def folds(count: int) -> list[Fold]:
    number = np.arange(count) % 4
    return [(np.flatnonzero(number != fold), np.flatnonzero(number == fold)) for fold in range(4)]


def fit(
    x: Floats, y: Floats, names: tuple[str, ...] = NAMES, weight: Floats | None = None, seed: int = 0
) -> KernelRidge:
    return fit_kernel_ridge(x, y, np.ones(len(x)) if weight is None else weight, names, folds(len(x)), seed=seed)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As training does: with small matrices threads only wait for one another."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture(scope="module")
def fitted() -> KernelRidge:
    return fit(*rows(200))


def test_it_learns_a_product_of_sensitivity_and_pressure(fitted: KernelRidge) -> None:
    x, y = rows(300, seed=1)
    assert np.abs(fitted.predict(x) - y).mean() < 0.1 * np.abs(y - y.mean()).mean()


def test_noise_teaches_it_next_to_nothing() -> None:
    x, _ = rows(200)
    noise = np.random.default_rng(5).normal(0, 0.2, 200)
    said = fit(x, noise).predict(rows(200, seed=2)[0])
    assert said.std() < 0.06


def test_as_json_it_says_exactly_the_same(fitted: KernelRidge) -> None:
    again = KernelRidge.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False)))
    x, _ = rows(100, seed=3)
    assert again.predict(x).tobytes() == fitted.predict(x).tobytes()
    assert again.to_json() == fitted.to_json()


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "no centre": lambda value: value.pop("centre"),
    "a weight too few": lambda value: value["kernel"].pop(),
    "a product too many": lambda value: value["linear"].append(0.0),
    "a centre too few": lambda value: value["centres"].pop(),
    "a length that is none": lambda value: value.update(length="long"),
    "a turn of another size": lambda value: value["turn"].pop(),
    "blocks that are texts": lambda value: value.update(block=["own"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_json_of_another_shape_is_refused(fitted: KernelRidge, name: str) -> None:
    value = json.loads(json.dumps(fitted.to_json()))
    BROKEN[name](value)
    with pytest.raises((KeyError, TypeError, ValueError)):
        KernelRidge.from_json(value)


def test_it_never_says_more_than_it_saw(fitted: KernelRidge) -> None:
    _, y = rows(200)
    far = np.random.default_rng(4).uniform(-1e6, 1e6, (200, len(NAMES)))
    said = fitted.predict(far)
    assert said.min() >= y.min()
    assert said.max() <= y.max()


def test_unknown_and_endless_features_give_numbers(fitted: KernelRidge) -> None:
    x, _ = rows(20)
    for odd in (np.nan, np.inf, -np.inf):
        x[::2, 1] = odd
        assert np.isfinite(fitted.predict(x)).all()
    assert np.isfinite(fitted.predict(np.full((1, len(NAMES)), np.nan))).all()


def test_every_metric_twice_says_nothing_more(fitted: KernelRidge) -> None:
    """Blocks span a variance of one, so that how many metrics a dataset brings for one thing does not matter."""
    x, y = rows(200)
    asked, _ = rows(100, seed=6)
    twice = fit(np.repeat(x, 2, axis=1), y, tuple(np.repeat(NAMES, 2)))
    np.testing.assert_allclose(twice.predict(np.repeat(asked, 2, axis=1)), fitted.predict(asked), atol=1e-5)


def test_a_unit_changes_little_and_a_constant_column_nothing(fitted: KernelRidge) -> None:
    x, y = rows(200)
    asked, _ = rows(100, seed=6)
    wider = fit(np.column_stack([x, np.full(200, 7.0)]), y, (*NAMES, "own constant"))
    said = wider.predict(np.column_stack([asked, np.full(100, 7.0)]))
    np.testing.assert_allclose(said, fitted.predict(asked), atol=1e-6)


def test_a_row_of_hardly_any_weight_changes_hardly_anything(fitted: KernelRidge) -> None:
    x, y = rows(200)
    weight = np.ones(200)
    weight[7] = 1e-9
    odd = y.copy()
    odd[7] = y.min()  # another value, within the range
    clean = fit(x, y, weight=weight)
    np.testing.assert_allclose(fit(x, odd, weight=weight).predict(x), clean.predict(x), atol=0.02)


def test_a_prediction_costs_the_same_however_many_rows_were_learned_from() -> None:
    assert len(fit(*rows(CENTRES * 3)).centres) == CENTRES


@pytest.mark.parametrize("columns", [0, 1])
def test_features_that_tell_nothing_leave_the_mean(columns: int) -> None:
    y = np.random.default_rng(7).normal(0.3, 0.1, 30)
    found = fit(np.full((30, columns), 3.0), y, NAMES[:columns])
    np.testing.assert_allclose(found.predict(np.full((2, columns), 3.0)), y.mean(), atol=1e-6)


def test_each_block_of_features_spans_a_variance_of_one() -> None:
    x, _ = rows(500)
    space = fit_feature_space(x, NAMES)
    at, block = space(x), np.array(space.block)
    for number in np.unique(block):
        assert at[:, block == number].var(axis=0).sum() == pytest.approx(1.0, rel=1e-6)


def test_beyond_its_training_rows_it_says_what_it_says_at_their_edge() -> None:
    x, y = rows(200)
    found = fit(x, y)
    far = x[:20].copy()
    far[:, 2] *= 1e6
    farther = far.copy()
    farther[:, 2] *= 1e6
    np.testing.assert_allclose(found.predict(farther), found.predict(far))
    at = found.space(farther)
    assert (at >= found.space.least - 1e-9).all()
    assert (at <= found.space.most + 1e-9).all()
