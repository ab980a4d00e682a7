"""Distributions of results over all runs, outcomes over the hours of a campaign, and windows within runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from lab.show.dataset import DatasetGroup, Key, LabDataset, Points
from lab.show.pairs import PairResult

MOST_STEPS = 200  # of a drawn distribution; finer than a pixel
MOST_LINES = 12  # in one picture over time, the ones that vary most
MOST_RUNS = 6  # whose windows are drawn
_FEWEST_ROUNDS = 3  # below, a line over time says nothing
_FEWEST_VALUES = 5  # below, a distribution says less than the values
_SIZES = {1: "alone", 2: "pairs", 3: "triples", 4: "quadruples"}


@dataclass(frozen=True, slots=True)
class Distribution:
    """An empirical distribution: `steps` are (value, share of values at most it), of at most MOST_STEPS steps."""

    name: str
    count: int
    steps: Points

    def quantile(self, share: float) -> float:
        """The smallest value that at least this share of the values reaches or stays below."""
        return next(value for value, reached in self.steps if reached >= share - 1e-9)


@dataclass(frozen=True, slots=True)
class Panel:
    """Distributions of one quantity, drawn into one picture."""

    name: str
    of: tuple[Distribution, ...]


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
    """The courses of one kind that vary most, of `known` courses altogether."""

    known: int
    of: tuple[OutcomeHistory, ...]


@dataclass(frozen=True, slots=True)
class RunWindows:
    """The windows of one run: for each metric the instances' windows; `why` this run was chosen."""

    run: str
    repeat: int
    why: str
    metrics: Mapping[str, Mapping[str, Points]]


def distribution(name: str, values: Iterable[float]) -> Distribution:
    """ValueError for no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values to distribute")
    n = len(ordered)
    ranks = sorted({max(1, -(-n * step // MOST_STEPS)) for step in range(MOST_STEPS + 1)} | {1, n})
    return Distribution(name, n, tuple((ordered[rank - 1], rank / n) for rank in ranks))


def panels(dataset: LabDataset) -> tuple[Panel, ...]:
    """T / B and latency over latency alone, by pinning form, and windows over their run's median, by company."""
    found = [
        Panel("T/B", _by_form(dataset.groups, "throughput")),
        Panel("mean latency over alone", _by_form(dataset.groups, "latency_mean_ms")),
        Panel("95th percentile of latency over alone", _by_form(dataset.groups, "latency_p95_ms")),
        *_windows(dataset),
    ]
    return tuple(panel for panel in found if panel.of)


def _by_form(groups: Iterable[DatasetGroup], outcome: str) -> tuple[Distribution, ...]:
    values: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        values[group.form] += [ratio for member in group.members if (ratio := member.ratio(outcome)) is not None]
    return _distributions(values)


def _distributions(values: Mapping[str, Sequence[float]]) -> tuple[Distribution, ...]:
    return tuple(distribution(name, found) for name, found in values.items() if len(found) >= _FEWEST_VALUES)


def _windows(dataset: LabDataset) -> list[Panel]:
    """Each window over the median of its run and instance, so that runs of unlike workloads can be put together."""
    sizes = _company(dataset)
    values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for key, of in dataset.series.items():
        if key not in sizes:
            continue
        for (_, metric), points in of.items():
            measured = [value for at, value in points if at > 0]
            if measured and median(measured) > 0:
                values[metric][sizes[key]] += [value / median(measured) for value in measured]
    return [
        Panel(
            f"windows of {metric} over the run's median",
            _distributions({_SIZES.get(size, f"{size} together"): by_size[size] for size in sorted(by_size)}),
        )
        for metric, by_size in sorted(values.items())
    ]


def _company(dataset: LabDataset) -> dict[Key, int]:
    """How many ran together in each run of the groups, and 1 for the solo runs that they are compared with."""
    sizes = {group.key: len(group.members) for group in dataset.groups}
    return sizes | {dataset.solo_key(group, member): 1 for group in dataset.groups for member in group.members}


def over_time(dataset: LabDataset, results: Sequence[PairResult]) -> dict[str, OutcomeHistories]:
    """Solo throughput over its median, and T / B of pairs, over wall-clock time; empty below three rounds."""
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
    return {name: found for name, of in kinds.items() if (found := _most_varying(of)).of}


def _starts(dataset: LabDataset, groups: Sequence[DatasetGroup], values: Sequence[float]) -> dict[datetime, float]:
    infos = [dataset.infos.get(group.key) for group in groups]
    return {info.started: value for info, value in zip(infos, values, strict=True) if info and info.started}


def _course(name: str, points: Mapping[datetime, float], unit: float) -> OutcomeHistory:
    return OutcomeHistory(name, tuple((when, value / unit) for when, value in sorted(points.items())))


def _most_varying(courses: Iterable[OutcomeHistory]) -> OutcomeHistories:
    long = [course for course in courses if len(course.points) >= _FEWEST_ROUNDS]
    chosen = sorted(long, key=lambda course: (-course.range, course.name))[:MOST_LINES]
    return OutcomeHistories(len(long), tuple(chosen))


def inside(dataset: LabDataset) -> tuple[RunWindows, ...]:
    """Windows of the runs worth a look: the unsteady ones, then the disturbed, then those that vary most."""
    company = _company(dataset)
    rated: list[tuple[int, float, Key]] = []
    for key, of in dataset.series.items():
        if key in company:
            info = dataset.infos.get(key)
            rank = 2 if info is None else 0 if info.unsteady else 1 if info.disturbed else 2
            rated.append((rank, -max(map(_roughness, of.values()), default=0.0), key))
    chosen = sorted(rated)[:MOST_RUNS]
    why = ("unsteady", "disturbed from outside", "varies much")
    return tuple(_inside(dataset, key, why[rank]) for rank, _, key in chosen)


def _roughness(points: Points) -> float:
    """Median step from window to window over the median window: a jump counts little, restlessness much."""
    measured = [value for at, value in points if at > 0]
    steps = [abs(after - before) for before, after in pairwise(measured)]
    return median(steps) / median(measured) if steps and median(measured) > 0 else 0.0


def _inside(dataset: LabDataset, key: Key, why: str) -> RunWindows:
    metrics: dict[str, dict[str, Points]] = defaultdict(dict)
    for (instance, metric), points in sorted(dataset.series[key].items()):
        metrics[metric][instance] = points
    return RunWindows(*key, why, metrics)
