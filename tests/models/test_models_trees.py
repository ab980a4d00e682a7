"""Trees as arrays: they say bit by bit what LightGBM says, bound every row, and survive whatever stands in a file."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.learning import trees
from models.learning.trees import TreeEnsembles
from tests.examples import examples

COLUMNS = 5
DAMAGES = 1500
NASTY: list[Any] = [-1, 0, 1, 3, 7, 123456789, -(2**31), 2**31, 2**70, 1.5, 1e300, None, True, "x", [], {}]
# Reads one document a line, and says of each what became of it before it reads the next.
CHILD = """
import json, sys
import numpy as np
from models.learning.trees import TreeEnsembles

rows = np.array([[0.1, 0.5, np.nan, 0.9, -np.inf], [1e300, -1e300, 0.0, 5.0, np.inf], [0.4] * 5])
for line in sys.stdin:
    try:
        read = TreeEnsembles.from_json(json.loads(line), 5)
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
        print("refused", flush=True)
        continue
    said = read(rows)
    least, most = read.extremes
    assert np.isfinite(said).all() and (said >= least[:, None] - 1e-9).all() and (said <= most[:, None] + 1e-9).all()
    print("predicts", flush=True)
"""


def rows_of(seed: int, count: int = 300, unknown: float = 0.1) -> Floats:
    """Whole and other numbers, zeros and less than what LightGBM takes for zero, infinities, and what is unknown."""
    chance = np.random.default_rng(seed)
    x = np.round(chance.normal(0, 3, (count, COLUMNS)), chance.integers(0, 3))
    x[chance.random(x.shape) < unknown] = np.nan
    x[chance.random(x.shape) < 0.05] = np.inf
    x[chance.random(x.shape) < 0.05] = -1e-36
    return x


def trained(seed: int, leaves: int, unknown: float = 0.1, **options: Any) -> lightgbm.Booster:
    x = rows_of(seed, unknown=unknown)
    known = np.nan_to_num(x, posinf=5.0)
    target = np.where(known[:, 0] > 0, known[:, 1], known[:, 2]) + np.random.default_rng(seed).normal(0, 0.1, len(x))
    how = {"num_leaves": leaves, "min_data_in_leaf": 2, "verbosity": -1, "num_threads": 1, "seed": seed, **options}
    return lightgbm.train(how, lightgbm.Dataset(x, target, params=how), num_boost_round=12)


def asked(boosters: list[lightgbm.Booster], x: Floats) -> Floats:
    return np.stack([booster.predict(x, num_threads=1) for booster in boosters])


def without_library() -> Any:
    return patch.object(TreeEnsembles, "_ranked", None)


@settings(max_examples=examples(60), deadline=None)
@given(
    leaves=st.integers(2, 90),
    unknown=st.sampled_from([0.0, 0.1, 0.6]),
    count=st.sampled_from([0, 1, 7, 8, 9, 64, 65, 200]),
    seed=st.integers(0, 999),
)
def test_they_say_bit_by_bit_what_lightgbm_says(leaves: int, unknown: float, count: int, seed: int) -> None:
    boosters = [trained(seed, leaves, unknown), trained(seed + 1, max(leaves - 1, 2), 0.0)]
    made = TreeEnsembles.of(boosters, COLUMNS)
    read = TreeEnsembles.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False)), COLUMNS)
    x = rows_of(seed + 7, count, 0.3)
    x[: len(made.threshold), 0] = made.threshold[:count]  # rows on an edge
    expected = asked(boosters, x) if count else np.empty((2, 0))
    np.testing.assert_array_equal(read(x), expected)
    with without_library():
        np.testing.assert_array_equal(read(x), expected)


@settings(max_examples=examples(60), deadline=None)
@given(leaves=st.integers(2, 40), seed=st.integers(0, 999), size=st.sampled_from([0.0, 0.5, 3.0]))
def test_no_row_leaves_the_bounds_of_its_box(leaves: int, seed: int, size: float) -> None:
    chance, made = np.random.default_rng(seed), TreeEnsembles.of([trained(seed, leaves)], COLUMNS)
    low = rows_of(seed + 1, 20, 0.2)
    high = low + size * chance.random(low.shape)
    least, most = made.bounds(low, high)
    for part in (0.0, 1.0, *chance.random(5)):
        between = low + part * np.subtract(high, low, out=np.zeros_like(low), where=np.isfinite(low))
        between[np.isnan(low)] = chance.choice([np.nan, 0.0, 9.0, -9.0, np.inf], int(np.isnan(low).sum()))
        said = made(between)
        assert (said >= least - 1e-9).all()
        assert (said <= most + 1e-9).all()
    known = ~np.isnan(low).any(axis=1)
    exact = made.bounds(low[known], low[known])
    np.testing.assert_allclose(exact[0], made(low[known]), rtol=0, atol=1e-9)
    np.testing.assert_allclose(exact[1], made(low[known]), rtol=0, atol=1e-9)


def test_extremes_are_the_sums_of_each_trees_extreme_leaves() -> None:
    made = TreeEnsembles.of([trained(3, 9), trained(4, 5)], COLUMNS)
    leaves = [made.value[begin:end][made.feature[begin:end] < 0] for begin, end in pairwise(made.first.tolist())]
    expected = [[sum(pick(tree) for tree in leaves[at : at + 12]) for at in (0, 12)] for pick in (min, max)]
    np.testing.assert_allclose(made.extremes, expected)


def test_a_tree_that_never_splits_says_the_same_of_every_row() -> None:
    x = rows_of(0)
    same = lightgbm.Dataset(x, np.full(len(x), 2.5), params={"verbosity": -1})
    booster = lightgbm.train({"verbosity": -1, "num_leaves": 4}, same, 2)
    np.testing.assert_array_equal(TreeEnsembles.of([booster], COLUMNS)(x), asked([booster], x))


def test_splits_of_another_form_are_refused() -> None:
    x = np.abs(np.round(np.nan_to_num(rows_of(1), posinf=2.0)))
    for options, categories in (({"zero_as_missing": True}, "auto"), ({}, [0])):
        how = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 2, **options}
        data = lightgbm.Dataset(x, x[:, 0] % 2, categorical_feature=categories, params=how)
        booster = lightgbm.train(how, data, 3)
        with pytest.raises(ValueError, match="other splits"):
            TreeEnsembles.of([booster], COLUMNS)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Three trees of two ensembles."""
    whole = TreeEnsembles.of([trained(5, 6), trained(6, 4)], COLUMNS)
    end = int(whole.first[3])
    parts = {name: getattr(whole, name)[:end] for name in trees._FIELDS}
    return TreeEnsembles(COLUMNS, whole.first[:4], np.array([2, 3]), **parts).to_json()


def damaged(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """One to three changes of values, of lengths and of whole fields."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    for _ in range(chance.randint(1, 3)):
        name = chance.choice(sorted(found))
        value = found[name]
        if not isinstance(value, list) or not value or chance.random() < 0.05:
            found[name] = chance.choice(NASTY)
            continue
        at = chance.randrange(len(value))
        match chance.randrange(5):
            case 0:
                value[at] = chance.choice(NASTY)
            case 1:
                del value[at]
            case 2:
                value.insert(at, chance.choice(NASTY))
            case 3:
                other = chance.randrange(len(value))
                value[at], value[other] = value[other], value[at]
            case _ if isinstance(value[at], int | float):
                value[at] += chance.choice([-1, 1, 2])
    return found


def test_no_damage_ends_the_process_that_reads_it(document: dict[str, Any]) -> None:
    chance = random.Random(20261128)
    given = [json.dumps(damaged(document, chance)) for _ in range(DAMAGES)]
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input="\n".join(given),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}\n{given[len(said) : len(said) + 1]}"
    assert set(said) == {"refused", "predicts"}
    assert said.count("refused") > DAMAGES / 2


def test_branches_that_meet_are_refused(document: dict[str, Any]) -> None:
    """A node with two parents would have its depth from one of them, and a walk would end before a leaf."""
    meeting = json.loads(json.dumps(document))
    splits = [at for at, feature in enumerate(meeting["feature"][: meeting["first"][1]]) if feature >= 0]
    meeting["right"][splits[0]] = meeting["right"][splits[1]]
    with pytest.raises(ValueError, match="no parent, or several"):
        TreeEnsembles.from_json(meeting, COLUMNS)


def test_rows_with_another_number_of_features_are_refused(document: dict[str, Any]) -> None:
    read = TreeEnsembles.from_json(document, COLUMNS)
    with pytest.raises(ValueError, match="features"):
        read(np.zeros((3, COLUMNS + 1)))
    with pytest.raises(ValueError, match="another number of features"):
        TreeEnsembles.from_json(document, COLUMNS + 1)
    with pytest.raises(ValueError, match="boxes"):
        read.bounds(np.zeros((3, COLUMNS)), np.zeros((2, COLUMNS)))


def test_the_compiled_functions_are_there_where_there_is_a_compiler() -> None:
    assert trees._library() is not None
