"""Compares predictions with observations: checked predictions and windows, their figures, and interval inflation.

There is no storage here: the same rows always give the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field

from models.figures import Figure, Known

TARGETS = ("throughput", "latency", "jitter")
ROLES = (
    "active",
    "shadow",
    "baseline",
)  # the one that answered, one tried beside it, and the analytic model as the yardstick
COVERAGE = 0.9  # what every interval of this project claims
WINDOW = 200  # rows per group; a coverage of 90 % is then known to about +-4 %
LOWEST, HIGHEST = 1e-3, 1e3  # 0 has no logarithm; as in training
FLOOR = 0.01  # half width on the log scale below which a residual is not scaled up: measurements repeat no better
STRANGEST = 4.0  # half widths; one broken measurement must not pass for a drift
SHORT = 0.05  # coverage is short when a model that keeps its promise would be that low less often than this
GAMMA = 0.01  # step of the adaptive level per scene (gamma of Gibbs and Candes, NeurIPS 2021)
FEW = 20  # scenes below which nothing is said about coverage or drift
WIDEST = STRANGEST  # times; intervals this far off need a new model, not a factor


@dataclass(frozen=True, slots=True)
class CheckedPrediction:
    """One prediction beside what was measured. Rows of one `source` were measured together, in one scene.

    `expected`, `lower`, `upper` are the model's own ratio and 90 % interval, before any widening; `workload` "" =
    unknown.
    """

    source: str
    time: datetime
    version: str
    role: str
    target: str
    platform: str
    workload: str
    instance: str
    expected: float
    lower: float
    upper: float
    outside: bool
    observed: float


@dataclass(frozen=True, slots=True)
class CheckFigures:
    """What the rows of a group say; errors are of the ratio, `bias` is observed minus expected."""

    rows: Annotated[int, Field(description="observed rows")]
    scenes: Annotated[int, Field(description="measured scenes, whose instances err together; they count, not rows")]
    since: Annotated[datetime, Field(description="time of the first")]
    until: Annotated[datetime, Field(description="time of the last")]
    coverage: Annotated[Known, Field(description="share of observations inside the model's own 90 % interval")]
    coverage_low: Annotated[Known, Field(description="lower end of the coverage's own 90 % interval")]
    coverage_high: Annotated[Known, Field(description="upper end of that interval")]
    error: Annotated[Known, Field(description="mean |observed - expected|")]
    bias: Annotated[Known, Field(description="mean of observed minus expected")]
    outside: Annotated[Known, Field(description="share that lay outside the training data")]


def figures(rows: Sequence[CheckedPrediction]) -> CheckFigures:
    """Compute the figures of a group of at least one row; rows are in order of time."""
    off = np.array([row.observed - row.expected for row in rows])
    scenes = count_scenes(rows)
    coverage = float(np.mean([covered(row) for row in rows]))
    low, high = coverage_bounds(coverage, scenes)
    return CheckFigures(
        rows=len(rows),
        scenes=scenes,
        since=rows[0].time,
        until=rows[-1].time,
        coverage=coverage,
        coverage_low=low,
        coverage_high=high,
        error=float(np.abs(off).mean()),
        bias=float(off.mean()),
        outside=float(np.mean([row.outside for row in rows])),
    )


def covered(row: CheckedPrediction) -> bool:
    """Whether the measurement lies in the interval."""
    return row.lower <= row.observed <= row.upper


def residual(row: CheckedPrediction) -> float:
    """(log observed - log expected) over the half width on that side: within +-1 is inside the interval.

    Cut at STRANGEST; a half width under FLOOR counts as FLOOR.
    """
    off = log_off(row)
    expected = clip(row.expected)
    edge = math.log(clip(row.upper) / expected) if off > 0 else math.log(expected / clip(row.lower))
    return min(max(off / max(edge, FLOOR), -STRANGEST), STRANGEST)


def log_off(row: CheckedPrediction) -> float:
    """Log of observed over expected: -0.1 = about 10 % below what was predicted."""
    return math.log(clip(row.observed) / clip(row.expected))


def clip(ratio: float) -> float:
    """The ratio clipped to values that have a logarithm."""
    return min(max(ratio, LOWEST), HIGHEST)


def by_scene(rows: Sequence[CheckedPrediction]) -> tuple[tuple[CheckedPrediction, ...], ...]:
    """Split rows where the source changes; rows of one source are stored one after another."""
    return tuple(tuple(group) for _, group in groupby(rows, key=lambda row: row.source))


def count_scenes(rows: Sequence[CheckedPrediction]) -> int:
    """The number of scenes that the rows come from."""
    return len({row.source for row in rows})


def coverage_bounds(coverage: float, count: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share that was seen `count` times; the whole of 0-1 for none."""
    from scipy.special import betaincinv

    tail, hits = (1 - COVERAGE) / 2, coverage * count
    low = 0.0 if hits <= 0 else float(betaincinv(hits, count - hits + 1, tail))
    high = 1.0 if hits >= count else float(betaincinv(hits + 1, count - hits, 1 - tail))
    return low, high


def chance_of_coverage(coverage: float, count: int) -> float:
    """The probability that a model whose intervals hold COVERAGE covers so few of `count` scenes (binomial tail)."""
    from scipy.special import bdtr

    return float(bdtr(np.floor(coverage * count + 1e-9), count, COVERAGE))


def is_short(rows: Sequence[CheckedPrediction], chance: float = SHORT) -> bool:
    """Whether coverage is implausibly low for calibrated intervals; needs at least FEW scenes."""
    scenes = count_scenes(rows)
    if scenes < FEW:
        return False
    return chance_of_coverage(float(np.mean([covered(row) for row in rows])), scenes) < chance


def widening(rows: Sequence[CheckedPrediction], window: int = WINDOW) -> float:
    """The factor, at least 1, by which half widths should grow now (adaptive conformal inference, Gibbs & Candes 2021).

    `rows` are one platform's in order of time, twice the window long if there are as many. The level follows
    alpha + GAMMA * (alpha - miss) scene by scene; the factor is the quantile of the last window's |residuals| at that
    level. The level never goes below the model's own, and the factor is 1 while coverage is plausible.
    """
    if not is_short(rows[-window:]):
        return 1.0
    alpha, factor = 1 - COVERAGE, 1.0
    scores: list[float] = []
    for scene in by_scene(rows):
        found = [abs(residual(row)) for row in scene]
        missed = sum(score > factor for score in found) / len(found)
        alpha = min(max(alpha + GAMMA * (1 - COVERAGE - missed), 0.0), 1 - COVERAGE)
        scores = [*scores, *found][-window:]
        factor = max(conformal_quantile(scores, 1 - alpha), 1.0) if len(scores) >= FEW else 1.0
    return min(factor, WIDEST)


def conformal_quantile(scores: Sequence[float], level: float = COVERAGE) -> float:
    """The conformal quantile: the ceil((n + 1) level)-th smallest, the largest where that is beyond all."""
    rank = min(math.ceil((len(scores) + 1) * level), len(scores))
    return sorted(scores)[rank - 1]


def widen(expected: float, edge: float, factor: float) -> float:
    """Move an interval's bound to `factor` times its distance from `expected` on the log scale; 0 and inf stay."""
    if factor == 1.0 or not (expected > 0 and 0 < edge < math.inf):
        return edge
    return expected * math.exp(math.log(edge / expected) * factor)


# How predictions held in measured windows: counts, sums and a histogram of one group, whose size does not grow.

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
    def from_json(cls, stored: Mapping[str, Any]) -> WindowFigures:
        """From what `as_json` gave."""
        return cls(**{**stored, "bins": {int(at): count for at, count in stored["bins"].items()}})

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
    """Calibration of the predicted CPU delivered, run / (run + wait), in windows that agents measured on a sample of
    hosts."""

    platform: Annotated[str, Field(description="platform of the hosts, or their kind where they have none")]
    level: Annotated[
        str,
        Field(description="what was known of the instances before the window (see docs/answers.md); empty = all"),
    ]
    question: Annotated[
        Question,
        Field(
            description="forecast: as predicted before the window; window: as predicted with the demand measured in it"
        ),
    ]
    contended: Annotated[
        bool,
        Field(description="a share below 0.98 was predicted or observed; of the others little is learned"),
    ]
    rows: Annotated[int, Field(description="instances in windows")]
    scenes: Annotated[
        int, Field(description="windows of one host, whose instances err together; older ones count less")
    ]
    since: Annotated[datetime, Field(description="when the first ended")]
    until: Annotated[datetime, Field(description="when the last ended")]
    coverage: Annotated[Known, Field(description="share inside the model's own 90 % interval")]
    coverage_low: Annotated[Known, Field(description="lower end of the coverage's own 90 % interval")]
    coverage_high: Annotated[Known, Field(description="upper end of that interval")]
    error: Annotated[Known, Field(description="mean |observed - expected|")]
    bias: Annotated[Known, Field(description="mean of observed minus expected")]
    scaled: Annotated[
        Known, Field(description="by which half widths must be multiplied to hold 90 %; 4 = that or more")
    ]
    widening: Annotated[
        Figure | None, Field(description="by which intervals are widened for it; null = too few windows")
    ]
    short: Annotated[bool, Field(description="its intervals are too narrow beyond chance")]


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
    return tuple(_window_group(key, known[key]) for key in mine)


def calibrating(key: WindowKey) -> bool:
    """Whether intervals of answers are calibrated on this group: what was said before contended windows."""
    return key.question == "forecast" and key.contended and key.level == ""


def _window_group(key: WindowKey, one: WindowFigures) -> WindowGroup:
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
