"""What a dataset may be used for: nothing is learned from hidden ones, and each shipped one says what it is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from models import training
from models.data.dataset import Dataset, DatasetError, load_dataset, status_of
from models.data.dataset_rules import DatasetStatus
from models.evaluation.run import examine
from models.features.examples import build_examples, further_metrics
from models.training import fit_predictor
from tests.models.synthetic import World

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
HIDDEN = ("lab-mixes-xeon-2cpu", "lab-pairs-unpinned-xeon-2cpu")


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = World(workloads=4).write(tmp_path_factory.mktemp("hidden") / "kept")
    with (path / "dataset.yaml").open("a", encoding="utf-8") as file:
        file.write("hidden: true\n")
    return path


def _train(paths: Sequence[Path]) -> object:
    return training.train(paths, paths[0].parent / "models")


@pytest.mark.parametrize("reads", [_train, examine, lambda paths: fit_predictor(list(map(load_dataset, paths)))])
def test_nothing_that_learns_reads_a_hidden_dataset(hidden: Path, reads: Callable[[Sequence[Path]], object]) -> None:
    with pytest.raises(DatasetError, match="is kept to judge"):
        reads([hidden])


def test_a_hidden_dataset_chooses_no_feature_even_beside_others(hidden: Path) -> None:
    with pytest.raises(DatasetError, match="is kept to judge"):
        further_metrics([load_dataset(DATASETS / "papers"), load_dataset(hidden)])


def test_a_judge_reads_a_hidden_dataset_by_the_features_of_others(hidden: Path) -> None:
    data: Dataset = load_dataset(hidden)
    assert len(build_examples([data], ("cpu",))) > 0


@pytest.mark.parametrize(
    ("fields", "status", "learned", "judged"),
    [
        ({}, "train", True, True),
        ({"learn": False}, "judge", False, True),
        ({"status": "judge"}, "judge", False, True),
        ({"status": "judge", "hidden": True}, "judge", False, False),
        ({"hidden": True}, "judge", False, False),
        ({"status": "findings", "learn": False}, "findings", False, False),
        ({"status": "historical", "superseded_by": ["b"]}, "historical", False, False),
    ],
)
def test_what_a_status_allows(fields: dict[str, object], status: str, learned: bool, judged: bool) -> None:
    found = DatasetStatus.of(fields)
    assert (found.status, found.learned_by_default, found.judged_by_default) == (status, learned, judged)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "new"}, "status must be one of train, judge, findings, historical, not 'new'"),
        ({"status": ["train"]}, "status must be one of"),
        ({"hidden": "yes"}, "field hidden must be true or false, not 'yes'"),
        ({"status": "train", "hidden": True}, "says that nothing learns from it"),
        ({"status": "train", "learn": False}, "says that nothing learns from it"),
        ({"status": "historical"}, "need each other"),
        ({"superseded_by": ["b"]}, "need each other"),
        ({"status": "historical", "superseded_by": "b"}, "must be a list of names"),
        ({"status": "historical", "superseded_by": [3]}, "must be a list of names"),
    ],
)
def test_a_status_that_makes_no_sense_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(DatasetError, match=reason):
        DatasetStatus.of(fields)


def test_shipped_datasets_that_supersede_others_are_shipped_too() -> None:
    names = {path.parent.name for path in DATASETS.glob("*/dataset.yaml")}
    for name in sorted(names):
        assert set(status_of(DATASETS / name).superseded_by) <= names


@pytest.mark.parametrize("name", HIDDEN)
def test_campaigns_that_are_kept_to_judge_are_hidden(name: str) -> None:
    status = status_of(DATASETS / name)
    assert status.hidden
    assert not status.learned_by_default
