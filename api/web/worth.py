"""Pages of what was measured: scores of VMs, and what the advice was worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import (
    LOW_SCORE,
    SCORE_BUCKETS,
    AdviceWorth,
    AlternativeNow,
    FaredBeside,
    PlacementWorth,
    PredictedVsObserved,
    ScorePoint,
    ScoreSummary,
    VmScore,
)
from api.html import picture
from api.html.render import page
from api.routes.common import OutcomeDep
from api.routes.inventory import Since
from api.web import chart
from api.web.chart import Bar, Chart

# Scores → a histogram of bars, a chart over time and figures; no HTML here.

_GOOD = 80.0  # the border of the last bucket
_LEVELS = ("bad", "bad", "bad", "fair", "good")  # of the buckets


@dataclass(frozen=True, slots=True)
class ScorePane:
    """The scores of a host or the cloud, ready to be shown."""

    mean: str
    lowest: str
    level: str  # good, fair or bad: of the mean
    instances: int
    sources: str  # of how many the CPU time was measured, in words
    buckets: tuple[Bar, ...]
    charts: tuple[Chart, ...]  # one, or none where no window was kept


def score_pane(of: ScoreSummary, history: Sequence[ScorePoint] = ()) -> ScorePane | None:
    """Of a host or the cloud; None where no VM runs."""
    if of.mean is None or of.lowest is None:
        return None
    most = max(of.counts)
    drawn = chart.scores(history)
    return ScorePane(
        score_in_figure(of.mean),
        score_in_figure(of.lowest),
        score_level(of.mean),
        of.instances,
        _sources(of),
        tuple(
            Bar(
                name, level, round(chart.WIDTH * count / most, 1), f"{count:,}", f"{count:,} VMs have a score of {name}"
            )
            for name, level, count in zip(SCORE_BUCKETS, _LEVELS, of.counts, strict=True)
        ),
        (drawn,) if drawn else (),
    )


def score_in_figure(score: float | None) -> str:
    """A score as it is shown; a dash where there is none."""
    return "–" if score is None else f"{score:.0f}"


def score_level(score: float | None) -> str:
    """Good, fair or bad."""
    if score is None or score >= _GOOD:
        return "good"
    return "fair" if score >= LOW_SCORE else "bad"


def score_in_words(of: VmScore) -> str:
    """The factors of one VM's score, as a sentence."""
    cpu = "CPU delivered not known" if of.cpu is None else f"CPU delivered {100 * of.cpu:.0f} % ({of.source})"
    memory = "stalls for memory not measured"
    if of.memory is not None:
        memory = f"stalls for memory {100 * (1 - of.memory):.0f} % of the time (measured)"
    return f"{cpu}, {100 * of.devices:.0f} % of that left by devices and caches (predicted), {memory}."


def _sources(of: ScoreSummary) -> str:
    if of.measured == of.instances:
        return "CPU delivered measured for all"
    if not of.measured:
        return "predicted: CPU delivered was measured for none"
    return f"CPU delivered measured for {of.measured:,} of {of.instances:,}, predicted for the others"


_LEAST_SCALE = 0.01  # of a share: the picture of differences reaches at least so far
_WHO = {"new_vm": "Placed as advised", "residents": "Residents before it"}


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """Two groups side by side; `low`, `mark` and `high` place their difference in a picture with 0 in its middle.

    None = too few to tell.
    """

    who: str
    group: FaredBeside
    low: float | None
    mark: float | None
    high: float | None
    level: str


@dataclass(frozen=True, slots=True)
class WorthRow:
    """One placement, with its picture and the hosts where it could have gone instead."""

    it: PlacementWorth
    beside: picture.BesideRow | None
    free: AlternativeNow | None
    best: AlternativeNow | None


def worth(request: Request, outcomes: OutcomeDep, since: Since = "7d") -> HTMLResponse:
    """What the advice of a week, or of another time, was worth."""
    advice = outcomes.worth(since=since)
    edges = (abs(edge) for group in advice.beside for edge in (group.lower, group.upper) if edge is not None)
    scale = max((_LEAST_SCALE, *edges))
    return page(
        request,
        "worth.html",
        advice=advice,
        notes=_notes(advice),
        since=since,
        differences=[_difference(group, scale) for group in advice.beside],
        scale=scale,
        rows=[_row(placement) for placement in advice.placements],
    )


def _notes(advice: AdviceWorth) -> Sequence[str]:
    """The sentences from the comparisons on; tables show what the sentences before them say."""
    texts = {group.text for group in advice.beside}
    first = next((at for at, sentence in enumerate(advice.sentences) if sentence in texts), 2)
    return advice.sentences[first:]


def _difference(group: FaredBeside, scale: float) -> DifferenceRow:
    if group.lower is None or group.upper is None or group.difference is None:
        return DifferenceRow(_WHO[group.who], group, None, None, None, "")
    low, mark, high = (
        round(picture.WIDTH / 2 * (1 + 0.95 * at / scale), 1) for at in (group.lower, group.difference, group.upper)
    )
    level = "good" if group.lower > 0 else "bad" if group.upper < 0 else "fair"
    return DifferenceRow(_WHO[group.who], group, low, mark, high, level)


def _row(placement: PlacementWorth) -> WorthRow:
    beside = None
    if placement.new_vm is not None:
        beside = picture.beside(PredictedVsObserved(placement.instance, placement.new_vm.observed, placement.band))
    others = [other for other in placement.alternatives if other.why != "here"]
    free = next((other for other in others if other.why == "most_free"), None)
    return WorthRow(placement, beside, free, max(others, key=lambda other: other.share, default=None))
