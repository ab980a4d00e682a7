"""Measured values of a claim, one per round, with their range and how often such a range holds the median."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from lab.statistics import order_coverage, order_interval
from research.findings.lab_runs import LabRun
from research.findings.paper_statements import Printed, groups
from research.findings.verdicts import FEWEST_JUDGED, Region, Verdict, order_verdict


@dataclass(frozen=True, slots=True)
class Values:
    """One value per round, in the statement's unit, and the dataset and platform they were measured in."""

    values: tuple[float, ...]
    source: str

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of all rounds; from nine on without the outermost, as far as it holds the median with 95 %."""
        return order_interval(self.values)

    @property
    def coverage(self) -> float:
        """How often such bounds hold the median, if rounds do not depend on each other: 0.875 for four, 0 for one."""
        return order_coverage(len(self.values))

    @property
    def judged(self) -> bool:
        """Whether there are enough rounds for a verdict."""
        return len(self.values) >= FEWEST_JUDGED

    def each(self, how: Callable[[float], float]) -> Values:
        """The same of every value."""
        return Values(tuple(how(value) for value in self.values), self.source)

    def text(self, unit: str = "") -> str:
        unit = "" if unit in {"ratio", "count", ""} else f" {unit}"
        if len(self.values) == 1:
            return f"{self.middle:.3g}{unit} (once)"
        lower, upper = self.bounds
        return f"{self.middle:.3g}{unit} ({lower:.3g} to {upper:.3g}, {100 * self.coverage:.0f} %)"


def over(
    runs: Sequence[LabRun], value: Callable[[LabRun], float | None], how: Callable[[Sequence[float]], float] = fmean
) -> Values | None:
    """A value of every round that has it, from several runs of a round by `how`; None where none has."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        if (number := value(run)) is not None:
            found[run.dataset, run.repeat].append(number)
    return Values(tuple(how(numbers) for numbers in found.values()), _source(runs[0])) if found else None


def against(
    runs: Sequence[LabRun], base: Sequence[LabRun], value: Callable[[LabRun, LabRun], float | None]
) -> Values | None:
    """A value of every round from a run and the base's run of the same dataset and round; None where there is no such
    pair."""
    bases = {(run.dataset, run.repeat): run for run in base}

    def beside(run: LabRun) -> float | None:
        found = bases.get((run.dataset, run.repeat))
        return None if found is None else value(run, found)

    return over(runs, beside)


def first(outcome: str, scale: float = 1.0) -> Callable[[LabRun], float | None]:
    """What the first member reached, scaled into the statement's unit."""

    def read(run: LabRun) -> float | None:
        found = run.members[0].reached.get(outcome)
        return None if found is None else scale * found

    return read


def percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def gain(value: float | None, base: float | None) -> float | None:
    """value / base, None where either is unknown or the base is nothing."""
    return None if value is None or not base else value / base


def change(value: float | None, base: float | None) -> float | None:
    """Relative change against a base, 0 = none."""
    factor = gain(value, base)
    return None if factor is None else factor - 1


def less(value: float | None, other: float | None) -> float | None:
    """value - other, None where either is unknown."""
    return None if value is None or other is None else value - other


def _source(run: LabRun) -> str:
    return f"{run.dataset}, {run.platform}" if run.platform and run.platform != run.dataset else run.dataset


def verdict(region: Region | None, measured: Values) -> Verdict | None:
    """Of a claim; None where nothing was said of which values agree."""
    if region is None:
        return None
    return region.verdict(*measured.bounds) if measured.judged else "undetermined"


def ordered(printed: Printed, measured: Mapping[str, Values]) -> tuple[str, Verdict]:
    """The measured order in words, and the verdict on it; undetermined while a member is missing or has few rounds."""
    order = groups(printed)
    text = "; ".join(
        f"{name} {measured[name].text()}" for name in sorted(measured, key=lambda name: -measured[name].middle)
    )
    members = [name for group in order for name in group]
    if any(name not in measured or not measured[name].judged for name in members):
        return text, "undetermined"
    return text, order_verdict(order, {name: measured[name].bounds for name in members})
