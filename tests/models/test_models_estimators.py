"""Folds that do not leak, a residual model that can fall back to the prior, and odd training data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import COLOCATION_COLUMNS, PROFILE_COLUMNS, Floats, World, batch, host, instance, write_csv

from models.dataset import DatasetError, load_dataset
from models.estimators import (
    LEAST_ROWS,
    NOTHING_LEARNED,
    Judged,
    at_trust,
    choose_trust,
    fit,
    judge,
    pair_folds,
    target_of,
    workload_folds,
)
from models.examples import Examples, Neighbour, build_examples, metrics_of
from models.fitted import fit_target
from models.learned import LearnedPredictor
from models.scene import ProfileTable
from models.training import fit_predictor

Rows = list[dict[str, object]]


def examples_of(path: Path, *, target: str = "throughput") -> Examples:
    data = load_dataset(path)
    return build_examples([data], metrics_of([data]), target=target)


def made_up(pairs: list[tuple[str, ...]], ratio: Floats | None = None) -> Examples:
    """Examples with these workloads in their runs, the first of each as the victim."""
    count = len(pairs)
    return Examples(
        x=np.arange(count * 2.0).reshape(count, 2),
        names=("own cpu", "prior"),
        pressure=np.zeros(2, dtype=bool),
        ratio=np.full(count, 0.5) if ratio is None else ratio,
        base=np.full(count, 0.8),
        victim=tuple(pair[0] for pair in pairs),
        neighbours=tuple(tuple(Neighbour(one, 1.0) for one in pair[1:]) for pair in pairs),
        pair=tuple("+".join(sorted(pair)) for pair in pairs),
        platform=("d/p",) * count,
        setting=("",) * count,
        run=tuple(f"d/{at}" for at in range(count)),
        size=np.array([len(pair) for pair in pairs], dtype=np.int64),
    )


PAIRS = st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=3).map(tuple), min_size=1, max_size=30)


# folds


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.integers(0, 5), st.integers(1, 8))
def test_folds_by_pair_never_put_one_set_of_workloads_on_both_sides(
    pairs: list[tuple[str, ...]], seed: int, count: int
) -> None:
    examples = made_up(pairs)
    folds = pair_folds(examples, seed, count)
    for trained, judged in folds:
        assert not {examples.pair[row] for row in trained} & {examples.pair[row] for row in judged}
        assert sorted([*trained, *judged]) == list(range(len(pairs)))
    if folds:
        assert sorted(row for _, judged in folds for row in judged) == list(range(len(pairs)))


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.integers(1, 8))
def test_folds_by_workload_train_on_no_run_that_contains_a_left_out_workload(
    pairs: list[tuple[str, ...]], most: int
) -> None:
    examples = made_up(pairs)
    for trained, judged in workload_folds(examples, most):
        left_out = set(examples.take(judged).workloads) - set(examples.take(trained).workloads)
        assert left_out
        for row in trained:
            assert not left_out & set(examples.pair[row].split("+"))
        assert all(left_out & set(examples.pair[row].split("+")) for row in judged)


def test_every_workload_is_left_out_once_where_there_are_few() -> None:
    examples = made_up([("a", "b"), ("b", "c"), ("c", "a"), ("d", "d")])
    assert [len(judged) for _, judged in workload_folds(examples)] == [2, 2, 2, 1]


def test_folds_are_the_same_for_the_same_seed() -> None:
    examples = made_up([(one, other) for one in "abcdef" for other in "abcdef"])
    first, again, other = (pair_folds(examples, seed) for seed in (0, 0, 1))
    assert all((one[1] == two[1]).all() for one, two in zip(first, again, strict=True))
    assert any(len(one[1]) != len(two[1]) or (one[1] != two[1]).any() for one, two in zip(first, other, strict=True))


def test_a_single_pair_or_workload_cannot_be_left_out() -> None:
    assert pair_folds(made_up([("a", "b")] * 9)) == []
    assert workload_folds(made_up([("a", "a")] * 9)) == []


# the residual model


def test_the_same_seed_gives_the_same_model(world_path: Path, few_trees: None) -> None:
    examples = examples_of(world_path)
    one, again = fit(examples, seed=3), fit(examples, seed=3)
    assert one.booster is not None
    assert again.booster is not None
    assert one.booster.model_to_string() == again.booster.model_to_string()
    assert one.effects == again.effects


def test_with_few_rows_nothing_is_learned(world_path: Path) -> None:
    examples = examples_of(world_path).take(np.arange(LEAST_ROWS - 1))
    model = fit(examples)
    assert model is NOTHING_LEARNED
    assert not model.log_correction(examples.x, examples.victim, examples.neighbours).any()


def test_no_rows_get_no_correction(world_path: Path, few_trees: None) -> None:
    examples = examples_of(world_path)
    none = examples.take(np.zeros(0, dtype=np.int64))
    assert fit(examples).log_correction(none.x, none.victim, none.neighbours).shape == (0,)


def test_trust_zero_gives_exactly_the_prior(world_path: Path, few_trees: None) -> None:
    examples = examples_of(world_path)
    fitted = fit_target(examples, "throughput")
    model = replace(fitted.model, trust_known=0.0, trust_unknown=0.0)
    correction = model.log_correction(examples.x, examples.victim, examples.neighbours)
    known = model.all_known(examples.victim, examples.neighbours)
    said = replace(fitted, model=model).estimate(examples.x, examples.base, correction, known, examples.size)
    np.testing.assert_array_equal(said.expected, examples.base)


def test_a_stranger_makes_a_row_unknown_whether_victim_or_neighbour(world_path: Path, few_trees: None) -> None:
    model = replace(fit(examples_of(world_path)), trust_known=1.0, trust_unknown=0.25)
    known = model.all_known(
        ["w0", "x", "w0", "w0"],
        [[Neighbour("w1", 1.0)], [Neighbour("w1", 1.0)], [Neighbour("w1", 1.0), Neighbour("x", 0.0)], []],
    )
    assert known.tolist() == [True, False, False, True]
    assert model.trust(known).tolist() == [1.0, 0.25, 0.25, 1.0]


def test_trust_is_what_leaves_the_least_error() -> None:
    examples = made_up([("a", "b")] * 4, ratio=np.array([0.4, 0.4, 0.4, 0.4]))
    residual = target_of(examples)
    rows, known = np.arange(4), np.ones(4, dtype=bool)

    def with_correction(correction: float) -> Judged:
        return Judged(rows, residual - correction, known)

    assert choose_trust(examples, with_correction(float(residual[0])), known) == 1.0
    assert choose_trust(examples, with_correction(2 * float(residual[0])), known) == 0.5
    assert choose_trust(examples, with_correction(-0.3), known) == 1.0
    assert choose_trust(examples, with_correction(+0.3), known) == 0.0
    assert choose_trust(examples, with_correction(0.0), known) == 0.0
    assert choose_trust(examples, with_correction(0.3), ~known, untested=0.0) == 0.0


def test_a_judgement_at_other_trust_is_the_prior_at_zero_and_itself_at_one() -> None:
    examples = made_up([("a", "b")] * 3)
    judged = Judged(np.arange(3), np.array([0.1, -0.2, 0.3]), np.array([True, False, True]))
    np.testing.assert_allclose(at_trust(examples, judged, 1.0, 1.0).error, judged.error)
    np.testing.assert_allclose(at_trust(examples, judged, 0.0, 0.0).error, target_of(examples))
    mixed = at_trust(examples, judged, 1.0, 0.0).error
    np.testing.assert_allclose(mixed[[0, 2]], judged.error[[0, 2]])
    assert mixed[1] == pytest.approx(target_of(examples)[1])


def test_judging_without_folds_says_nothing() -> None:
    assert len(judge(made_up([("a", "b")] * 9), []).row) == 0


def test_a_fitted_target_is_not_worse_than_the_prior_on_what_it_was_judged_on(
    world_path: Path, few_trees: None
) -> None:
    figures = fit_target(examples_of(world_path), "throughput").figures
    rows = sum(one["rows"] for one in figures.values())
    ours, prior = (sum(one[key] * one["rows"] for one in figures.values()) / rows for key in ("mae", "mae_prior"))
    assert ours <= prior + 1e-9


# odd data: no crash, no warning (warnings are errors), no confident guess


def world_rows(**more: object) -> Rows:
    return [{**row, **more} for row in World(workloads=3).rows()]


def metric_rows(value: Callable[[int, int], float], metrics: int) -> Rows:
    return [
        {"workload": f"w{at}", "metric": f"m{metric}", "value": value(at, metric)}
        for at in range(3)
        for metric in range(metrics)
    ]


def pair_rows(*names: str) -> Rows:
    """Twenty rows of one pair."""
    mine = [row for row in World(workloads=3).rows() if row["run"] == "0.0-" + "-".join(names)]
    return [{**row, "repeat": f"{number}-{row['repeat']}"} for number in range(5) for row in mine]


ODD: dict[str, tuple[Rows, Rows | None]] = {
    "no metrics": (world_rows(), []),
    "constant metrics": (world_rows(), metric_rows(lambda *_: 7.0, 3)),
    "collinear metrics": (world_rows(), metric_rows(lambda at, metric: (at + 1) * 10.0 ** (4 * metric), 3)),
    "huge and tiny metrics": (world_rows(), metric_rows(lambda at, metric: [1e15, 5e-324, 0.0][(at + metric) % 3], 3)),
    "many more metrics than rows": (world_rows(), metric_rows(lambda at, metric: (at * 7 + metric) % 5, 150)),
    "ratio 0": (world_rows(colocated=0), None),
    "ratio 3": (world_rows(colocated=300), None),
    "ratio 1": (world_rows(colocated=100), None),
    "one pair": (pair_rows("0", "1"), None),
    "one workload": (pair_rows("0", "0"), None),
    "contradictory repeats": (
        [{**row, "repeat": f"{k}-{row['repeat']}", "colocated": k} for k in (20, 100) for row in world_rows()],
        None,
    ),
}


def odd_dataset(path: Path, name: str) -> Path:
    rows, profiles = ODD[name]
    World(workloads=3).write(path)
    write_csv(path / "colocations.csv", rows, COLOCATION_COLUMNS)
    if profiles is not None:
        write_csv(path / "profiles.csv", profiles, PROFILE_COLUMNS)
    return path


def trained(path: Path, few_trees: None = None) -> tuple[LearnedPredictor, ProfileTable]:
    data = load_dataset(path)
    return fit_predictor([data]), ProfileTable.build(data.profiles)


@pytest.mark.parametrize("name", ODD)
def test_odd_training_data_give_numbers_inside_intervals(tmp_path: Path, few_trees: None, name: str) -> None:
    predictor, table = trained(odd_dataset(tmp_path / "odd", name))
    there = host("lxc", 2)
    said = predictor.predict(
        batch(
            (there, [instance("a", "w0", pins="0:0"), instance("b", "w1", pins="0:0")]),
            (there, [instance("a", "w2"), instance("b", None)]),
            (host("xen", 8), [instance("a", "stranger", vcpus=2), instance("b", "w0", cap=10.0)]),
            table=table,
        )
    )
    for band in (said.throughput, said.latency):
        for values in (band.expected, band.lower, band.upper):
            assert np.isfinite(values).all()
            assert (values > 0).all()
        assert (band.lower <= band.expected).all()
        assert (band.expected <= band.upper).all()
    assert (said.throughput.expected <= 1.1).all()
    assert (said.throughput.lower <= 1.0).all()


@pytest.mark.parametrize("name", ["one pair", "one workload"])
def test_what_nothing_could_be_left_out_of_is_not_trusted_with_strangers(
    tmp_path: Path, few_trees: None, name: str
) -> None:
    predictor, table = trained(odd_dataset(tmp_path / "odd", name))
    assert predictor.throughput.model.trust_unknown == 0.0
    said = predictor.predict(
        batch((host("lxc", 2), [instance("a", "w2", pins="0:0"), instance("b", "w0", pins="0:0")]), table=table)
    )
    assert (said.throughput.expected[0] / said.throughput.lower[0] > 2).all()


def test_contradictory_repeats_give_wide_intervals(tmp_path: Path, few_trees: None) -> None:
    predictor, table = trained(odd_dataset(tmp_path / "odd", "contradictory repeats"))
    said = predictor.predict(
        batch((host("lxc", 2), [instance("a", "w0", pins="0:0"), instance("b", "w1", pins="0:0")]), table=table)
    )
    assert (said.throughput.lower[0] <= 0.21).all()
    assert (said.throughput.upper[0] >= 0.99).all()


@pytest.mark.parametrize("rows", [0, 2, LEAST_ROWS - 1])
def test_too_few_rows_are_refused_with_their_number(tmp_path: Path, rows: int) -> None:
    path = World(workloads=3).write(tmp_path / "few")
    write_csv(path / "colocations.csv", World(workloads=3).rows()[:rows], COLOCATION_COLUMNS)
    with pytest.raises(DatasetError, match=f"few: {rows} measured throughput ratios, at least {LEAST_ROWS} are needed"):
        fit_predictor([load_dataset(path)])


def test_a_question_far_outside_the_training_data_is_marked_and_gets_a_wider_interval(
    world_path: Path, few_trees: None
) -> None:
    examples = examples_of(world_path)
    fitted = fit_target(examples, "throughput")
    assert not fitted.outside(examples.x).any()
    assert fitted.outside(examples.x * 50 + 1000).all()
    row = examples.take(np.array([0]))
    known, size = np.array([True]), np.array([2])
    near = fitted.estimate(row.x, row.base, np.zeros(1), known, size)
    far = fitted.estimate(row.x * 50 + 1000, row.base, np.zeros(1), known, size)
    crowd = fitted.estimate(row.x, row.base, np.zeros(1), known, size + 5)
    assert not near.outside.any()
    for other in (far, crowd):
        assert other.outside.all()
        assert other.lower[0] < near.lower[0]


def test_unknown_features_do_not_count_as_far_away(world_path: Path, few_trees: None) -> None:
    examples = examples_of(world_path)
    fitted = fit_target(examples, "throughput")
    assert not fitted.outside(np.full_like(examples.x, np.nan)).any()


def test_a_limit_that_training_never_saw_is_outside_whatever_else_is_alike(world_path: Path, few_trees: None) -> None:
    examples = examples_of(world_path)
    fitted = fit_target(examples, "throughput")
    cap = examples.names.index("cap")
    assert np.isnan(fitted.low[cap])
    capped = examples.x.copy()
    capped[:, cap] = 50.0
    assert fitted.outside(capped).all()
    row = examples.take(np.array([0]))
    said = fitted.estimate(capped[:1], row.base, np.array([0.3]), np.array([True]), np.array([2]))
    assert said.expected[0] == pytest.approx(row.base[0])
