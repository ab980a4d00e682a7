"""Measured values of a claim with their interval, and whether that agrees with what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from advisor.findings.lab import LabRun
from advisor.findings.printed import Printed, groups, in_words, is_ordered, said
from profiler.lab.statistics import interval

# Only what is relative is compared with a paper from other hardware: an absolute figure is shown and never judged.
RELATIVE = frozenset({"%", "x", "ratio"})
POINTS, SHARE = 5.0, 0.1  # room around an interval: percentage points, and part of the printed value elsewhere
FEWEST = 2  # values that an interval needs
FLAT = 0.05  # a change up to this share counts as none


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
    """A value of every run and the base run of the same repeat; None where there is no such pair."""
    bases = {run.repeat: run for run in base}
    found = [
        number for run in runs if run.repeat in bases and (number := value(run, bases[run.repeat])) is not None
    ]  # fmt: skip
    return Values(tuple(found), _source(runs[0])) if found else None


def joined(parts: Iterable[Values | None]) -> Values | None:
    """Values of several kinds of runs together; None where there are none."""
    known = [part for part in parts if part is not None]
    return Values(tuple(value for part in known for value in part.values), known[0].source) if known else None


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
    return text, is_ordered(order, middle) or possible


__all__ = ["FLAT", "Values", "against", "agrees", "in_words", "joined", "ordered", "over", "said"]
