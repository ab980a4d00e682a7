"""Training from windows: kept ones become a dataset, and a model that turns out worse than the prior goes back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.experiments import probe_planning
from models.data import window_dataset
from models.data.profile import WorkloadProfile
from models.data.window_dataset import PostedScene, SharedWindow, WindowSample
from models.evaluation.prediction_checks import ENOUGH_S, ENOUGH_SCENES, Question, WindowFigures, WindowKey
from models.physics.prior import PriorPredictor
from profiler.files import replace_whole

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
