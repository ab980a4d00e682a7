"""Charts of a dataset as inline SVG in the page's colours, so that they fit light mode, dark mode and paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from lab.show.formatting import ROLES, factor
from lab.show.over_time import OutcomeHistories
from lab.show.sweeps import FactorSweep
from profiler import pictures
from profiler.look import inline, short
from profiler.pictures import SERIES

MOST_LINES = len(SERIES)  # in one picture of curves; with more, colours would repeat
LEAST_GAP = 0.1  # of the whole range, between two values of a factor, so that both can be read
_WIDTH, _HEIGHT = 3.7, 2.35  # inches
_KEY_ROW = 0.17  # inches of one row of a legend
_MOST_MARKED = 60  # points of a line that has a marker at each
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # beside colours, for readers who cannot tell these apart


def sweep_picture(title: str, sweeps: Sequence[FactorSweep]) -> Markup:
    """T/B of one workload over the values of a factor, one line per neighbour (at most MOST_LINES)."""
    figure, (axes,) = pictures.new_figure(width=_WIDTH, height=_HEIGHT + _KEY_ROW * len(sweeps))
    first = sweeps[0]
    numeric = all(point.value is not None for sweep in sweeps for point in sweep.points)
    places = sorted(
        {(point.value is None, point.value or 0.0, point.words) for sweep in sweeps for point in sweep.points}
    )
    values = [value for _, value, _ in places]
    gap = min((right - left for left, right in pairwise(values)), default=0.0)
    # Where values lie far enough apart, the axis is linear; elsewhere each takes one step, so that none hides another.
    linear = numeric and gap >= LEAST_GAP * (values[-1] - values[0])
    positions = {words: (value if linear else float(step)) for step, (_, value, words) in enumerate(places)}
    for number, sweep in enumerate(sweeps):
        xs = [positions[point.words] for point in sweep.points]
        ys = [point.ratio.median for point in sweep.points]
        _bars(axes, xs, sweep, number)
        name = f"beside {sweep.neighbour}" + (f" ({sweep.others})" if sweep.others else "")
        axes.plot(xs, ys, marker=_MARKERS[number], markersize=4, linewidth=1.3, color=SERIES[number], label=short(name))
    axes.set_xticks(list(positions.values()), list(positions))
    axes.set_ylim(0, max(1.08, axes.get_ylim()[1]))
    pictures.line_at(axes, 1)
    pictures.label(axes, x=short(f"{factor(first.factor)}, {ROLES[first.role]}"), y="T/B")
    pictures.legend_below(figure, handlelength=2.2)
    return inline(figure, title, f"T/B over {factor(first.factor)}; the table has every value")


def course_picture(name: str, courses: OutcomeHistories) -> Markup:
    """Values over wall-clock time, one line each."""
    figure, (axes,) = pictures.new_figure(width=2.4 * _WIDTH, height=_HEIGHT + _KEY_ROW * len(courses.of) / 2)
    start = min(when for course in courses.of for when, _ in course.points)
    for number, course in enumerate(courses.of):
        hours = [(when - start).total_seconds() / 3600 for when, _ in course.points]
        axes.plot(
            hours, [value for _, value in course.points], linewidth=1.1, markersize=3.5, label=short(course.name),
            marker=_MARKERS[number % len(_MARKERS)] if len(hours) <= _MOST_MARKED else "",
            **pictures.series_style(number),
        )  # fmt: skip
    pictures.line_at(axes, 1)
    pictures.label(axes, x=f"hours since {start:%Y-%m-%d %H:%M} UTC")
    pictures.legend_below(figure, 2, handlelength=2.2)
    return inline(figure, name, "Values over the hours of the campaign, one line each")


def _bars(axes: Any, xs: Sequence[float], sweep: FactorSweep, number: int) -> None:
    for x, point in zip(xs, sweep.points, strict=True):
        if point.ratio.lower is not None and point.ratio.upper is not None:
            axes.plot([x, x], [point.ratio.lower, point.ratio.upper], color=SERIES[number], linewidth=0.9, alpha=0.6)


def lines_of(sweeps: Iterable[FactorSweep]) -> list[FactorSweep]:
    """The sweeps with the largest spread, as many as one chart can show."""
    return sorted(sweeps, key=lambda sweep: -sweep.spread)[:MOST_LINES]
