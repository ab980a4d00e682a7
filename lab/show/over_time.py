"""Outcomes over the hours of a campaign: what drifted while it ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from lab.show.dataset import DatasetGroup, LabDataset
from lab.show.pairs import PairResult

MOST_LINES = 12  # in one picture over time: those that vary most
_FEWEST_ROUNDS = 3  # of a line over time; fewer say nothing


@dataclass(frozen=True, slots=True)
class OutcomeHistory:
    """One outcome over wall-clock time: (start of the run, value) per round."""

    name: str
    points: tuple[tuple[datetime, float], ...]

    @property
    def range(self) -> float:
        values = [value for _, value in self.points]
        return max(values) - min(values)


@dataclass(frozen=True, slots=True)
class OutcomeHistories:
    """The histories of one kind that vary most, of `known` altogether."""

    known: int
    of: tuple[OutcomeHistory, ...]


def over_time(dataset: LabDataset, results: Sequence[PairResult]) -> dict[str, OutcomeHistories]:
    """Solo throughput over its median, and T/B of pairs, over wall-clock time; empty below three rounds."""
    alone: dict[str, dict[datetime, float]] = defaultdict(dict)
    for group in dataset.groups:
        for member in group.members:
            info = dataset.infos.get(dataset.solo_key(group, member))
            outcome = member.outcomes.get("throughput")
            if info and info.started and outcome and outcome.solo:
                alone[f"{member.label} ({group.form} {member.pinning})"][info.started] = outcome.solo
    solo = [_course(name, points, median(points.values())) for name, points in alone.items()]
    together = [
        _course(f"{result.name} ({result.form})", _starts(dataset, result.groups, result.values), 1.0)
        for result in results
    ]
    kinds = {"throughput alone, over its median": solo, "T/B of pairs": together}
    chosen = {name: _most_varying(of_kind) for name, of_kind in kinds.items()}
    return {name: histories for name, histories in chosen.items() if histories.of}


def _starts(dataset: LabDataset, groups: Sequence[DatasetGroup], values: Sequence[float]) -> dict[datetime, float]:
    infos = [dataset.infos.get(group.key) for group in groups]
    return {info.started: value for info, value in zip(infos, values, strict=True) if info and info.started}


def _course(name: str, points: Mapping[datetime, float], unit: float) -> OutcomeHistory:
    return OutcomeHistory(name, tuple((when, value / unit) for when, value in sorted(points.items())))


def _most_varying(courses: Iterable[OutcomeHistory]) -> OutcomeHistories:
    long = [course for course in courses if len(course.points) >= _FEWEST_ROUNDS]
    chosen = sorted(long, key=lambda course: (-course.range, course.name))[:MOST_LINES]
    return OutcomeHistories(len(long), tuple(chosen))
