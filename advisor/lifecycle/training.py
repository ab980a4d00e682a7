"""Fitting, judging and taking in models on behalf of the service, from datasets and from windows of the cloud."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.background import of_workers
from advisor.deadline import Progress
from advisor.domain import ModelCard
from advisor.errors import BrokenArtifact, InvalidInput, OutOfSpace, StorageUnavailable
from advisor.experiments import probe_planning
from advisor.plug_ins import require
from advisor.prediction import active
from advisor.validation import check_unique
from models.data import window_dataset
from models.data.profile import WorkloadProfile
from models.data.window_dataset import PostedScene, SharedWindow, WindowSample
from models.evaluation.prediction_checks import ENOUGH_S, ENOUGH_SCENES, Question, WindowFigures, WindowKey
from models.physics.prior import PriorPredictor
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
    """Whole or not at all: a folder under its final name is complete, and on the disk before it can be activated."""
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


# Training from windows: kept ones become a dataset, and a model that turns out worse than the prior goes back.

LEAST_SHARES = 200  # of instances in windows: fewer leave nothing to hold out
WORSE = 0.005  # of the share of CPU time: what the mean error may be above the prior's
_JUDGED: Question = "forecast"  # the answer as it was given, demand included


@dataclass(frozen=True, slots=True)
class TurnedOut:
    """The mean error of the share in windows, of a model and of the prior beside it, in so many scenes."""

    version: str
    error: float
    prior: float
    scenes: int

    @property
    def worse(self) -> bool:
        return self.error > self.prior + WORSE


def write_posted(
    scenes: Sequence[PostedScene], profiles: Sequence[WorkloadProfile], folder: Path, now: datetime
) -> Path:
    """Write posted co-locations as a dataset directory below `folder`, whole or not at all, in place of the former."""
    return _written(
        folder, "posted", lambda new: window_dataset.write_posted(new, f"posted-{_day(now)}", scenes, profiles)
    )


def write_dataset(windows: Iterable[SharedWindow], folder: Path, now: datetime) -> Path:
    """Write those windows that are worth learning from as a dataset directory below `folder`, whole or not at all,
    instead of the one before. They come in the order of their time, and only those that are written are kept in memory.

    InvalidInput where they hold too few shares to learn from.
    """
    sample, count, shares = WindowSample(), 0, 0
    for window in windows:
        sample.add(window)
        count, shares = count + 1, shares + len(window.shares)
    if shares < LEAST_SHARES:
        message = (
            f"{count} windows of that time are stored, with {shares} shares; {LEAST_SHARES} are needed: "
            "let agents push to the service (docs/models.md), then try again"
        )
        raise InvalidInput(message, field="from_telemetry")
    chosen = sample.chosen()
    return _written(folder, "windows", lambda new: window_dataset.write_chosen(new, f"windows-{_day(now)}", chosen))


def _day(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y%m%d}"


def _written(folder: Path, name: str, write: Callable[[Path], None]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / name
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as draft:
        new = Path(draft) / home.name
        new.mkdir()
        write(new)
        if home.exists():  # moved out of the way whole: what is half removed would be taken for all of it
            home.replace(Path(draft) / "former")
        replace_whole(new, home)
    return home


def span_s(text: str) -> float:
    """Seconds of a time to learn from, such as 14d; InvalidInput otherwise."""
    try:
        return probe_planning.duration_s(text)
    except InvalidInput as error:
        message = f"--from-telemetry {text[:40]!r} is no time of up to 30 days; write 12h or 14d"
        raise InvalidInput(message, field="from_telemetry") from error


def turned_out(version: str, groups: Mapping[WindowKey, WindowFigures]) -> TurnedOut | None:
    """How a model's answers held in windows beside those of the prior on the same platforms; None where there are not
    enough windows, or not over a day."""
    prior = PriorPredictor.version
    own = {key: figures for key, figures in groups.items() if _counts(key, version) and figures.rows}
    platforms = {key.platform for key in own}
    of_prior = [
        figures for key, figures in groups.items() if _counts(key, prior) and key.platform in platforms and figures.rows
    ]
    scenes = sum(figures.scenes for figures in own.values())
    if version == prior or not of_prior or scenes < ENOUGH_SCENES:
        return None
    if max(figures.last_s for figures in own.values()) - min(figures.first_s for figures in own.values()) < ENOUGH_S:
        return None
    return TurnedOut(version, _error(own.values()), _error(of_prior), round(scenes))


def _counts(key: WindowKey, version: str) -> bool:
    return key.version == version and key.question == _JUDGED and not key.level


def _error(groups: Iterable[WindowFigures]) -> float:
    figures = list(groups)
    return sum(group.absolute for group in figures) / sum(group.rows for group in figures)
