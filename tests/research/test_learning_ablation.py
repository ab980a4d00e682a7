"""The ablation leaves out what it names, and only while it is asked to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.data.dataset import load_dataset
from models.evaluation.methods import predict_rows
from models.evaluation.protocols import folds_of
from models.features.examples import Examples, build_examples, metrics_of
from models.learning import effects, fitted_target, residual_model
from models.learning.fitted_target import fit_target
from models.learning.residual_model import BASE_LEARNERS
from research.learning_ablation import Ablation, ablations, judge, main
from tests.models.made_models import limit_trees
from tests.models.synthetic import World


@pytest.fixture(autouse=True)
def _little_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_trees(monkeypatch, boosters=1, folds=2)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return World(workloads=4, repeats=1, seed=2).write(tmp_path_factory.mktemp("datasets") / "world")


@pytest.fixture(scope="module")
def examples(world: Path) -> Examples:
    data = load_dataset(world)
    return build_examples([data], metrics_of([data]))


def test_a_member_that_is_left_out_gets_no_weight_and_comes_back(examples: Examples) -> None:
    found = ablations(())
    for at, name in enumerate(BASE_LEARNERS):
        with found[name].at_work():
            model = fit_target(examples, "throughput").model
        assert model.known_weights.base_learners[at] == model.unknown_weights.base_learners[at] == 0
    with found["all four"].at_work():
        model = fit_target(examples, "throughput").model
    assert not any((*model.known_weights.base_learners, *model.unknown_weights.base_learners))
    assert any(any(weights) for weights in residual_model._weight_grid())


def test_every_part_is_put_back_and_every_replacement_fits(examples: Examples) -> None:
    before = (effects.RANKS, fitted_target.LEFT_OUT)
    (fold, *_) = folds_of(examples, "unseen_pair")
    usual = predict_rows(examples.take(fold.train), examples.take(fold.test)).expected
    for name in ("effects of names", "factors", "chosen weights (a quarter each)", "judging of left-out platforms",
                 "weights of their own for known workloads"):  # fmt: skip
        found = judge(examples, [fold], ablations(())[name])
        assert np.isfinite(found.error).all()
        assert found.row.tolist() == fold.test.tolist()
    assert before == (effects.RANKS, fitted_target.LEFT_OUT)
    again = judge(examples, [fold], Ablation())
    np.testing.assert_array_equal(again.error, np.abs(examples.ratio[fold.test] - usual))


def test_columns_go_with_their_names_and_constraints(examples: Examples) -> None:
    found = ablations(["cpu"])
    some = found["`cpu`"].of(examples)
    assert not {"own cpu", "near cpu", "host cpu"} & set(some.names)
    assert some.x.shape[1] == len(some.names) == len(some.monotone) == len(examples.names) - 3
    at = examples.names.index("cpu_crowd")
    assert some.monotone[some.names.index("cpu_crowd")] == examples.monotone[at]


def test_the_command_prints_a_table_with_intervals(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("models.evaluation.protocols.MANY_ROWS", 1)
    monkeypatch.setattr("models.evaluation.protocols.FEW_FOLDS", 3)
    main([str(world), "--only", "factors", "--protocol", "unseen_pair", "--protocol", "pairs_to_n"])
    said = capsys.readouterr().out
    assert "## world (simulated)" in said
    (row,) = [line for line in said.splitlines() if line.startswith("| factors")]
    assert " to " in row.split("|")[3]
    assert "pairs_to_n: the dataset has no run of three or more instances" in said
