"""Evaluation: the shape of the contract, folds that do not leak, and figures that mean what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from models.arrays import Floats
from models.data.dataset import DatasetError, load_dataset
from models.evaluation import baselines
from models.evaluation.baselines import BASELINES, IntervalPrediction, Method, plain
from models.evaluation.error_metrics import PairwiseRanking, errors
from models.evaluation.results_table import PROTOCOLS, EvaluationProgress, folds_of, run_methods
from models.evaluation.run import examine
from models.features.examples import Examples, build_examples, further_metrics
from models.learning.fitted_target import TargetEstimate
from models.learning.fitting import LEAST_ROWS
from tests.models.made_examples import made_up
from tests.models.made_models import limit_trees
from tests.models.synthetic import COLOCATION_COLUMNS, PROFILE_COLUMNS, World, write_csv

MODELS = {
    "cotenant", "analytic", "ones", "mean", "additive", "koh_linear", "knn", "matrix_factorisation", "random_forest",
    "lightgbm_plain",
}  # fmt: skip
FIGURES = {"mape", "mae", "p90_abs_error", "spearman", "pair_ranking_accuracy", "coverage", "interval_width",
           "mape_slowdown", "mape_interfering"}  # fmt: skip
ALLOWED = [protocol for protocol in PROTOCOLS if protocol != "n_up_to_k"]  # by the world below: none has four instances
MORE = {"error_over_noise", "intervals", "seconds", "rank"}


def examples_of(path: Path) -> Examples:
    data = load_dataset(path)
    return build_examples([data], further_metrics([data]))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Every protocol on a world that has platforms, settings and triples; of its shape, so that little is fitted."""
    world = World(workloads=2, repeats=1, platforms=("p1", "p2"), settings=("0:0", "0:1"), triples=True)
    with pytest.MonkeyPatch.context() as patch:
        limit_trees(patch, 3, boosters=1, folds=2)
        patch.setattr(
            baselines, "RandomForestRegressor", lambda **how: RandomForestRegressor(**how | {"n_estimators": 3})
        )
        patch.setattr(baselines, "SWEEPS", 3)
        return examine(world.write(tmp_path_factory.mktemp("datasets") / "world"), ALLOWED).figures


# shape


def test_every_protocol_has_every_model_with_every_figure(report: Mapping[str, Any]) -> None:
    assert {"dataset", "origin", "rows", "protocols", "average_rank", "limits"} <= set(report)
    assert (report["dataset"], report["origin"], report["rows"]) == ("world", "simulated", 60)
    assert set(report["protocols"]) == set(ALLOWED)
    for protocol, found in report["protocols"].items():
        assert set(found["models"]) == MODELS
        for figures in found["models"].values():
            more = {"unseen_victim", "unseen_neighbour"} if protocol == "unseen_workload" else set()
            assert set(figures) == FIGURES | MORE | more
            for part in more:
                assert set(figures[part]) == FIGURES - {"coverage", "interval_width"}


def test_datasets_of_two_platforms_are_evaluated_as_one_where_each_platform_is_left_out_in_turn(tmp_path: Path) -> None:
    parts = [
        World(workloads=3, repeats=1, platforms=(name,), settings=("0:0", "0:1")).write(tmp_path / name)
        for name in ("p1", "p2")
    ]
    alone = examine(parts[0], ["unseen_platform"], models=("ones",)).figures
    assert "skipped" in alone["protocols"]["unseen_platform"]
    both = examine(parts, ["unseen_platform"], models=("ones",)).figures
    assert both["platforms"] == 2
    assert both["rows"] == 2 * alone["rows"]
    assert set(both["protocols"]["unseen_platform"]["models"]) == {"ones"}


def test_the_report_is_json_without_nan(report: Mapping[str, Any]) -> None:
    json.dumps(report, allow_nan=False)


def test_only_models_with_intervals_have_a_coverage(report: Mapping[str, Any]) -> None:
    for found in report["protocols"].values():
        for name, figures in found["models"].items():
            assert (figures["coverage"] is None) == (name not in {"cotenant", "analytic"})
            if figures["coverage"] is not None:
                assert 0 <= figures["coverage"] <= 1
                assert figures["interval_width"] >= 0


def test_rows_are_counted_as_often_as_they_were_judged(report: Mapping[str, Any]) -> None:
    protocols = report["protocols"]
    assert protocols["random_row"]["rows"] == protocols["unseen_pair"]["rows"] == 60
    assert protocols["unseen_platform"]["folds"] == 2
    assert protocols["unseen_setting"]["folds"] == 2
    assert protocols["unseen_workload"]["folds"] == 2
    assert protocols["unseen_workload"]["rows"] > 60
    assert protocols["pairs_to_n"]["rows"] == 36


# folds


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    world = World(workloads=5, repeats=2, platforms=("p1", "p2"), settings=("0:0", "0:1"), triples=True)
    return examples_of(world.write(tmp_path_factory.mktemp("datasets") / "world"))


def test_under_unseen_workload_no_training_row_involves_the_left_out_workload(examples: Examples) -> None:
    left_out = []
    for fold in folds_of(examples, "unseen_workload"):
        trained, judged = examples.take(fold.train), examples.take(fold.test)
        missing = set(judged.workloads) - set(trained.workloads)
        (workload,) = [name for name in missing if judged.involves(name).all()]
        assert not trained.involves(workload).any()
        assert sorted([*fold.train, *fold.test]) == list(range(len(examples)))
        assert fold.left_out == {workload}
        left_out.append(workload)
    assert left_out == list(examples.workloads)


def test_under_the_other_protocols_nothing_of_what_is_judged_was_trained_on(examples: Examples) -> None:
    for protocol, labels in (
        ("unseen_pair", examples.pair),
        ("unseen_platform", examples.platform),
        ("unseen_setting", [setting.split(" ")[0] for setting in examples.setting]),
    ):
        folds = folds_of(examples, protocol)
        assert folds
        for fold in folds:
            assert not {labels[row] for row in fold.train} & {labels[row] for row in fold.test}
    (fold,) = folds_of(examples, "pairs_to_n")
    assert examples.size[fold.train].max() == 2
    assert examples.size[fold.test].min() == 3
    assert not folds_of(examples, "n_up_to_k")
    larger = replace(examples, size=np.where(np.arange(len(examples)) % 2, examples.size + 2, examples.size))
    sizes = [(larger.size[fold.train].max(), larger.size[fold.test].min()) for fold in folds_of(larger, "n_up_to_k")]
    assert sizes == [(3, 4), (4, 5)]


def test_random_rows_leave_repeats_on_both_sides_which_is_why_they_only_warn(examples: Examples) -> None:
    fold = folds_of(examples, "random_row")[0]
    assert {examples.pair[row] for row in fold.train} & {examples.pair[row] for row in fold.test}


def test_every_row_is_judged_once_where_folds_part_the_rows(examples: Examples) -> None:
    for protocol in ("random_row", "unseen_pair", "unseen_platform", "unseen_setting"):
        judged = [row for fold in folds_of(examples, protocol) for row in fold.test]
        assert sorted(judged) == list(range(len(examples)))


def test_large_data_is_judged_in_few_folds_that_leave_out_groups(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.evaluation.results_table.MANY_ROWS", 100)
    monkeypatch.setattr("models.evaluation.results_table.FEW_FOLDS", 2)
    for protocol in ("unseen_pair", "unseen_workload"):
        folds = folds_of(examples, protocol)
        assert len(folds) == 2
        for fold in folds:
            assert not {examples.pair[row] for row in fold.train} & {examples.pair[row] for row in fold.test}
            assert not fold.left_out & set(examples.take(fold.train).workloads)
    groups = [fold.left_out for fold in folds_of(examples, "unseen_workload")]
    assert sorted(name for group in groups for name in group) == list(examples.workloads)


@pytest.fixture
def own_method_only(monkeypatch: pytest.MonkeyPatch, few_trees: None) -> Iterator[None]:
    """No baselines but the mean: they take most of the time."""
    use(monkeypatch, cotenant=baselines.METHODS["cotenant"], mean=baselines.METHODS["mean"])
    yield


def use(monkeypatch: pytest.MonkeyPatch, **chosen: Method) -> None:
    """Evaluate these methods alone."""
    monkeypatch.setattr(baselines, "METHODS", chosen)


def test_the_model_never_sees_the_left_out_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_method_only: None
) -> None:
    seen: list[tuple[set[str], set[str]]] = []

    def spy(train: Examples, test: Examples) -> TargetEstimate:
        seen.append((set(train.workloads), set(test.workloads)))
        ones = np.ones(len(test))
        return TargetEstimate(ones, ones, ones, ones, ones, ones, ones)

    monkeypatch.setattr(baselines, "predict_rows", spy)
    examine(World(workloads=4).write(tmp_path / "world"), ["unseen_workload"])
    assert [len(test - train) for train, test in seen] == [1, 1, 1, 1]


def test_random_rows_look_better_than_unseen_workloads_where_workloads_have_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, cotenant=as_the_prior, knn=baselines.METHODS["knn"])
    world = World(workloads=4, hidden=0.5, noise=0.005).write(tmp_path / "world")
    found = examine(world, ["random_row", "unseen_workload"]).figures["protocols"]
    random_row, unseen = (found[name]["models"]["knn"]["mae"] for name in ("random_row", "unseen_workload"))
    assert random_row < 0.6 * unseen


def memorise(train: Examples, test: Examples) -> Floats:
    """The mean of training rows of the same victim in the same pair, else the mean of all."""
    means: dict[tuple[str, str], list[float]] = {}
    for victim, pair, ratio in zip(train.victim, train.pair, train.ratio, strict=True):
        means.setdefault((victim, pair), []).append(float(ratio))
    whole = float(train.ratio.mean())
    return np.array([np.mean(means.get(key, [whole])) for key in zip(test.victim, test.pair, strict=True)])


def as_the_prior(_: Examples, test: Examples) -> IntervalPrediction:
    """In place of our own method, which takes its time."""
    return IntervalPrediction(test.base, test.base, test.base)


MEAN = plain(BASELINES["mean"])


def test_a_model_that_memorises_wins_on_random_rows_and_nothing_on_unseen_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, cotenant=as_the_prior, mean=MEAN, memoriser=plain(memorise))
    world = World(workloads=3, repeats=3).write(tmp_path / "world")
    found = examine(world, ["random_row", "unseen_pair"]).figures["protocols"]
    assert found["random_row"]["models"]["memoriser"]["mae"] < 0.3 * found["random_row"]["models"]["mean"]["mae"]
    memoriser, mean = (found["unseen_pair"]["models"][name] | {"seconds": 0} for name in ("memoriser", "mean"))
    assert memoriser == mean


def test_errors_are_distinguished_for_the_workload_as_victim_and_as_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that is only wrong about victims it has not seen."""

    def wrong_about_victims(train: Examples, test: Examples) -> Floats:
        return np.where([one in train.victim for one in test.victim], test.ratio, test.ratio / 2)

    use(monkeypatch, cotenant=as_the_prior, odd=plain(wrong_about_victims))
    world = World(workloads=4).write(tmp_path / "world")
    found = examine(world, ["unseen_workload"]).figures["protocols"]["unseen_workload"]["models"]["odd"]
    assert found["unseen_victim"]["mape"] == pytest.approx(0.5, abs=1e-4)
    assert found["unseen_neighbour"]["mape"] == 0.0


def test_a_workload_that_only_ever_ran_beside_the_left_out_one_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """w0 ran with w2 alone: leaving w2 out leaves w0 out too, and the fold is still that of w2."""
    world = World(workloads=4, repeats=4)
    path = world.write(tmp_path / "world")
    kept = [row for row in world.rows() if str(row["run"]) in {"0.0-0-2", "0.0-1-2", "0.0-2-3", "0.0-1-3", "0.0-1-1"}]
    write_csv(path / "colocations.csv", kept, COLOCATION_COLUMNS)
    examples = examples_of(path)
    folds = folds_of(examples, "unseen_workload")
    assert [fold.left_out for fold in folds] == [{name} for name in examples.workloads]
    judged = run_methods(
        examples, folds, {"cotenant": as_the_prior}, EvaluationProgress(lambda *_: None, {"cotenant": len(folds)}), ""
    )
    expected = [examples.victim[row] in fold.left_out for fold in folds for row in fold.test]
    assert judged.unseen_victim.tolist() == expected


# refusals and skips


def test_protocols_that_a_dataset_cannot_answer_say_why(tmp_path: Path, own_method_only: None) -> None:
    path = World(workloads=3, repeats=1).write(tmp_path / "world")
    found = examine(path, ["unseen_platform", "unseen_setting", "pairs_to_n", "n_up_to_k"]).figures["protocols"]
    assert {name: one["skipped"] for name, one in found.items()} == {
        "unseen_platform": "the dataset has one platform only",
        "unseen_setting": "the dataset has one setting only",
        "pairs_to_n": "the dataset has no run of three or more instances",
        "n_up_to_k": "the dataset has no runs of two different sizes above two instances",
    }
    assert all(one["models"] == {} for one in found.values())


def test_one_pair_leaves_nothing_to_train_on(tmp_path: Path, own_method_only: None) -> None:
    world = World(workloads=2, repeats=5)
    path = world.write(tmp_path / "world")
    rows = [row for row in world.rows() if row["run"] == "0.0-0-1"]
    write_csv(path / "colocations.csv", rows, COLOCATION_COLUMNS)
    found = examine(path, ["unseen_pair", "unseen_workload"]).figures["protocols"]
    assert {one["skipped"] for one in found.values()} == {"too few rows to train on"}


def test_an_unknown_protocol_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "predict_rows", lambda *_: pytest.fail("it ran"))
    path = World(workloads=3).write(tmp_path / "world")
    with pytest.raises(DatasetError, match="protocol 'guess' is none of random_row"):
        examine(path, ["unseen_pair", "guess"])
    with pytest.raises(DatasetError, match="is none of"):
        folds_of(examples_of(path), "guess")
    with pytest.raises(DatasetError, match="model 'oracle' is none of cotenant"):
        examine(path, models=["mean", "oracle"])


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    path = World(workloads=3).write(tmp_path / "world")
    write_csv(path / "colocations.csv", World().rows()[:4], COLOCATION_COLUMNS)
    with pytest.raises(DatasetError, match="world: 4 measured throughput ratios, at least 8 are needed"):
        examine(path)


# figures


def few(ratio: list[float], *pairs: str) -> Examples:
    """Rows with these measurements, each a victim and its neighbour in two letters."""
    return made_up([tuple(pair) for pair in pairs], np.array(ratio), base=1.0)


def test_errors_are_what_they_are_called() -> None:
    examples = few([1.0, 0.5, 0.25], "ab", "ac", "ad")
    found = errors(examples, np.array([1.0, 0.6, 0.2]))
    assert found["mae"] == pytest.approx((0 + 0.1 + 0.05) / 3, abs=1e-4)
    assert found["mape"] == pytest.approx((0 + 0.2 + 0.2) / 3, abs=1e-4)
    assert found["p90_abs_error"] == pytest.approx(np.quantile([0, 0.1, 0.05], 0.9), abs=1e-4)
    slow = [0, abs(2 - 1 / 0.6) / 2, abs(4 - 5) / 4]
    assert found["mape_slowdown"] == pytest.approx(np.mean(slow), abs=1e-4)
    assert found["mape_interfering"] == pytest.approx(np.mean(slow[1:]), abs=1e-4)
    assert found["spearman"] == 1.0
    assert found["pair_ranking_accuracy"] == 1.0


def test_errors_that_have_no_meaning_are_none() -> None:
    found = errors(few([1.0, 1.0], "ab", "ac"), np.array([1.0, 1.0]))
    assert found["spearman"] is None
    assert found["mape_interfering"] is None
    assert found["pair_ranking_accuracy"] is None
    json.dumps(errors(few([1e-3, 1.0, 0.4], "ab", "ac", "ad"), np.zeros(3)), allow_nan=False)


def test_pairs_are_ranked_right_wrong_or_half() -> None:
    examples = few([0.9, 0.5, 0.7], "ab", "ac", "ad")
    assert PairwiseRanking.of(examples).accuracy(np.array([0.9, 0.5, 0.7])) == 1.0
    assert PairwiseRanking.of(examples).accuracy(np.array([0.5, 0.9, 0.7])) == 0.0
    assert PairwiseRanking.of(examples).accuracy(np.array([0.7, 0.7, 0.7])) == 0.5
    assert PairwiseRanking.of(few([0.9, 0.5], "ab", "bc")).accuracy(np.array([1.0, 0.0])) is None


def test_pairs_that_differ_by_noise_only_are_not_ranked() -> None:
    noisy = few([0.9, 0.5, 0.88, 0.52], "ab", "ab", "ac", "ac")
    assert PairwiseRanking.of(noisy).accuracy(np.array([0.1, 0.1, 0.9, 0.9])) is None
    close = few([0.90, 0.91], "ab", "ac")
    assert PairwiseRanking.of(close).accuracy(np.array([0.1, 0.9])) is None


# baselines on odd data


@pytest.fixture(scope="module", params=["plain", "unknown column", "constant", "collinear", "few rows", "huge"])
def odd_data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Examples, Examples]:
    """Rows to learn from and others to be asked about, with something odd about them."""
    odd: str = request.param
    path = World(workloads=3).write(tmp_path_factory.mktemp("odd") / "world")
    values = {"constant": (5.0, 5.0, 5.0), "collinear": (1.0, 2.0, 3.0), "huge": (0.0, 1e15, 0.0)}
    if odd in values:
        rows = [
            {"workload": f"w{at}", "metric": metric, "value": values[odd][at] * (0.5 if metric == "b" else 1)}
            for at in range(3)
            for metric in ("a", "b", "cpu")
        ]
        write_csv(path / "profiles.csv", rows, PROFILE_COLUMNS)
    data = load_dataset(path)
    metrics = (*further_metrics([data]), "no_such_metric") if odd == "unknown column" else further_metrics([data])
    examples = build_examples([data], metrics)
    every = np.arange(len(examples))
    return examples.take(every[:LEAST_ROWS] if odd == "few rows" else every[::2]), examples.take(every[1::2])


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("name", BASELINES)
def test_baselines_give_numbers_on_odd_data(odd_data: tuple[Examples, Examples], name: str) -> None:
    train, test = odd_data
    guess = BASELINES[name](train, test)
    assert guess.shape == (len(test),)
    assert np.isfinite(guess).all()
    json.dumps(errors(test, guess), allow_nan=False)


def halves(world: World, folder: Path) -> tuple[Examples, Examples]:
    """Every other row of a world, and the rest."""
    examples = examples_of(world.write(folder / "world"))
    rows = np.arange(len(examples))
    return examples.take(rows[::2]), examples.take(rows[1::2])


def test_baselines_do_not_read_the_answers(tmp_path: Path, few_trees: None) -> None:
    train, test = halves(World(workloads=4), tmp_path)
    blind = replace(test, ratio=np.full(len(test), np.nan))
    for baseline in BASELINES.values():
        np.testing.assert_array_equal(baseline(train, test), baseline(train, blind))


def test_matrix_factorisation_finds_what_victims_and_neighbours_add(tmp_path: Path) -> None:
    train, test = halves(World(workloads=6, hidden=0.5, noise=0.001), tmp_path)
    guess, mean = (BASELINES[name](train, test) for name in ("matrix_factorisation", "mean"))
    assert np.abs(guess - test.ratio).mean() < 0.5 * np.abs(mean - test.ratio).mean()
