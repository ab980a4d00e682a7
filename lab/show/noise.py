"""Variation from run to run, widths of intervals, and the influence of disturbed and unsteady runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lab.show.dataset import DatasetGroup, Key, LabDataset
from lab.show.pairs import PairResult, together
from lab.statistics import Description, describe

WIDTHS = (0.03, 0.05, 0.10)
"""Half-widths of a 95 % interval, relative to the median, below which results are counted."""
SPEED_CHANGE = 0.10
OTHER_SPEED = "on CPUs of another speed than alone"


@dataclass(frozen=True, slots=True)
class IntervalWidthCount:
    """Of `results` pair results, how many have an interval at most +-`within` of their median; `unknown` have none."""

    within: float
    count: int
    results: int
    unknown: int

    @property
    def share(self) -> float | None:
        return self.count / self.results if self.results else None


@dataclass(frozen=True, slots=True)
class MarkedChange:
    """Median T/B of a pair result with all rounds, and without the rounds that were marked."""

    name: str
    form: str
    marked: int
    rounds: int
    every: float
    without: float | None

    @property
    def change(self) -> float | None:
        """What the marked rounds add to the median; None when no other round is left."""
        return None if self.without is None else self.every - self.without


@dataclass(frozen=True, slots=True)
class MarkedRuns:
    """Runs with one kind of mark. `by_kind` counts (marked, all) runs; `changes` the largest first.

    `typical` is the median of the absolute changes of the results that have a marked round and another.
    """

    mark: str
    by_kind: Mapping[str, tuple[int, int]]
    changes: tuple[MarkedChange, ...]
    typical: float | None
    largest: float | None

    @property
    def count(self) -> int:
        return sum(marked for marked, _ in self.by_kind.values())

    @property
    def runs(self) -> int:
        return sum(runs for _, runs in self.by_kind.values())


def solo_noise(groups: Iterable[DatasetGroup]) -> dict[str, dict[str, Description]]:
    """Solo throughput over the rounds, per label and place, which is pinning form and CPUs."""
    solos: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for group in groups:
        for member in group.members:
            throughput = member.outcomes.get("throughput")
            if throughput is not None and throughput.solo is not None:
                solos[member.label][f"{group.form} {member.pinning}".strip()][group.repeat] = throughput.solo
    return {
        label: {where: describe(rounds.values()) for where, rounds in sorted(places.items())}
        for label, places in sorted(solos.items())
    }


def narrowness(results: Sequence[PairResult]) -> tuple[IntervalWidthCount, ...]:
    """How many pair results are narrower than each of WIDTHS. One round has no interval, and does not count so."""
    widths = [half_width(together([result])) for result in results]
    known = [width for width in widths if width is not None]
    return tuple(
        IntervalWidthCount(limit, sum(width <= limit for width in known), len(widths), len(widths) - len(known))
        for limit in WIDTHS
    )


def half_width(description: Description) -> float | None:
    """Half of the 95 % interval over the median; None without interval and for a median of 0."""
    if description.lower is None or description.upper is None or not description.median:
        return None
    return (description.upper - description.lower) / 2 / description.median


def marks(dataset: LabDataset, results: Sequence[PairResult]) -> tuple[MarkedRuns, ...]:
    """Marked runs and their influence on the medians; empty for datasets without marks."""
    infos = dataset.infos
    if not infos:
        return ()
    by_mark = {
        "disturbed": {key for key, info in infos.items() if info.disturbed},
        "unsteady": {key for key, info in infos.items() if info.unsteady},
    }
    if any(info.speeds for info in infos.values()):
        by_mark[OTHER_SPEED] = at_another_speed(dataset)
    return tuple(_marks(name, marked, dataset, results) for name, marked in by_mark.items())


def at_another_speed(dataset: LabDataset) -> set[Key]:
    """Groups in which a CPU was over SPEED_CHANGE slower or faster than in the solo run of the same round.

    A part of that may come from the group itself, where its CPUs are hardware threads of one core; the rest is the
    host's.
    """
    marked: set[Key] = set()
    for group in dataset.groups:
        for member in group.members:
            here = dataset.infos.get(group.key)
            alone = dataset.infos.get(dataset.solo_key(group, member))
            speed = here.speeds.get(member.instance) if here else None
            base = next(iter(alone.speeds.values()), None) if alone else None
            if speed and base and abs(speed / base - 1) > SPEED_CHANGE:
                marked.add(group.key)
    return marked


def _marks(name: str, marked: set[Key], dataset: LabDataset, results: Sequence[PairResult]) -> MarkedRuns:
    kinds: dict[str, list[bool]] = defaultdict(list)
    for key, info in dataset.infos.items():
        kinds[info.kind].append(key in marked)
    changes = [change for result in results if (change := _change(result, marked, dataset)).marked]
    known = [abs(change.change) for change in changes if change.change is not None]
    return MarkedRuns(
        name,
        {kind: (sum(of_kind), len(of_kind)) for kind, of_kind in sorted(kinds.items())},
        tuple(sorted(changes, key=lambda change: (-abs(change.change or 0.0), change.form, change.name))),
        median(known) if known else None,
        max(known) if known else None,
    )


def _change(result: PairResult, marked: set[Key], dataset: LabDataset) -> MarkedChange:
    """A ratio is marked when its run is, or the solo run of the same round that it is compared with."""
    twins = result.victim.label == result.neighbour.label
    victims = {result.victim.instance, result.neighbour.instance} if twins else {result.victim.instance}
    unmarked: list[float] = []
    for group, value in zip(result.groups, result.values, strict=True):
        solos = {dataset.solo_key(group, member) for member in group.members if member.instance in victims}
        if not marked & {group.key, *solos}:
            unmarked.append(value)
    rounds = len(result.values)
    without = median(unmarked) if unmarked else None
    return MarkedChange(result.name, result.form, rounds - len(unmarked), rounds, median(result.values), without)
