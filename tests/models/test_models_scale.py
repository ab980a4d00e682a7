"""Large tables are trained on as a stream by themselves, with the same model at the end and nothing left behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import lightgbm
import numpy as np
import pytest

from models import scale
from models.data.dataset import load_dataset
from models.features.examples import build_examples, metrics_of
from models.learning.boosting import booster_options
from models.scale import StreamedDatasets, stream
from models.scale.feature_file import MeasuredRows
from tests.models.synthetic import World


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


def test_a_streamed_booster_predicts_as_one_from_memory(folder: Path, tmp_path: Path) -> None:
    path = World(workloads=4, latency=True).write(tmp_path / "world")
    found: StreamedDatasets = stream([path])
    dataset = load_dataset(path)
    assert list(found.datasets) == [dataset]  # so few rows are all in the sample
    for target, booster in found.boosters.items():
        examples = build_examples([dataset], metrics_of([dataset]), target=target)
        options, rounds = booster_options(len(examples), seed=0, monotone=examples.monotone)
        residual = np.log(examples.ratio / examples.base)
        single = lightgbm.Dataset(examples.x.astype(np.float32), residual, params=dict(options))
        reference = lightgbm.train(options, single, num_boost_round=rounds)
        np.testing.assert_allclose(booster.predict(examples.x), reference.predict(examples.x), atol=1e-4)
    assert found.card["rows"] == {"throughput": 40, "latency": 40}
    assert not list(folder.iterdir())


def test_a_failure_on_the_way_leaves_no_features_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []

    def fail(rows: MeasuredRows, *_: object) -> None:
        assert len(rows.x(0, len(rows))) == 24
        assert not list(folder.iterdir())  # it has no name: even who is killed leaves nothing
        files.append(rows.file)
        raise OSError("no space left")

    monkeypatch.setattr(scale, "train_here", fail)
    with pytest.raises(OSError, match="no space left"):
        stream([World(workloads=3).write(tmp_path / "world")])
    with pytest.raises(ValueError, match="closed"):
        files[0].read(0, 1)


def test_tables_are_streamed_from_a_number_of_rows_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [World(workloads=3, seed=seed).write(tmp_path / f"world{seed}") for seed in (0, 1)]
    monkeypatch.setattr(scale, "LARGE", 40)
    assert not scale.is_large(paths[:1])
    assert scale.is_large(paths)
    assert not scale.is_large([tmp_path / "nowhere"])
