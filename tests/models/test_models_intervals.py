"""Conformal intervals: the quantile as it is defined, and coverage that holds for workloads nobody has seen."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.arrays import Floats
from models.learning.intervals import (
    FEW,
    HINTS,
    LEAST_ERROR,
    LEAST_SCALED,
    Calibration,
    calibrate,
    finite_quantile,
    hints_of,
    out_of_fold_scales,
)
from tests.examples import examples

SCORES = st.lists(st.floats(0, 100), min_size=1, max_size=60)


@settings(max_examples=examples(100), deadline=None)
@given(SCORES, st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_the_quantile_is_the_ceiling_th_smallest_score(scores: list[float], level: float) -> None:
    rank = math.ceil((len(scores) + 1) * level)
    found = finite_quantile(np.array(scores), level)
    if rank <= len(scores):
        assert found == sorted(scores)[rank - 1]
        assert sum(score <= found for score in scores) >= rank
    else:
        assert found == max(scores) * 1.5


def test_a_nine_in_ten_quantile_needs_nine_scores() -> None:
    assert finite_quantile(np.arange(1.0, 10.0)) == 9.0
    assert finite_quantile(np.arange(1.0, 9.0)) == 12.0
    assert finite_quantile(np.arange(1.0, 20.0)) == 18.0


# simulated errors


@dataclass(frozen=True)
class Errors:
    """Errors of log ratio of J rows as judging leaves them, and what they depend on."""

    x: Floats
    hints: Floats
    error: Floats
    known: NDArray[np.bool_]
    platform: NDArray[np.str_]
    fold: NDArray[np.int64]

    def fit(self) -> Calibration:
        return calibrate(
            self.x, self.hints, self.error, self.known, self.platform.tolist(), np.arange(len(self.x)), self.fold
        )

    def inside(self, fitted: Calibration) -> NDArray[np.bool_]:
        """Whether the lower and the upper bound hold; (2, J)."""
        nowhere = np.zeros(len(self.x), dtype=bool)
        down, up = fitted.half_widths(self.x, self.hints, self.known, nowhere, self.platform)
        return np.stack([self.error >= -down, self.error <= up])


def errors(seed: int, pairs: int = 250, repeats: int = 3) -> Errors:
    """Every pair is off in its own way and its repeats with it: more where a feature is large, on platform q, and where
    workloads are not known."""
    random = np.random.default_rng(seed)
    hard, on_q = random.uniform(0, 1, pairs), random.random(pairs) < 0.5
    known = random.random(pairs) < 0.5
    size = (0.02 + 0.25 * hard) * np.where(on_q, 1.6, 1.0) * np.where(known, 1.0, 1.7)
    of_pair = 0.6 * random.normal(size=(pairs, 1)) + 0.8 * random.normal(size=(pairs, repeats))
    hard_row, known_row = np.repeat(hard, repeats), np.repeat(known, repeats)
    return Errors(
        x=np.stack([hard_row, random.normal(size=pairs * repeats)], axis=1),
        hints=np.stack([-hard_row, -hard_row, 0 * hard_row, known_row], axis=1),
        error=(size[:, None] * of_pair).ravel(),
        known=known_row,
        platform=np.where(np.repeat(on_q, repeats), "q", "p"),
        fold=np.repeat(random.integers(0, 8, pairs), repeats),
    )


@cache
def coverage() -> dict[str, float]:
    """Share of new rows inside, over several seeds, for each group of them."""
    found: dict[str, list[float]] = {}
    for seed in range(8):
        fitted, new = errors(seed).fit(), errors(1000 + seed, pairs=1500, repeats=2)
        above, below = new.inside(fitted)
        hard = new.x[:, 0] > 2 / 3
        groups = {"all": above | True, "known": new.known, "unknown": ~new.known, "hard": hard, "easy": ~hard}
        groups |= {name: new.platform == name for name in ("p", "q")}
        for name, mask in groups.items():
            found.setdefault(name, []).append(float((above & below)[mask].mean()))
        found.setdefault("lower", []).append(float(above.mean()))
        found.setdefault("upper", []).append(float(below.mean()))
    return {name: float(np.mean(shares)) for name, shares in found.items()}


@pytest.mark.parametrize("group", ["all", "known", "unknown", "p", "q"])
def test_nine_in_ten_new_results_lie_inside(group: str) -> None:
    assert 0.87 <= coverage()[group] <= 0.93


@pytest.mark.parametrize("group", ["hard", "easy"])
def test_hard_rows_are_covered_like_easy_ones(group: str) -> None:
    assert 0.86 <= coverage()[group] <= 0.94


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_each_bound_alone_holds_in_95_of_100(side: str) -> None:
    assert 0.93 <= coverage()[side] <= 0.97


def test_intervals_are_wider_where_the_errors_were_larger() -> None:
    made = errors(0)
    fitted = made.fit()
    asked = np.array([[0.02, 0.0], [0.98, 0.0]])
    hints = np.stack([-asked[:, 0], -asked[:, 0], [0.0, 0.0], [0.0, 0.0]], axis=1)
    no = np.zeros(2, dtype=bool)
    quiet, busy = fitted.half_widths(asked, hints, no, no, np.array(["p", "p"]))[0]
    assert busy > 2.5 * quiet


def test_errors_to_one_side_make_an_interval_to_one_side() -> None:
    made = errors(0)
    slanted = Errors(made.x, made.hints, -np.abs(made.error), made.known, made.platform, made.fold)
    down, up = slanted.fit().half_widths(made.x, made.hints, made.known, ~made.known & False, made.platform)
    np.testing.assert_allclose(up, LEAST_ERROR)
    assert (down > 10 * up).mean() > 0.9


def test_a_difficulty_has_not_seen_the_row_that_it_judges_in_any_fold() -> None:
    """Every row is left out twice, as with either of its workloads; what was measured there tells nothing of it."""
    made, random = errors(0, pairs=60), np.random.default_rng(0)
    row = np.tile(np.arange(len(made.x)), 2)
    fold = np.concatenate([made.fold, random.permutation(made.fold)])
    x, hints, error = (np.concatenate([values, values]) for values in (made.x, made.hints, made.error))
    before = out_of_fold_scales(x, hints, error, row, fold)
    for odd in (3, 100):
        mine = row == odd
        after = out_of_fold_scales(x, hints, np.where(mine, 50.0, error), row, fold)
        np.testing.assert_array_equal(after[mine], before[mine])
        assert not np.array_equal(after, before)


def test_a_platform_of_few_scores_lies_between_its_own_and_everybodys() -> None:
    random = np.random.default_rng(0)
    few, many = random.normal(0, 0.3, FEW + 10), random.normal(0, 0.02, 600)
    alone = half(unscaled(few, "q"), True, platform="q")
    fitted = unscaled(np.concatenate([few, many]), *("q",) * len(few), *("p",) * len(many))
    for mine, own, other in zip(
        half(fitted, True, platform="q"), alone, half(fitted, True, platform="new"), strict=True
    ):
        assert other < mine < 0.7 * own + 0.3 * other


# few or no judgements, and what holds for any


def unscaled(error: Floats, *platform: str) -> Calibration:
    """Calibrated on known workloads by errors of which none is harder than another."""
    known = np.ones(len(error), dtype=bool)
    return replace(plain(error, known, *platform, scale=np.ones(len(error))), difficulty=None, typical=1.0)


def plain(
    error: Floats, known: NDArray[np.bool_], *platform: str, folds: int = 4, scale: Floats | None = None
) -> Calibration:
    """Calibrated by errors of rows alike in all else, on one platform or on a platform for each row."""
    rows = len(error)
    names = platform if len(platform) == rows else (platform or ("p",)) * rows
    zeros, number = np.zeros((rows, 1)), np.arange(rows)
    return calibrate(zeros, np.zeros((rows, HINTS)), error, known, names, number, number % folds, scale)


def half(fitted: Calibration, known: bool, outside: bool = False, platform: str = "p") -> tuple[float, float]:
    """Both half widths of one row."""
    down, up = fitted.half_widths(
        np.zeros((1, 1)), np.zeros((1, HINTS)), np.array([known]), np.array([outside]), np.array([platform])
    )
    return float(down[0]), float(up[0])


def test_without_judgements_the_interval_is_wide() -> None:
    fitted = plain(np.zeros(0), np.zeros(0, dtype=bool))
    for known in (True, False):
        assert min(half(fitted, known)) > np.log(2)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 120), st.floats(0, 1), st.integers(0, 99))
def test_what_is_known_is_never_less_certain_and_what_is_outside_twice_as_uncertain(
    rows: int, share: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    fitted = plain(random.normal(0, 0.2, rows), random.random(rows) < share)
    assert sum(half(fitted, True)) <= sum(half(fitted, False)) + LEAST_ERROR  # which a side is at least
    for known in (True, False):
        inside, outside = np.array(half(fitted, known)), np.array(half(fitted, known, outside=True))
        wide = inside > LEAST_ERROR
        np.testing.assert_allclose(outside[wide], 2 * inside[wide])
        assert (inside >= LEAST_ERROR).all()


def test_perfect_predictions_still_have_an_interval() -> None:
    for rows in (FEW, LEAST_SCALED + 1):
        assert min(half(plain(np.zeros(rows), np.zeros(rows, dtype=bool)), known=False)) >= LEAST_ERROR


def test_few_scores_of_a_kind_are_judged_together_with_the_rest() -> None:
    error = np.concatenate([np.full(FEW - 1, 0.01), np.full(2 * FEW, 0.3)])[: LEAST_SCALED - 1]
    fitted = plain(error, np.arange(len(error)) < FEW - 1)
    assert fitted.quantiles["known"][""] == fitted.quantiles["unknown"][""]
    error[FEW - 1] = 0.01
    fitted = plain(error, np.arange(len(error)) < FEW)
    assert sum(fitted.quantiles["known"][""]) < sum(fitted.quantiles["unknown"][""])


def test_a_platform_is_believed_the_more_the_more_rows_it_has_and_a_new_one_gets_the_pooled_width() -> None:
    random = np.random.default_rng(0)

    def of_calm(rows: int) -> tuple[float, float]:
        """Half widths on a calm platform with so many rows, and on one nobody has seen."""
        error = np.concatenate([random.normal(0, 0.01, rows), random.normal(0, 0.3, 800)])
        names = ["calm"] * rows + ["wild"] * 800
        fitted = plain(error, np.zeros(len(error), dtype=bool), *names, folds=5)
        assert "new" not in fitted.quantiles["unknown"]
        return half(fitted, False, platform="calm")[0], half(fitted, False, platform="new")[0]

    few, some, many = of_calm(FEW - 1), of_calm(60), of_calm(400)
    assert few[0] == few[1]
    assert some[0] < 0.8 * some[1]
    assert many[0] < 0.4 * many[1]


def test_a_calibration_survives_json() -> None:
    made = errors(1, pairs=60)
    fitted = made.fit()
    assert fitted.difficulty is not None
    again = Calibration.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False)), fitted.difficulty)
    assert again == fitted


@pytest.mark.parametrize("group", ["known", "unknown"])
def test_json_without_a_width_for_new_platforms_is_refused(group: str) -> None:
    value = errors(1, pairs=60).fit().to_json()
    del value["quantiles"][group][""]
    with pytest.raises(ValueError, match=f"no interval for {group} workloads on new platforms"):
        Calibration.from_json(value, None)
    del value["quantiles"][group]
    with pytest.raises(KeyError):
        Calibration.from_json(value, None)


def test_hints_are_the_expected_change_the_priors_how_members_differ_and_what_is_known() -> None:
    found = hints_of(np.array([0.5]), np.array([-0.1]), np.array([[0.0, 0.3, 0.6]]), np.array([True]))
    np.testing.assert_allclose(found, [[np.log(0.5) - 0.1, np.log(0.5), np.std([0.0, 0.3, 0.6]), 1.0]])
    assert hints_of(np.ones(2), np.zeros(2), np.zeros((2, 0)), np.zeros(2, dtype=bool)).shape == (2, HINTS)


def test_a_platform_with_rows_of_one_kind_tells_of_the_other_kind_too() -> None:
    random = np.random.default_rng(0)
    error = np.concatenate([random.normal(0, size, 300) for size in (0.2, 0.02, 0.2, 0.8)])
    known = np.repeat([False, False, True, True], 300)
    platform = np.repeat(["mixed", "calm", "mixed", "wild"], 300).tolist()
    fitted = plain(error, known, *platform, folds=5)
    for name in ("mixed", "calm", "wild", "new"):
        assert sum(half(fitted, True, platform=name)) <= sum(half(fitted, False, platform=name))
    assert sum(half(fitted, True, platform="calm")) < 0.5 * sum(half(fitted, True, platform="new"))
    assert sum(half(fitted, False, platform="wild")) > 1.5 * sum(half(fitted, False, platform="mixed"))
