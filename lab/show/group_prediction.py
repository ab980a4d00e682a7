"""Groups of three and more: measured scores beside those predicted from pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from lab.show.dataset import PAIR, DatasetGroup, DatasetMember
from lab.show.intervals import Replicates
from lab.show.pairs import GroupScore, PairResult, scores

_Relation = tuple[int, int, int, str]
_Beside = tuple[str, str, _Relation]
RULES: dict[str, Callable[[Iterable[float]], float]] = {"product": math.prod, "min": min}
"""How a member's ratio beside several is made of its ratios beside each: product of them, or the worst alone."""


@dataclass(frozen=True, slots=True)
class PredictedGroup:
    """A group's combined score as measured, and by each rule from its pairs; `borrowed` pairs are of other forms."""

    form: str
    measured: GroupScore
    predicted: dict[str, float]
    borrowed: int

    def error(self, rule: str) -> float:
        """Predicted minus measured combined score."""
        return self.predicted[rule] - self.measured.score.median


@dataclass(frozen=True, slots=True)
class RuleAccuracy:
    """How well a rule does over all groups: mean error, mean absolute error, of the combined score."""

    name: str
    groups: int
    bias: float
    error: float


@dataclass(frozen=True, slots=True)
class GroupPredictions:
    """Groups that can be compared, how the rules do, and how many groups lack a pair that was never measured."""

    groups: tuple[PredictedGroup, ...]
    rules: tuple[RuleAccuracy, ...]
    without_pairs: int


def compose(groups: Sequence[DatasetGroup], results: Iterable[PairResult], replicates: Replicates) -> GroupPredictions:
    """Compare every group of at least three with its pairs; a pair counts where it shares CPUs in the same way."""
    known: dict[_Beside, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        known[_beside(result.victim, result.neighbour)][result.form] += result.values
    pairs = {beside: {form: median(found) for form, found in of.items()} for beside, of in known.items()}
    larger = [group for group in groups if len(group.members) > PAIR]
    first = {group.run: group for group in reversed(larger)}
    measured = scores(larger, replicates)
    found = [composed for score in measured if (composed := _composed(first[score.run], score, pairs)) is not None]
    return GroupPredictions(tuple(found), _rules(found), len(measured) - len(found))


def _composed(group: DatasetGroup, score: GroupScore, pairs: dict[_Beside, dict[str, float]]) -> PredictedGroup | None:
    beside: list[list[float]] = []
    borrowed = 0
    for victim in group.members:
        row: list[float] = []
        for neighbour in group.members:
            if neighbour is victim:
                continue
            by_form = pairs.get(_beside(victim, neighbour), {})
            # Without CPUs told nothing says that another form is alike.
            if group.form not in by_form and not (by_form and victim.cpus and neighbour.cpus):
                return None
            borrowed += group.form not in by_form
            row.append(by_form[group.form] if group.form in by_form else fmean(by_form.values()))
        beside.append(row)
    predicted = {name: sum(rule(row) for row in beside) for name, rule in RULES.items()}
    return PredictedGroup(group.form, score, predicted, borrowed)


def _beside(victim: DatasetMember, neighbour: DatasetMember) -> _Beside:
    """Who beside whom, and how they share CPUs: how many each has, how many in common, and the driver domain's."""
    shared = len(victim.cpus & neighbour.cpus)
    relation = (len(victim.cpus), len(neighbour.cpus), shared, victim.driver_cpus)
    return victim.label, neighbour.label, relation


def _rules(found: Sequence[PredictedGroup]) -> tuple[RuleAccuracy, ...]:
    if not found:
        return ()
    errors = {name: [composed.error(name) for composed in found] for name in RULES}
    return tuple(
        RuleAccuracy(name, len(found), fmean(of), fmean(abs(error) for error in of)) for name, of in errors.items()
    )
