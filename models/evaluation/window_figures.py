"""How predictions held in measured windows: counts, sums and a histogram of one group, whose size does not grow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from models.evaluation.prediction_checks import (
    COVERAGE,
    SHORT,
    STRANGEST,
    WIDEST,
    CheckedPrediction,
    chance_of_coverage,
    coverage_bounds,
    covered,
    residual,
)

# Asked with the demand that was measured in the window, and before it with the demand that was expected.
Question = Literal["window", "forecast"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
CONTENDED = 0.98  # a share below it, predicted or observed, makes a row contended; two shares of 1 prove nothing
# Windows of hosts that are enough to calibrate on: with 100 independent ones the coverage of what follows lies within
# 5 % of 90 % in nine cases of ten (its distribution is Beta(91, 10): Vovk 2012). And over a day: in one hour forecasts
# err alike.
ENOUGH_SCENES, ENOUGH_S = 100, 86_400.0
MOST_SCENES = 2_000  # beyond it all counts are halved, so that what is older counts less
_PER_OCTAVE = 8  # bins of the histogram: a quantile is at most 9 % too large
_FIRST, _LAST = -4 * _PER_OCTAVE, round(math.log2(STRANGEST)) * _PER_OCTAVE


@dataclass(slots=True)
class WindowFigures:
    """A group's `rows` in so many `scenes`, windows of one host; sums of observed - expected (`error`), of its size
    (`absolute`) and of rows inside the interval (`covered`); `bins` count |residuals| in half widths by logarithm."""

    rows: float = 0.0
    scenes: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    error: float = 0.0
    absolute: float = 0.0
    covered: float = 0.0
    bins: dict[int, float] = field(default_factory=dict)

    def add(self, rows: Sequence[CheckedPrediction], time_s: float) -> None:
        """Take the rows of one scene, at least one."""
        self.first_s = min(self.first_s, time_s) if self.scenes else time_s
        self.last_s = max(self.last_s, time_s)
        self.scenes += 1
        for row in rows:
            off = row.observed - row.expected
            self.rows += 1
            self.error += off
            self.absolute += abs(off)
            self.covered += covered(row)
            at = _bin(abs(residual(row)))
            self.bins[at] = self.bins.get(at, 0.0) + 1
        if self.scenes > MOST_SCENES:
            self._halve()

    @property
    def enough(self) -> bool:
        """Whether intervals may be calibrated on it."""
        return self.scenes >= ENOUGH_SCENES and self.last_s - self.first_s >= ENOUGH_S

    @property
    def coverage(self) -> float:
        """The share of rows inside the model's own interval."""
        return self.covered / self.rows

    @property
    def scaled(self) -> float:
        """The conformal quantile of |residuals|: by how much half widths must be multiplied to hold 90 % of the next
        rows. Scenes count, not rows, for instances of one scene err together."""
        level = min(math.ceil((self.scenes + 1) * COVERAGE) / self.scenes, 1.0)
        before = 0.0
        for at in sorted(self.bins):
            before += self.bins[at]
            if before >= level * self.rows - 1e-9:
                return float(2 ** ((at + 1) / _PER_OCTAVE))
        return WIDEST

    @property
    def factor(self) -> float | None:
        """By how much intervals are widened, at least 1 and at most WIDEST; None while there is not enough."""
        return min(max(self.scaled, 1.0), WIDEST) if self.enough else None

    @property
    def short(self) -> bool:
        """Whether so little is inside the intervals that they cannot hold 90 %."""
        return self.enough and chance_of_coverage(self.coverage, round(self.scenes)) < SHORT

    def as_json(self) -> dict[str, Any]:
        """Plain values, of which `from_json` makes the same again."""
        return {**asdict(self), "bins": {str(at): count for at, count in self.bins.items()}}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> WindowFigures:
        """From what `as_json` gave."""
        return cls(**{**told, "bins": {int(at): count for at, count in told["bins"].items()}})

    def _halve(self) -> None:
        for name in ("rows", "scenes", "error", "absolute", "covered"):
            setattr(self, name, getattr(self, name) / 2)
        self.bins = {at: count / 2 for at, count in self.bins.items()}
        self.first_s = (self.first_s + self.last_s) / 2


@dataclass(frozen=True, slots=True)
class WindowKey:
    """What one group's rows have in common; `level` is what was known of the instance before, "" = any."""

    version: str
    platform: str
    level: str
    question: Question
    contended: bool


@dataclass(frozen=True, slots=True)
class WindowGroup:
    """A group as it is reported: `error` is the mean |observed - expected| of the share of CPU time, `bias` the mean of
    observed - expected; `scaled` the factor that would make intervals hold 90 %; `widening` what is applied, None =
    nothing, for there is not enough; `short` whether intervals were too narrow beyond chance."""

    platform: str
    level: str
    question: Question
    contended: bool
    rows: int
    scenes: int
    since: datetime
    until: datetime
    coverage: float
    coverage_low: float
    coverage_high: float
    error: float
    bias: float
    scaled: float
    widening: float | None
    short: bool


def grouped(
    rows: Sequence[CheckedPrediction], question: Question, levels: Mapping[str, str]
) -> Mapping[WindowKey, list[CheckedPrediction]]:
    """The rows of one scene by group: each in that of its instance's level, and in that of all levels."""
    found: dict[WindowKey, list[CheckedPrediction]] = {}
    for row in rows:
        contended = min(row.expected, row.observed) < CONTENDED
        for level in ("", levels[row.instance]):
            key = WindowKey(row.version, row.platform, level, question, contended)
            found.setdefault(key, []).append(row)
    return found


def groups_of(version: str, known: Mapping[WindowKey, WindowFigures]) -> tuple[WindowGroup, ...]:
    """The groups of one model, those that matter first: contended before calm, forecasts before windows."""
    mine = [key for key in known if key.version == version and known[key].rows]
    mine.sort(key=lambda key: (not key.contended, key.question, key.platform, key.level))
    return tuple(_told(key, known[key]) for key in mine)


def calibrating(key: WindowKey) -> bool:
    """Whether intervals of answers are calibrated on this group: what was said before contended windows."""
    return key.question == "forecast" and key.contended and key.level == ""


def _told(key: WindowKey, one: WindowFigures) -> WindowGroup:
    low, high = coverage_bounds(one.coverage, round(one.scenes))
    return WindowGroup(
        platform=key.platform,
        level=key.level,
        question=key.question,
        contended=key.contended,
        rows=round(one.rows),
        scenes=round(one.scenes),
        since=datetime.fromtimestamp(one.first_s, UTC),
        until=datetime.fromtimestamp(one.last_s, UTC),
        coverage=one.coverage,
        coverage_low=low,
        coverage_high=high,
        error=one.absolute / one.rows,
        bias=one.error / one.rows,
        scaled=min(one.scaled, WIDEST),
        widening=one.factor if calibrating(key) else None,
        short=calibrating(key) and one.short,
    )


def _bin(score: float) -> int:
    return _FIRST if score <= 0 else min(max(math.floor(_PER_OCTAVE * math.log2(score)), _FIRST), _LAST)
