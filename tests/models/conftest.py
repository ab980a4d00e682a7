"""One small trained predictor for all tests of models, and boosters with few trees where only the shape counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import training
from models.data.dataset import Dataset, load_dataset
from models.features.examples import Examples, build_examples, further_metrics
from models.learning.learned_predictor import LearnedPredictor
from tests.models.made_models import limit_trees
from tests.models.synthetic import World


@pytest.fixture(scope="session")
def world_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset directory of a made-up cloud, with throughput, latency and jitter."""
    return World(latency=True, jitter=True, tlb_mb=(8.0,)).write(tmp_path_factory.mktemp("datasets") / "world")


@pytest.fixture(scope="session")
def world(world_path: Path) -> Dataset:
    return load_dataset(world_path)


@pytest.fixture(scope="session")
def world_examples(world: Dataset) -> Examples:
    """Its throughput ratios as training sees them."""
    return build_examples([world], further_metrics([world]))


@pytest.fixture(scope="session")
def predictor(world: Dataset) -> LearnedPredictor:
    """What training makes of it; nothing changes it."""
    with pytest.MonkeyPatch.context() as patch:
        limit_trees(patch)
        return training.fit_predictor([world])


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """One booster of ten trees: fast, and as good as any where folds, files and shapes are looked at."""
    limit_trees(monkeypatch, boosters=1)
