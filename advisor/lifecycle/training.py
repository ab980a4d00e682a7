"""Fitting, judging and taking in models on behalf of the service: errors in its words, artifacts in its folder."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.domain import ModelCard
from advisor.errors import BrokenArtifact, InvalidInput, OutOfSpace, StorageUnavailable
from advisor.extras import require
from advisor.parallel import of_workers
from advisor.prediction import active
from advisor.progress import Progress
from advisor.validation import check_unique
from profiler.files import replace_whole
from profiler.observed import check_id

if TYPE_CHECKING:
    from models.evaluation.run import Evaluation


def train(
    datasets: Sequence[Path], model_dir: Path, progress: Progress | None = None, cluster: str | None = None
) -> Path:
    """Fit a model on dataset directories and write its artifact below `model_dir`; returns the artifact's folder.

    InvalidInput when a dataset breaks a rule, where the address of the Dask `cluster` is none, and where the libraries
    that train are not installed; ProcessLost where
    that cannot be reached or is lost; OutOfSpace or StorageUnavailable when the artifact cannot be written.
    """
    require("train", "training")
    from models import training

    _check_datasets(datasets, "training")
    with speaking(model_dir), of_workers():
        return training.train(datasets, model_dir, progress, cluster=cluster)


def evaluate(
    datasets: Sequence[Path],
    protocols: Sequence[str],
    *,
    models: Sequence[str] = (),
    together: bool = False,
    progress: Progress | None = None,
) -> tuple[Evaluation, ...]:
    """Errors of the model and of every baseline on each dataset, or on all of them `together`, per protocol (contract,
    section 3).

    InvalidInput when a dataset breaks a rule and for a protocol or model that does not exist.
    """
    require("train", "an evaluation")
    from models.evaluation.results_table import DEFAULT_PROTOCOLS
    from models.evaluation.run import examine

    _check_datasets(datasets, "an evaluation")
    say = progress or (lambda _what, _done: None)
    evaluations = []
    groups = [tuple(datasets)] if together else [(dataset,) for dataset in datasets]
    for number, group in enumerate(groups):

        def step(what: str, done: float, number: int = number, name: str = group[0].name) -> None:
            say(f"{name}, {what}" if len(groups) > 1 else what, (number + done) / len(groups))

        with speaking(group[0]):
            evaluations.append(examine(group, protocols or DEFAULT_PROTOCOLS, step, models=models))
    return tuple(evaluations)


def _check_datasets(datasets: Sequence[Path], what: str) -> None:
    """Refuse none, and one that is given twice: its repeats would count for more than were measured."""
    if not datasets:
        raise InvalidInput(f"{what} needs at least one dataset directory", field="dataset")
    check_unique((path.resolve() for path in datasets), "dataset")


def evaluations_as_json(evaluations: Sequence[Evaluation]) -> Mapping[str, Any]:
    """One evaluation in the shape of the contract, section 3; several under `datasets`, with each model's mean rank."""
    from models.evaluation.results_table import average_ranks

    if len(evaluations) == 1:
        return evaluations[0].figures
    tables = [
        table
        for evaluation in evaluations
        for protocol, table in evaluation.figures["protocols"].items()
        if protocol != "random_row"  # it leaks
    ]
    return {"datasets": [evaluation.figures for evaluation in evaluations], "average_rank": average_ranks(tables)}


def adopt(artifact: Path, model_dir: Path, now: datetime) -> ModelCard:
    """Check an artifact and copy it to `model_dir`/version unless it is there; returns its card as a candidate.

    A version is a digest of what it was trained on and came to, so equal versions are equal models. BrokenArtifact when
    it cannot be read.
    """
    from models.learning.artifact import read_card

    artifact = artifact.resolve()
    predictor = active.load_tried(artifact)
    try:
        card = read_card(artifact)
        home = model_dir / check_id(predictor.version, "model version")
    except ValueError as error:
        raise BrokenArtifact(f"model {artifact.name} cannot be used: {error}") from error
    if not home.exists():
        with speaking(model_dir):
            _copy(artifact, home)
    return ModelCard(predictor.version, "candidate", _created_at(card, now), predictor.origin, card)


def _copy(artifact: Path, home: Path) -> None:
    """Whole or not at all: a folder under its final name is complete, and on the disk before anybody activates it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=home.parent) as folder:
        shutil.copytree(artifact, Path(folder) / home.name)
        replace_whole(Path(folder) / home.name, home)


def _created_at(card: Mapping[str, Any], now: datetime) -> datetime:
    try:
        created_at = datetime.fromisoformat(str(card["created_at"]))
    except (KeyError, ValueError):
        return now
    return created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)


@contextmanager
def speaking(place: Path) -> Iterator[None]:
    """Errors of models and of the file system in the advisor's words."""
    from models.data.dataset import DatasetError

    try:
        yield
    except DatasetError as error:
        raise InvalidInput(str(error), field="dataset") from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise OutOfSpace(f"no space left for {place}: free some and try again") from error
        raise StorageUnavailable(f"{error.filename or place} cannot be used: {error.strerror or error}") from error
