"""Histories → line charts as values: paths of lines, labels of the axes, and the same in figures; no HTML here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from advisor.domain import Histories, History, ScorePoint, ScoreSource, VmScorePoint
from profiler.metrics import EIGHT

MOST_LINES = 6  # as many as can be distinguished by colour and dashes
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 316.0, 8.0, 84.0  # of the lines, as charts.html draws the axes
SHARE = "share"
_WINDOW_S = 300.0  # of a score that is kept
_TITLES = {"cpu": "CPU", SHARE: "CPU delivered", "score": "Score"}
_SHARE_HELP = (
    "Run over run and wait, as measured; the thin line is what is predicted now. Time for which its own cap holds an "
    "instance back counts as waiting."
)


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One series, drawn: its number `at` chooses colour and dashes; a `predicted` one is drawn thin."""

    name: str
    at: int
    path: str
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """The same in figures: last, mean, least and most."""

    name: str
    last: str
    mean: str
    least: str
    most: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One metric over time. `figures` has every instance, `lines` those with the highest means."""

    title: str
    unit: str
    help: str
    top: str
    begin: str
    end: str
    lines: tuple[ChartLine, ...]
    figures: tuple[Figures, ...]

    @property
    def words(self) -> str:
        """The chart in words, for readers who cannot see it."""
        shown = ", ".join(line.name for line in self.lines)
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.title}{unit} of {shown} from {self.begin} to {self.end}, at most {self.top}"


def charts(histories: Histories, names: Mapping[str, int]) -> tuple[Chart, ...]:
    """A chart for each of the eight metrics that was measured, in their order.

    `names` numbers the instances; the first MOST_LINES of them are drawn. The host's own series are drawn as number 0.
    """
    by_metric: dict[str, list[History]] = {}
    for history in histories.found:
        by_metric.setdefault(history.metric, []).append(history)
    return tuple(
        _chart(metric.name, metric.help, by_metric[metric.name], histories, names)
        for metric in EIGHT
        if metric.name in by_metric
    )


def shares(histories: Histories, names: Mapping[str, int], predicted: Mapping[str, float]) -> Chart | None:
    """What instances got of the CPU time that they wanted, run / (run + wait), beside what is predicted of each now.

    None where no instance's waiting was measured.
    """
    measured = share_histories(histories)
    if not measured:
        return None
    chart = _chart(SHARE, _SHARE_HELP, measured, histories, names, top=1.0)
    drawn = {line.name: line for line in chart.lines}
    predicted_lines = tuple(
        ChartLine(f"{name}, predicted", drawn[name].at, _level(share), predicted=True)
        for name, share in predicted.items()
        if name in drawn
    )
    return replace(chart, lines=(*chart.lines, *predicted_lines))


def share_histories(histories: Histories) -> list[History]:
    """Run / (run + wait) of each instance, step by step, where both were measured and are not both 0."""
    values_at = {
        (history.instance, history.metric): dict(zip(history.times, history.values, strict=True))
        for history in histories.found
    }
    measured = []
    for history in histories.found:
        if history.metric != "cpu" or history.instance is None:
            continue
        waiting = values_at.get((history.instance, "waiting"), {})
        pairs = [
            (at, run / (run + waiting[at]))
            for at, run in zip(history.times, history.values, strict=True)
            if at in waiting and run + waiting[at] > 0
        ]
        if pairs:
            times, values = zip(*pairs, strict=True)
            measured.append(History(history.host, history.instance, SHARE, "", times, values))
    return measured


def scores(history: Sequence[ScorePoint]) -> Chart | None:
    """Mean and lowest score of windows of five minutes; None where there are none."""
    known = [(point.time.timestamp(), point.scores.mean, point.scores.lowest) for point in history]
    if not known:
        return None
    times, means, lowest = zip(*known, strict=True)
    names = {"mean": 0, "lowest": 1}
    lines = [
        History("", name, "score", "", times, [value or 0.0 for value in values])
        for name, values in zip(names, (means, lowest), strict=True)
    ]
    span = Histories(times[0] - _WINDOW_S, times[-1], _WINDOW_S, tuple(lines))
    return _chart("score", "The score of VMs, 100 = uncontended, window by window.", lines, span, names, top=100.0)


def vm_scores(history: Sequence[VmScorePoint]) -> Chart | None:
    """The score of one VM window by window, where CPU delivered was measured and where it was predicted."""
    sources: dict[ScoreSource, int] = {"measured": 0, "predicted": 1}
    lines = [
        History("", source, "score", "", [point.time.timestamp() for point in of], [point.score for point in of])
        for source in sources
        if (of := [point for point in history if point.source == source])
    ]
    if not lines:
        return None
    span = Histories(history[0].time.timestamp() - _WINDOW_S, history[-1].time.timestamp(), _WINDOW_S, tuple(lines))
    names = {str(source): at for source, at in sources.items()}
    return _chart("score", "Its score, 100 = uncontended, window by window.", lines, span, names, top=100.0)


def ranked(histories: Histories) -> dict[str, int]:
    """Numbers the instances of a host, the largest mean use of CPU first: those that matter are drawn."""
    cpu = {
        history.instance: _mean(history.values)
        for history in histories.found
        if history.metric == "cpu" and history.instance
    }
    names = sorted(
        {history.instance for history in histories.found if history.instance},
        key=lambda name: (-cpu.get(name, 0.0), name),
    )
    return {name: at for at, name in enumerate(names)}


def _chart(
    metric: str,
    help_text: str,
    measured: Sequence[History],
    histories: Histories,
    names: Mapping[str, int],
    top: float | None = None,
) -> Chart:
    ordered = sorted(measured, key=lambda history: (names.get(history.instance or "", -1), history.host))
    drawn = [history for history in ordered if names.get(history.instance or "", 0) < MOST_LINES]
    top = top or _round_up(max((max(history.values) for history in drawn), default=0.0))
    lines = tuple(
        ChartLine(_name(history), names.get(history.instance or "", 0), _path(history, histories, top))
        for history in drawn
    )
    figures = tuple(
        Figures(
            _name(history),
            *(
                _figure(value)
                for value in (history.values[-1], _mean(history.values), min(history.values), max(history.values))
            ),
        )
        for history in ordered
    )
    begin, end = (_moment(at, histories) for at in (histories.begin_s, histories.end_s))
    return Chart(
        _TITLES.get(metric, metric.replace("_", " ").capitalize()),
        measured[0].unit,
        help_text,
        _figure(top),
        begin,
        end,
        lines,
        figures,
    )


def _path(history: History, histories: Histories, top: float) -> str:
    """The line through the middles of the steps; a step between two breaks is a dot.

    It breaks where more than one step is missing beyond the usual distance: an agent that pushes every two minutes
    leaves steps of half a minute empty.
    """
    span = histories.end_s - histories.begin_s
    points = [
        (
            round(_LEFT + (_RIGHT - _LEFT) * (at - histories.step_s / 2 - histories.begin_s) / span, 1),
            round(_BOTTOM - (_BOTTOM - _TOP) * min(max(value / top, 0.0), 1.0), 1),
        )
        for at, value in zip(history.times, history.values, strict=True)
    ]
    gaps = [after - before for before, after in pairwise(history.times)]
    longest = 2.5 * max(histories.step_s, median(gaps or [0.0]))
    breaks = [True, *(gap > longest for gap in gaps), True]
    return "".join(
        f"{'M' if begins else 'L'}{x:g} {y:g}{'h.1' if ends else ''}"
        for (x, y), begins, ends in zip(points, breaks, breaks[1:], strict=False)
    )


def _level(value: float) -> str:
    """A line across the chart at this value of 0 to 1."""
    y = round(_BOTTOM - (_BOTTOM - _TOP) * min(max(value, 0.0), 1.0), 1)
    return f"M{_LEFT:g} {y:g}H{_RIGHT:g}"


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if not 0 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9)), 10 * power)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _name(history: History) -> str:
    return history.instance or f"host {history.host}"


def _moment(at: float, histories: Histories) -> str:
    span = histories.end_s - histories.begin_s
    form = "%H:%M UTC" if span < 86_400 else "%m-%d %H:%M UTC" if span == 86_400 else "%Y-%m-%d"
    return f"{datetime.fromtimestamp(at, UTC):{form}}"
