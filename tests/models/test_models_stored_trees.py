"""Stored trees answer as LightGBM does, bit by bit, without importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.learning.tree_text import read_trees
from tests.examples import examples
from tests.models.made_models import fitted

FEATURES = 5


def rows(random: np.random.Generator, count: int) -> Floats:
    """Features with unknown values, zeros, and values so small that LightGBM takes them for zero."""
    x = random.normal(size=(count, FEATURES))
    special = random.random(x.shape)
    x[special < 0.3] = np.nan
    x[(special > 0.3) & (special < 0.5)] = 0.0
    x[(special > 0.5) & (special < 0.55)] = 1e-36
    return x


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    leaves=st.integers(2, 60),
    forest=st.booleans(),
    zero_is_unknown=st.booleans(),
    use_missing=st.booleans(),
)
def test_they_answer_bit_by_bit_as_lightgbm(
    seed: int, leaves: int, forest: bool, zero_is_unknown: bool, use_missing: bool
) -> None:
    random = np.random.default_rng(seed)
    x = rows(random, 200)
    y = np.nan_to_num(x[:, 0]) + np.isnan(x[:, 1]) * 0.7 + (x[:, 2] == 0) * 0.3 + random.normal(0, 0.1, 200)
    options = {
        "verbosity": -1, "num_leaves": leaves, "min_data_in_leaf": 3, "seed": seed % 1000, "num_threads": 1,
        "zero_as_missing": zero_is_unknown, "use_missing": use_missing,
        **({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6} if forest else {}),
    }  # fmt: skip
    booster = lightgbm.train(options, lightgbm.Dataset(x, y, params=options), num_boost_round=8)
    stored = read_trees(booster.model_to_string(), FEATURES)
    asked = rows(random, 37)
    np.testing.assert_array_equal(stored.walked(asked), booster.predict(asked, num_threads=1))
    np.testing.assert_array_equal(stored.predict(asked), stored.walked(asked))


ASKING = """
import sys
from pathlib import Path
from models.learning import artifact, smoke_test
predictor = artifact.load(Path(sys.argv[1]))
smoke_test._check(predictor, smoke_test._scenes(smoke_test._profiles(predictor.reference)))
print([name for name in ("lightgbm", "sklearn", "pandas") if name in sys.modules])
"""


def test_a_model_answers_without_the_libraries_that_trained_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKING, str(fitted())],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_many_rows_are_answered_by_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    x = rows(random, 100)
    booster = lightgbm.train({"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(x, x[:, 3] > 0), num_boost_round=3)
    stored = read_trees(booster.model_to_string(), FEATURES)
    monkeypatch.setattr(type(stored), "walked", lambda _self, _x: pytest.fail("too many to walk"))
    np.testing.assert_array_equal(stored.predict(x), booster.predict(x))
