"""Measured values of a claim with their interval, and whether they agree with the paper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lab.statistics import interval
from research.findings.lab_runs import LabRun
from research.findings.paper_statements import FLAT, Printed, groups

# Only what is relative is compared with a paper from other hardware: an absolute figure is shown and never judged.
RELATIVE = frozenset({"%", "x", "ratio"})
POINTS, SHARE = 5.0, 0.1  # room around an interval: percentage points, and part of the printed value elsewhere
FEWEST = 2  # values that an interval needs


@dataclass(frozen=True, slots=True)
class Values:
    """One value per repeat, in the statement's unit, and the dataset and platform they were measured in."""

    values: tuple[float, ...]
    source: str

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def bounds(self) -> tuple[float, float]:
        """95 % interval of the median; from minus to plus infinity where there was one repeat only."""
        lower, upper = interval(self.values)
        return (float("-inf") if lower is None else lower), (float("inf") if upper is None else upper)

    def each(self, how: Callable[[float], float]) -> Values:
        """The same of every value."""
        return Values(tuple(how(value) for value in self.values), self.source)

    def text(self, unit: str = "") -> str:
        lower, upper = interval(self.values)
        unit = "" if unit in {"ratio", "count", ""} else f" {unit}"
        if lower is None or upper is None:
            return f"{self.middle:.3g}{unit} (once)"
        return f"{self.middle:.3g}{unit} ({lower:.3g} to {upper:.3g})"


def over(runs: Sequence[LabRun], value: Callable[[LabRun], float | None]) -> Values | None:
    """A value of every run that has it; None where none has."""
    found = [number for run in runs if (number := value(run)) is not None]
    return Values(tuple(found), _source(runs[0])) if found else None


def against(
    runs: Sequence[LabRun], base: Sequence[LabRun], value: Callable[[LabRun, LabRun], float | None]
) -> Values | None:
    """A value of every run and the base run of the same dataset and repeat; None where there is no such pair."""
    bases = {(run.dataset, run.repeat): run for run in base}
    pairs = [(run, bases.get((run.dataset, run.repeat))) for run in runs]
    known = [value(run, beside) for run, beside in pairs if beside is not None]
    found = [number for number in known if number is not None]
    return Values(tuple(found), _source(runs[0])) if found else None


def highest(runs: Sequence[LabRun], value: Callable[[LabRun], float | None]) -> Values | None:
    """The highest value of every repeat; None where no run has one."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        if (number := value(run)) is not None:
            found[run.dataset, run.repeat].append(number)
    return Values(tuple(max(numbers) for numbers in found.values()), _source(runs[0])) if found else None


def joined(parts: Iterable[Values | None]) -> Values | None:
    """Values of several kinds of runs together; None where there are none."""
    known = [part for part in parts if part is not None]
    return Values(tuple(value for part in known for value in part.values), known[0].source) if known else None


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


def _source(run: LabRun) -> str:
    return f"{run.dataset}, {run.platform}" if run.platform and run.platform != run.dataset else run.dataset


def agrees(printed: Printed, measured: Values) -> bool | None:
    """Whether the measured interval holds what is printed; None where that cannot be compared across hardware, or where
    there is no interval.

    A direction is a relative change: `flat` up to 5 %.
    """
    if len(measured.values) < FEWEST:
        return None
    relation, (lower, upper) = printed["relation"], measured.bounds
    if relation == "direction":
        return {"up": lower > 0, "down": upper < 0}.get(
            printed["value"], abs(measured.middle) <= FLAT or lower <= 0 <= upper
        )
    if printed["unit"] not in RELATIVE:
        return None
    if relation == "range":
        return lower <= float(printed["high"]) and upper >= float(printed["low"])
    value = float(printed["value"])
    if relation in {"<", "<="}:
        return lower <= value
    if relation in {">", ">="}:
        return upper >= value
    room = POINTS if printed["unit"] == "%" else SHARE * abs(value)
    return lower - room <= value <= upper + room


def ordered(printed: Printed, measured: Mapping[str, Values]) -> tuple[str, bool | None]:
    """The measured order in words, and whether it is the printed one; None while a member is missing or measured once.

    Members whose intervals overlap may stand either way.
    """
    order = groups(printed)
    names = [name for group in order for name in group]
    middle = {name: values.middle for name, values in measured.items()}
    text = "; ".join(f"{name} {measured[name].text()}" for name in sorted(middle, key=lambda name: -middle[name]))
    if any(name not in measured or len(measured[name].values) < FEWEST for name in names):
        return text, None
    best = {name: measured[name].bounds[1] for name in names}
    worst = {name: measured[name].bounds[0] for name in names}
    possible = all(
        best[above] >= worst[below]
        for position, group in enumerate(order)
        for later in order[position + 1 :]
        for above in group
        for below in later
    )
    return text, possible
