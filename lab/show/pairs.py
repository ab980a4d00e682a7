"""T/B of every pair by pinning form, and combined scores of groups of any size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lab.show.dataset import DatasetGroup, DatasetMember
from lab.show.intervals import Replicates
from lab.statistics import Description, describe

Columns = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class GroupScore:
    """Combined score of a group, which is the sum of T/B over its members, and the median ratio of each."""

    run: str
    members: tuple[str, ...]
    ratios: tuple[float, ...]
    score: Description


@dataclass(frozen=True, slots=True)
class FormResults:
    """One pinning form: `matrix[victim][neighbour]` is T/B of the victim beside it, for pairs as they are defined.

    `scores` are of all groups, the best first.
    """

    matrix: Mapping[str, Mapping[str, Description]]
    scores: tuple[GroupScore, ...]

    @property
    def names(self) -> list[str]:
        """Rows and columns of the matrix."""
        return sorted({*self.matrix, *(neighbour for row in self.matrix.values() for neighbour in row)})

    def cell(self, victim: str, neighbour: str) -> Description | None:
        """None for a pair that was not measured."""
        return self.matrix.get(victim, {}).get(neighbour)

    def by_size(self) -> dict[int, list[GroupScore]]:
        """Scores by the number of members: sums of two and of three ratios cannot be ranked together."""
        sizes: dict[int, list[GroupScore]] = defaultdict(list)
        for score in self.scores:
            sizes[len(score.members)].append(score)
        return dict(sorted(sizes.items()))


@dataclass(frozen=True, slots=True)
class PairResult:
    """T/B of one member of a pair beside the other: one value with its bootstrap replicates per round that has both."""

    run: str
    form: str
    victim: DatasetMember
    neighbour: DatasetMember
    groups: tuple[DatasetGroup, ...]
    values: tuple[float, ...]
    replicates: Columns

    @property
    def name(self) -> str:
        return f"{self.victim.label} beside {self.neighbour.label}"

    @property
    def is_plain(self) -> bool:
        return self.victim.is_plain and self.neighbour.is_plain


def forms(
    groups: Sequence[DatasetGroup], results: Sequence[PairResult], replicates: Replicates
) -> dict[str, FormResults]:
    """Every pinning form by name, in the order of the file."""
    by_form: dict[str, list[DatasetGroup]] = defaultdict(list)
    for group in groups:
        by_form[group.form].append(group)
    return {
        name: FormResults(
            _matrix(result for result in results if result.form == name and result.is_plain),
            tuple(scores(of_form, replicates)),
        )
        for name, of_form in by_form.items()
    }


def together(results: Iterable[PairResult]) -> Description:
    """Several results of the same thing as one; ValueError for none."""
    known = list(results)
    values = [value for result in known for value in result.values]
    return describe(values, [replicate for result in known for replicate in result.replicates])


def by_run(groups: Iterable[DatasetGroup]) -> dict[str, list[DatasetGroup]]:
    """The rounds of each run."""
    runs: dict[str, list[DatasetGroup]] = defaultdict(list)
    for group in groups:
        runs[group.run].append(group)
    return runs


def ratios(group: DatasetGroup) -> tuple[float, ...] | None:
    """T/B of each member; None when one of them is not known: what one member lost another may have won."""
    known = tuple(ratio for member in group.members if (ratio := member.ratio) is not None)
    return known if len(known) == len(group.members) else None


def pair_results(groups: Iterable[DatasetGroup], replicates: Replicates) -> Iterator[PairResult]:
    """A result for each member of every pair, whatever their settings; for two of the same kind one result.

    Twins of one round are not two measurements: they share whatever disturbed that round, so their mean counts.
    """
    for run, rounds in by_run(group for group in groups if group.is_pair).items():
        known = _complete(rounds)
        if not known:
            continue
        (first, second), form = known[0].members, known[0].form
        (ratios_1, ratios_2), (replicates_1, replicates_2) = _columns(known), _replicates(known, replicates)
        if first.label == second.label:
            means = tuple(_means(*pair) for pair in zip(replicates_1, replicates_2, strict=True))
            yield PairResult(run, form, first, second, known, _means(ratios_1, ratios_2), means)
        else:
            yield PairResult(run, form, first, second, known, ratios_1, replicates_1)
            yield PairResult(run, form, second, first, known, ratios_2, replicates_2)


def scores(groups: Iterable[DatasetGroup], replicates: Replicates) -> list[GroupScore]:
    """Combined scores, the best first; groups without a round in which all ratios are known are left out."""
    of_groups: list[GroupScore] = []
    for run, rounds in by_run(groups).items():
        known = _complete(rounds)
        if not known:
            continue
        columns = _columns(known)
        labels = tuple(member.label for member in known[0].members)
        sums = [sum(row) for row in zip(*columns, strict=True)]
        replicated_sums = [
            [sum(row) for row in zip(*members, strict=True)]
            for members in zip(*_replicates(known, replicates), strict=True)
        ]
        medians = tuple(median(column) for column in columns)
        of_groups.append(GroupScore(run, labels, medians, describe(sums, replicated_sums)))
    return sorted(of_groups, key=lambda score: (-score.score.median, score.run))


def _complete(rounds: Sequence[DatasetGroup]) -> tuple[DatasetGroup, ...]:
    """The rounds in which every member's ratio is known; rounds with other members than the first are left out."""
    known = [group for group in rounds if ratios(group) is not None]
    labels = [[member.label for member in group.members] for group in known]
    return tuple(group for group, own in zip(known, labels, strict=True) if own == labels[0])


def _columns(rounds: Sequence[DatasetGroup]) -> Columns:
    """For each member its ratios over the rounds."""
    return tuple(zip(*(ratios(group) or () for group in rounds), strict=True))


def _replicates(rounds: Sequence[DatasetGroup], replicates: Replicates) -> tuple[Columns, ...]:
    """For each member its replicates, round by round."""
    rows = [[replicates.of(group, member) for member in group.members] for group in rounds]
    return tuple(zip(*rows, strict=True))


def _means(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    return tuple((one + other) / 2 for one, other in zip(first, second, strict=True))


def _matrix(results: Iterable[PairResult]) -> dict[str, dict[str, Description]]:
    cells: dict[str, dict[str, list[PairResult]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        cells[result.victim.label][result.neighbour.label].append(result)
    return {
        victim: {neighbour: together(of_pair) for neighbour, of_pair in columns.items()}
        for victim, columns in cells.items()
    }
