"""Scores → a histogram of bars, a chart over time and figures; no HTML here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.domain import LOW_SCORE, SCORE_BUCKETS, ScorePoint, ScoreSummary, VmScore
from api.web import bars, chart
from api.web.bars import Bar
from api.web.chart import Chart

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


def pane(of: ScoreSummary, history: Sequence[ScorePoint] = ()) -> ScorePane | None:
    """Of a host or the cloud; None where no VM runs."""
    if of.mean is None or of.lowest is None:
        return None
    most = max(of.counts)
    drawn = chart.scores(history)
    return ScorePane(
        figure(of.mean),
        figure(of.lowest),
        level(of.mean),
        of.instances,
        _sources(of),
        tuple(
            Bar(name, level, round(bars.WIDTH * count / most, 1), f"{count:,}", f"{count:,} VMs have a score of {name}")
            for name, level, count in zip(SCORE_BUCKETS, _LEVELS, of.counts, strict=True)
        ),
        (drawn,) if drawn else (),
    )


def figure(score: float | None) -> str:
    """A score as it is shown; a dash where there is none."""
    return "–" if score is None else f"{score:.0f}"


def level(score: float | None) -> str:
    """Good, fair or bad."""
    if score is None or score >= _GOOD:
        return "good"
    return "fair" if score >= LOW_SCORE else "bad"


def in_words(of: VmScore) -> str:
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
