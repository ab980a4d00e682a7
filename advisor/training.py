"""Fitting, judging and taking in models on behalf of the service: errors in its words, artifacts in its folder."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor import predictors
from advisor.domain import ModelCard
from advisor.errors import BrokenArtifact, InvalidInput, OutOfSpace, StorageUnavailable
from profiler.observed import check_id

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)


def train(datasets: Sequence[Path], model_dir: Path, progress: Progress | None = None) -> Path:
    """Fit a model on dataset directories and write its artifact below `model_dir`; returns the artifact's folder.

    InvalidInput when a dataset breaks a rule, OutOfSpace or StorageUnavailable when the artifact cannot be written.
    """
    from models import training

    if not datasets:
        raise InvalidInput("training needs at least one dataset directory", field="dataset")
    with _speaking(model_dir):
        return training.train(datasets, model_dir, progress)


def evaluate(dataset: Path, protocols: Sequence[str], progress: Progress | None = None) -> Mapping[str, Any]:
    """Errors of the model and of every baseline on one dataset, per protocol (contract, section 3)."""
    from models import evaluation

    with _speaking(dataset):
        return evaluation.evaluate(dataset, protocols or evaluation.DEFAULT_PROTOCOLS, progress)


def adopt(artifact: Path, model_dir: Path, now: datetime) -> ModelCard:
    """Check an artifact and copy it to `model_dir`/version unless it is there; returns its card as a candidate.

    A version is a digest of what it was trained on and came to, so equal versions are equal models. BrokenArtifact when
    it cannot be read.
    """
    from models.artifact import read_card

    artifact = artifact.resolve()
    predictor = predictors.load(artifact)
    try:
        card = read_card(artifact)
        home = model_dir / check_id(predictor.version, "model version")
    except ValueError as error:
        raise BrokenArtifact(f"model {artifact.name} cannot be used: {error}") from error
    if not home.exists():
        with _speaking(model_dir):
            _copy(artifact, home)
    return ModelCard(predictor.version, "candidate", _created_at(card, now), predictor.origin, card)


def _copy(artifact: Path, home: Path) -> None:
    """Whole or not at all: a folder under its final name is complete."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=home.parent) as folder:
        shutil.copytree(artifact, Path(folder) / home.name)
        (Path(folder) / home.name).rename(home)


def _created_at(card: Mapping[str, Any], now: datetime) -> datetime:
    try:
        created_at = datetime.fromisoformat(str(card["created_at"]))
    except (KeyError, ValueError):
        return now
    return created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)


@contextmanager
def _speaking(place: Path) -> Iterator[None]:
    """Errors of models and of the file system in the advisor's words."""
    from models.dataset import DatasetError

    try:
        yield
    except DatasetError as error:
        raise InvalidInput(str(error), field="dataset") from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise OutOfSpace(f"no space left for {place}: free some and try again") from error
        raise StorageUnavailable(f"{error.filename or place} cannot be used: {error.strerror or error}") from error
