"""The registry's gate: compares a candidate's held-out predictions with the analytic and with the active model.

The rule. For every target and protocol of the candidate there are up to three checks:

1. against the prior and 2. against the active model: the mean difference of errors, candidate minus other, on the same
   rows (by key, and with the same measured value). Refused where it is above NEGLIGIBLE beyond noise;
3. coverage of the 90 % intervals. Refused where it is below COVERED beyond noise.

Error is |measured - expected| for throughput, |log(measured / expected)| for latency and jitter, which have no upper
end. Noise is estimated by a bootstrap over pairs of workloads (repeats and both sides of a pair are not independent):
RESAMPLES resamples, widened for few pairs. All checks share ERROR_RATE evenly (Bonferroni), so that a candidate that is
nowhere worse is refused at most about that often, however many checks there are. Below FEWEST_PAIRS pairs noise cannot
be estimated: there the mean difference decides, and coverage is not checked.

Throughput and share must also show that something was learned; latency and jitter come with throughput, and may answer
as the prior does. Outcomes that have nothing to do with their scenes are not enough to be worse than the prior: there
the prior is wrong in every scene, and a model that says nearly the same everywhere is better. So each is refused where

4. on left-out campaigns or hosts, where any were left out, it is not better than the prior beyond noise, and under no
   other protocol where none were, or
5. on unseen pairs or hosts it is not better than the best constant: the median of the held-out values themselves. A
   share, learned from windows that no operator checked, must be so beyond noise.

Rows of windows are checked in two parts, contended ones (prior or measured share below CONTENDED) and calm ones:
of most clouds nine rows in ten are calm, where nothing is to be gained, and would drown what was learned of the others.
What checks 4 and 5 ask is asked of contended rows; calm ones must be no worse by more than CALM_NEGLIGIBLE, and hold
their intervals.

6. It must also be worse than the prior beyond noise on no single campaign that was left out, of FEWEST_PAIRS or more
   pairs. Left-out campaigns with fewer pairs together are not judged: they are one or two chance findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from models.evaluation.matched_outcomes import FEWEST_PAIRS, ResampledMeans, beside, errors_of, means_of
from models.evaluation.prediction_checks import CONTENDED
from models.learning.held_out import HeldOutPredictions

Against = Literal["analytic", "active", "constant"]
Part = Literal["", "contended", "calm"]

NEGLIGIBLE = 0.001  # a tenth of a per cent of T/B: below what any repeat can show
LEAST_PART = 50  # contended rows, and calm ones: with fewer of either all are checked together
CALM_NEGLIGIBLE = 0.005  # of the share of calm rows: as much as a model in use may turn out worse (window_training)
COVERED = 0.87  # of intervals that claim 0.90
ERROR_RATE = 0.05  # of the whole gate, one-sided
_ELSEWHERE = frozenset({"unseen_campaign", "unseen_host", "newest"})
_PROVES = {"throughput": "unseen_pair", "share": "unseen_host"}  # target and protocol of check 5
_NAMES: dict[Against, str] = {"analytic": "analytic model", "active": "active model", "constant": "best constant"}


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Mean errors of candidate and other on their common rows, and the difference with its bounds by the bootstrap."""

    against: Against
    rows: int
    pairs: int
    error: float
    other: float
    difference: float
    low: float
    high: float
    passed: bool


@dataclass(frozen=True, slots=True)
class GateFigures:
    """Figures of one target under one protocol; `part` says of which rows, "" = of all.

    `active` None = no rows in common with the active model, `constant` None = not asked for.
    """

    target: str
    protocol: str
    rows: int
    pairs: int
    error: float
    coverage: float
    coverage_low: float
    coverage_high: float
    covers: bool
    analytic: PairedComparison
    active: PairedComparison | None
    constant: PairedComparison | None
    part: Part = ""

    @property
    def where(self) -> str:
        """As sentences begin."""
        return ", ".join(filter(None, [self.target, self.protocol, self.part and f"{self.part} rows"]))


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """Whether a candidate may be activated. `refusals` are reasons against it; `reasons` has these and all other
    findings, `figures` the numbers. `against` is the version of the active model, None = the analytic model alone.
    """

    refusals: tuple[str, ...]
    reasons: tuple[str, ...]
    figures: tuple[GateFigures, ...] = ()
    against: str | None = None

    @property
    def passed(self) -> bool:
        """Whether there are no refusals."""
        return not self.refusals

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"passed": self.passed, **asdict(self)}


def gate(
    candidate: Sequence[HeldOutPredictions], active: Sequence[HeldOutPredictions] | None, *, against: str | None = None
) -> GateVerdict:
    """Check a candidate by the rule of this module; `active` None = no learned model is active.

    `against` is the active model's version, for the record. Deterministic: the same tables give the same verdict.
    """
    tables = [table for table in candidate if len(table) and not _too_few_on_platforms(table)]
    if not tables:
        nothing = "It has no held-out predictions to show that it is no worse than the analytic model; train again."
        return GateVerdict((nothing,), (nothing,), against=against)
    others = {(table.target, table.protocol): table for table in active or ()}
    parts = [(part, rows) for table in tables for part, rows in _parts(table)]
    draws = [_draw(table, others.get((table.target, table.protocol)), part) for part, table in parts]
    level = ERROR_RATE / sum(2 + (one.active is not None) + (one.constant is not None) for one in draws)
    figures = tuple(_figures(draw, level) for draw in draws)
    worse = (sentence for table in tables for sentence in _worse_somewhere(table))
    bad = (*(sentence for one in figures for sentence in _complaints(one)), *worse, *_unproved(figures))
    found = (_summary(figure) for figure in figures)
    return GateVerdict(bad, (*bad, *_uncompared(figures, others, active), *found), figures, against)


def _too_few_on_platforms(table: HeldOutPredictions) -> bool:
    return table.protocol == "unseen_campaign" and len(set(table.pair)) < FEWEST_PAIRS


def _worse_somewhere(table: HeldOutPredictions) -> Iterator[str]:
    """Campaigns that were left out and are predicted worse than by the analytic model, beyond noise."""
    names, which = np.unique(np.array(table.platform), return_inverse=True)
    if table.protocol != "unseen_campaign" or len(names) < 2:
        return
    for number, name in enumerate(names.tolist()):
        part = table.take(np.flatnonzero(which == number))
        mine, prior = errors_of(part, part.expected), errors_of(part, part.prior)
        means = means_of(np.column_stack([mine, prior, mine - prior]), part.pair)
        bounds = means.bounds(2, ERROR_RATE / len(names))
        if bounds is not None and bounds[0] > NEGLIGIBLE:
            yield (
                f"{table.target}, {name} left out: worse than the analytic model, mean error {means.mean[0]:.4g} "
                f"against {means.mean[1]:.4g} on {means.rows} rows of {means.pairs} pairs, by {bounds[0]:.4g} at least."
            )


def _parts(table: HeldOutPredictions) -> Iterator[tuple[Part, HeldOutPredictions]]:
    """The contended and the calm rows of windows; a table of others, or with few rows of one kind, as it is."""
    contended = np.minimum(table.prior, table.measured) < CONTENDED
    if table.target != "share" or min(contended.sum(), (~contended).sum()) < LEAST_PART:
        yield "", table
        return
    yield "contended", table.take(np.flatnonzero(contended))
    yield "calm", table.take(np.flatnonzero(~contended))


@dataclass(frozen=True, slots=True)
class _Draw:
    """A table with its resampled means: errors of candidate and prior, difference, inside; likewise the others."""

    table: HeldOutPredictions
    own: ResampledMeans
    active: ResampledMeans | None
    constant: ResampledMeans | None
    part: Part


def _draw(table: HeldOutPredictions, other: HeldOutPredictions | None, part: Part) -> _Draw:
    mine, prior = errors_of(table, table.expected), errors_of(table, table.prior)
    inside = ((table.measured >= table.lower) & (table.measured <= table.upper)) * 1.0
    own = means_of(np.column_stack([mine, prior, mine - prior, inside]), table.pair)
    constant = None
    if _PROVES.get(table.target) == table.protocol and part != "calm":
        flat = errors_of(table, np.full(len(table), np.median(table.measured)))
        constant = means_of(np.column_stack([mine, flat, mine - flat]), table.pair)
    return _Draw(table, own, None if other is None else beside(table, mine, other), constant, part)


def _figures(draw: _Draw, level: float) -> GateFigures:
    low, high = draw.own.bounds(3, level) or (0.0, 1.0)
    return GateFigures(
        target=draw.table.target,
        protocol=draw.table.protocol,
        rows=draw.own.rows,
        pairs=draw.own.pairs,
        error=_round(draw.own.mean[0]),
        coverage=_round(draw.own.mean[3]),
        coverage_low=_round(max(low, 0.0)),
        coverage_high=_round(min(high, 1.0)),
        covers=high >= COVERED,
        analytic=_compared("analytic", draw.own, level, part=draw.part),
        active=None if draw.active is None else _compared("active", draw.active, level, part=draw.part),
        constant=None if draw.constant is None else _compared("constant", draw.constant, level, draw.table.target),
        part=draw.part,
    )


def _compared(
    against: Against, means: ResampledMeans, level: float, target: str = "", part: Part = ""
) -> PairedComparison:
    low, high = means.bounds(2, level) or (means.mean[2], means.mean[2])
    error, other, difference = (_round(value) for value in means.mean[:3])
    passed = low <= (CALM_NEGLIGIBLE if part == "calm" else NEGLIGIBLE)
    if against == "constant":
        passed = (high if target == "share" else means.mean[2]) < 0
    return PairedComparison(
        against, means.rows, means.pairs, error, other, difference, _round(low), _round(high), bool(passed)
    )


def _complaints(figures: GateFigures) -> Iterator[str]:
    where = figures.where
    for one in (figures.analytic, figures.active):
        if one is not None and not one.passed:
            yield (
                f"{where}: worse than the {_NAMES[one.against]}, mean error {one.error:.4g} against {one.other:.4g} "
                f"on {_rows(one)}, by {one.low:.4g} at least."
            )
    if not figures.covers:
        yield (
            f"{where}: 90 % intervals cover {_percent(figures.coverage)} of {_rows(figures)}, "
            f"{_percent(figures.coverage_high)} at most."
        )


def _unproved(figures: Sequence[GateFigures]) -> Iterator[str]:
    """What is missing to show that throughput and share were learned."""
    for target in _PROVES:
        judged = [one for one in figures if one.target == target and one.part != "calm"]
        elsewhere = [one for one in judged if one.protocol in _ELSEWHERE]
        if judged and not any(one.analytic.high < 0 for one in elsewhere or judged):
            where = "on no left-out campaign or host" if elsewhere else "under no protocol"
            yield f"{target}: {where} is it better than the analytic model beyond noise."
    for one in figures:
        if one.constant is not None and not one.constant.passed:
            sure = "beyond noise " if one.target == "share" else ""
            yield (
                f"{one.where}: no better {sure}than the best constant, mean error {one.error:.4g} "
                f"against {one.constant.other:.4g}: the outcomes may have nothing to do with their scenes."
            )


def _uncompared(
    figures: Sequence[GateFigures],
    others: Mapping[tuple[str, str], HeldOutPredictions],
    active: Sequence[HeldOutPredictions] | None,
) -> Iterator[str]:
    """Sentences about targets and protocols that could not be compared with the active model."""
    if active is None:
        yield "No learned model is active, so it was compared with the analytic model only."
        return
    alone = [figure for figure in figures if figure.active is None]
    if len(alone) == len(figures):
        yield "It shares no held-out rows with the active model, so it was compared with the analytic model only."
    else:
        for one in alone:
            yield f"{one.where}: no rows in common with the active model, only the analytic model was compared."
    judged = {one.target for one in figures}
    for target in sorted({name for name, _ in others} - judged):
        yield f"The active model has learned {target}, this one has not: the analytic model would answer for it."


def _summary(figures: GateFigures) -> str:
    parts = [
        f"{one.other:.4g} of the {_NAMES[one.against]}"
        + ("" if one.rows == figures.rows else f" on {one.rows} common rows, where its own is {one.error:.4g}")
        for one in (figures.analytic, figures.active, figures.constant)
        if one is not None
    ]
    return (
        f"{figures.where}: mean error {figures.error:.4g} against {' and '.join(parts)}; "
        f"90 % intervals cover {_percent(figures.coverage)} ({_rows(figures)})."
    )


def _rows(of: PairedComparison | GateFigures) -> str:
    return f"{of.rows} row{'s' * (of.rows != 1)} of {of.pairs} pair{'s' * (of.pairs != 1)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _round(value: float) -> float:
    return round(float(value), 6)
