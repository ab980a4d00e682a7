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
"""How a member's ratio beside several follows from its ratios beside each: as their product, or as the smallest."""


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
    """Groups that can be compared, the accuracy of the rules, and how many groups hold a pair that was not measured."""

    groups: tuple[PredictedGroup, ...]
    rules: tuple[RuleAccuracy, ...]
    without_pairs: int


def compose(groups: Sequence[DatasetGroup], results: Iterable[PairResult], replicates: Replicates) -> GroupPredictions:
    """Compare every group of at least three with its pairs; a pair counts where it shares CPUs in the same way."""
    values: dict[_Beside, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        values[_beside(result.victim, result.neighbour)][result.form] += result.values
    pairs = {beside: {form: median(ratios) for form, ratios in by_form.items()} for beside, by_form in values.items()}
    larger = [group for group in groups if len(group.members) > PAIR]
    first = {group.run: group for group in reversed(larger)}
    measured = scores(larger, replicates)
    predicted = [group for score in measured if (group := _composed(first[score.run], score, pairs)) is not None]
    return GroupPredictions(tuple(predicted), _rules(predicted), len(measured) - len(predicted))


def _composed(group: DatasetGroup, score: GroupScore, pairs: dict[_Beside, dict[str, float]]) -> PredictedGroup | None:
    beside: list[list[float]] = []
    borrowed = 0
    for victim in group.members:
        row: list[float] = []
        for neighbour in group.members:
            if neighbour is victim:
                continue
            by_form = pairs.get(_beside(victim, neighbour), {})
            # Without known CPUs nothing says that another form is alike.
            if group.form not in by_form and not (by_form and victim.cpus and neighbour.cpus):
                return None
            borrowed += group.form not in by_form
            row.append(by_form[group.form] if group.form in by_form else fmean(by_form.values()))
        beside.append(row)
    predicted = {name: sum(rule(row) for row in beside) for name, rule in RULES.items()}
    return PredictedGroup(group.form, score, predicted, borrowed)


def _beside(victim: DatasetMember, neighbour: DatasetMember) -> _Beside:
    """Victim, neighbour, and how they share CPUs: how many each has, how many both, and those of the driver domain."""
    shared = len(victim.cpus & neighbour.cpus)
    relation = (len(victim.cpus), len(neighbour.cpus), shared, victim.driver_cpus)
    return victim.label, neighbour.label, relation


def _rules(groups: Sequence[PredictedGroup]) -> tuple[RuleAccuracy, ...]:
    if not groups:
        return ()
    errors = {name: [group.error(name) for group in groups] for name in RULES}
    return tuple(
        RuleAccuracy(name, len(groups), fmean(of_rule), fmean(abs(error) for error in of_rule))
        for name, of_rule in errors.items()
    )
