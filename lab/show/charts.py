"""Charts of a dataset as inline SVG in the page's colours, so that they fit light mode, dark mode and paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from lab.show.distributions import OutcomeHistories, Panel, RunWindows
from lab.show.formatting import OUTCOMES, ROLES, factor
from lab.show.group_prediction import GroupPredictions
from lab.show.sweeps import FactorSweep, NetworkMode, NetworkModes
from lab.usage_windows import METRICS
from profiler import pictures
from profiler.look import inline, short
from profiler.pictures import LINE, SERIES

MOST_LINES = len(SERIES)  # in one picture of curves; colours would repeat beyond
LEAST_GAP = 0.1  # of the whole range between two values of a factor, so that both can be read
_WIDTH, _HEIGHT = 3.7, 2.35  # inches
_KEY_ROW = 0.17  # inches of one row of a legend
_MARKED = 60  # points of a line up to which each is marked
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # beside colour, for who does not see it


def sweep_picture(title: str, sweeps: Sequence[FactorSweep]) -> Markup:
    """T / B of one workload over the values of a factor, one line per neighbour (at most MOST_LINES)."""
    figure, axes = _panel(len(sweeps))
    first = sweeps[0]
    numeric = all(point.value is not None for sweep in sweeps for point in sweep.points)
    places = sorted(
        {(point.value is None, point.value or 0.0, point.words) for sweep in sweeps for point in sweep.points}
    )
    values = [value for _, value, _ in places]
    gap = min((right - left for left, right in pairwise(values)), default=0.0)
    # Values that lie apart stand where they are, others a step each, so that none hides another.
    apart = numeric and gap >= LEAST_GAP * (values[-1] - values[0])
    spots = {words: (value if apart else float(spot)) for spot, (_, value, words) in enumerate(places)}
    for number, sweep in enumerate(sweeps):
        xs = [spots[point.words] for point in sweep.points]
        ys = [point.ratio.median for point in sweep.points]
        _bars(axes, xs, sweep, number)
        name = f"beside {sweep.neighbour}" + (f" ({sweep.others})" if sweep.others else "")
        axes.plot(xs, ys, marker=_MARKERS[number], markersize=4, linewidth=1.3, color=SERIES[number], label=short(name))
    axes.set_xticks(list(spots.values()), list(spots))
    axes.set_ylim(0, max(1.08, axes.get_ylim()[1]))
    pictures.line_at(axes, 1)
    pictures.label(axes, x=short(f"{factor(first.factor)}, {ROLES[first.role]}"), y="T/B")
    _key(axes)
    return inline(figure, title, f"T/B over {factor(first.factor)}; the table has every value")


def mode_picture(title: str, modes: NetworkModes) -> Markup:
    """One row per tc mode and one panel per outcome: median and 95 % interval beside the neighbours."""
    known = [name for name in OUTCOMES if any(name in mode.outcomes for mode in modes.modes)]
    height = 0.75 + 0.3 * len(modes.modes)
    figure, panels = pictures.new_figure(len(known), columns=1, width=_WIDTH, height=height * len(known))
    for axes, name in zip(panels, known, strict=True):
        unit = next(mode.units[name] for mode in modes.modes if name in mode.units)
        _mode_rows(axes, modes.modes, name)
        pictures.label(axes, x=short(f"{OUTCOMES[name]}, {unit}"))
    return inline(figure, title, "Outcomes by tc mode; the table has every value")


def _mode_rows(axes: Any, modes: Sequence[NetworkMode], outcome: str) -> None:
    for row, mode in enumerate(modes):
        found = mode.outcomes.get(outcome)
        if found is None:
            continue
        if found.lower is not None and found.upper is not None:
            pictures.interval(axes, [found.lower, found.upper], row, SERIES[0])
        axes.plot([found.median], [row], "o", color=SERIES[0], markersize=5)
    pictures.named_rows(axes, [short(mode.mode.replace("; beside", ";\nbeside")) for mode in modes])
    axes.set_xlim(left=0)
    axes.margins(x=0.08)


def distribution_picture(panel: Panel) -> Markup:
    """Cumulative distributions, one line each."""
    figure, axes = _panel(len(panel.of))
    curves = [(short(f"{one.name} ({one.count})"), one.steps) for one in panel.of]
    pictures.distribution(axes, curves, short(panel.name), of="results")
    low, high = _middle(panel)
    if low < 1 < high:
        pictures.line_at(axes, 1, vertical=True)
    axes.set_xlim(low, high)
    _key(axes)
    return inline(figure, f"{panel.name}: distribution", "Cumulative distribution; the table has its quantiles")


def _middle(panel: Panel) -> tuple[float, float]:
    """Where the picture ends: one value far out must not press all others against the edge."""
    low = min(one.quantile(0.005) for one in panel.of)
    high = max(one.quantile(0.98) for one in panel.of)
    room = max((high - low) * 0.05, 0.01)
    return low - room, high + room


def course_picture(name: str, courses: OutcomeHistories) -> Markup:
    """Values over wall-clock time, one line each."""
    figure, axes = pictures.new_figure(width=2.4 * _WIDTH, height=_HEIGHT + _KEY_ROW * len(courses.of) / 2)
    axes = axes[0]
    start = min(when for course in courses.of for when, _ in course.points)
    for number, course in enumerate(courses.of):
        hours = [(when - start).total_seconds() / 3600 for when, _ in course.points]
        axes.plot(
            hours, [value for _, value in course.points], linewidth=1.1, markersize=3.5, label=short(course.name),
            marker=_MARKERS[number % len(_MARKERS)] if len(hours) <= _MARKED else "", **pictures.series_style(number),
        )  # fmt: skip
    pictures.line_at(axes, 1)
    pictures.label(axes, x=f"hours since {start:%Y-%m-%d %H:%M} UTC")
    _key(axes, columns=2)
    return inline(figure, name, "Values over the hours of the campaign, one line each")


def inside_pictures(inside: RunWindows) -> list[Markup]:
    """The windows of a run, one picture per metric that is not 0 all the time, and one line per instance."""
    return [
        _windows(inside, metric, of)
        for metric, of in inside.metrics.items()
        if any(value > 0 for points in of.values() for _, value in points)
    ]


def _windows(inside: RunWindows, metric: str, of: Mapping[str, Sequence[tuple[float, float]]]) -> Markup:
    figure, axes = _panel(len(of))
    for number, (instance, points) in enumerate(of.items()):
        times, values = [at for at, _ in points], [value for _, value in points]
        axes.plot(times, values, linewidth=1.2, label=short(instance), **pictures.series_style(number))
    axes.set_ylim(bottom=0)
    start = min(at for points in of.values() for at, _ in points)
    if start < 0:
        axes.axvspan(start, 0, color=LINE, alpha=0.6, linewidth=0, label="warm-up")
    unit = METRICS.get(metric, "")
    pictures.label(axes, x="seconds within the run", y=short(f"{metric}, {unit}" if unit else metric))
    _key(axes)
    return inline(figure, f"{inside.run} round {inside.repeat} {metric}", f"Windows of {metric} within a run")


def composition_picture(composition: GroupPredictions) -> Markup:
    """Measured combined score over the one that the pairs let expect, one point per group and rule."""
    figure, axes = _panel(2)
    ends: list[float] = []
    for number, rule in enumerate(one.name for one in composition.rules):
        xs = [group.predicted[rule] for group in composition.groups]
        ys = [group.measured.score.median for group in composition.groups]
        axes.plot(xs, ys, _MARKERS[number], markersize=4, color=SERIES[number], alpha=0.8, label=f"{rule} rule")
        ends += [*xs, *ys]
    low, high = min(ends) - 0.05, max(ends) + 0.05
    pictures.diagonal(axes, low, high)
    pictures.label(axes, x="predicted from the pairs", y="measured combined score")
    _key(axes)
    return inline(figure, "composition", "Measured against predicted combined scores; the table has every group")


def _bars(axes: Any, xs: Sequence[float], sweep: FactorSweep, number: int) -> None:
    for x, point in zip(xs, sweep.points, strict=True):
        if point.ratio.lower is not None and point.ratio.upper is not None:
            axes.plot([x, x], [point.ratio.lower, point.ratio.upper], color=SERIES[number], linewidth=0.9, alpha=0.6)


def _panel(entries: int) -> tuple[Any, Any]:
    """A figure of one panel, with room for a legend of so many rows below."""
    figure, axes = pictures.new_figure(width=_WIDTH, height=_HEIGHT + _KEY_ROW * entries)
    return figure, axes[0]


def _key(axes: Any, columns: int = 1) -> None:
    """Below the panel, where it covers nothing."""
    if axes.get_legend_handles_labels()[0]:
        pictures.legend_below(axes.figure, columns, handlelength=2.2)


def lines_of(sweeps: Iterable[FactorSweep]) -> list[FactorSweep]:
    """The strongest sweeps, up to the number that one chart can show."""
    return sorted(sweeps, key=lambda sweep: -sweep.spread)[:MOST_LINES]
