"""Pictures of an evaluation as inline SVG in the page's colours: errors and coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from advisor.reports.parts import drawn
from profiler.look import AFTER, BAD, BEFORE, inline, short
from profiler.pictures import LINE, diagonal, interval, label, line_at, named_rows, new_figure

if TYPE_CHECKING:
    from models.evaluation.run import ScatterPoints

MOST_ROWS = 18  # bars of one picture
MAX_NAME = 22
CLAIMED = 0.9  # what the intervals claim to cover
_WIDTH, _HEIGHT = 3.7, 2.7  # inches
_ROW = 0.21
_SMALL: Mapping[str, Any] = {"markersize": 4, "linewidth": 1.4, "markeredgewidth": 0}
_SCALE = 100  # T/B is shown in percentage points


@drawn
def scatter(points: ScatterPoints, *, salt: str) -> Markup:
    """Predicted against measured T/B; rows whose interval missed are marked."""
    figure, (axes,) = new_figure(width=_WIDTH, height=_HEIGHT)
    top = max(1.05, float(np.max([points.measured.max(), points.predicted.max()])))
    diagonal(axes, 0, top)
    for held, colour in ((True, AFTER), (False, BAD)):
        rows = points.inside == held
        axes.plot(points.measured[rows], points.predicted[rows], "o", color=colour, markersize=2, markeredgewidth=0)
    label(axes, x="measured T/B", y="predicted T/B")
    return inline(figure, salt, "Predicted against measured T/B; red points are rows that the interval missed")


@drawn
def coverage(bins: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """Interval coverage by predicted value."""
    figure, (axes,) = new_figure(width=_WIDTH, height=_HEIGHT)
    line_at(axes, CLAIMED)
    axes.plot([row["predicted"] for row in bins], [row["coverage"] for row in bins], "o-", color=AFTER, **_SMALL)
    axes.set_ylim(min(0.6, *(row["coverage"] for row in bins)) - 0.05, 1.03)
    label(axes, x="predicted T/B", y="held, share of rows")
    return inline(figure, salt, "Share of rows whose interval held, by predicted T/B; the table has every figure")


@drawn
def platforms(rows: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """Interval coverage of the platforms with most rows."""
    shown = rows[:MOST_ROWS]
    figure, axes = _rows([row["label"].rpartition("/")[2] for row in shown])
    line_at(axes, CLAIMED, vertical=True)
    axes.plot([row["coverage"] for row in shown], range(len(shown)), "o", color=AFTER, **_SMALL)
    axes.set_xlim(min(0.6, *(row["coverage"] for row in shown)) - 0.05, 1.03)
    label(axes, x="held, share of rows")
    return inline(figure, salt, "Share of rows whose interval held, by platform; the table has every figure")


@drawn
def resources(rows: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """Mean error by limiting resource, the model's beside the analytic model's."""
    figure, axes = _rows([row["label"].replace("_", " ") for row in rows])
    for at, row in enumerate(rows):
        axes.plot([_SCALE * row["mae"], _SCALE * row["prior_mae"]], [at, at], color=LINE, linewidth=1.2)
    axes.plot([_SCALE * row["prior_mae"] for row in rows], range(len(rows)), "o", color=BEFORE, **_SMALL)
    axes.plot([_SCALE * row["mae"] for row in rows], range(len(rows)), "o", color=AFTER, **_SMALL)
    axes.set_xlim(left=0)
    label(axes, x="mean error, points")
    return inline(
        figure, salt, "Mean error by limiting resource, grey: the analytic model's; the table has every figure"
    )


@drawn
def errors(models: Mapping[str, Mapping[str, Any]], *, salt: str) -> Markup:
    """The mean error of every model with its interval, the smallest on top."""
    order = sorted(models, key=lambda name: models[name]["mae"])
    figure, axes = _rows(order)
    for at, name in enumerate(order):
        model, colour = models[name], AFTER if name == "cotenant" else BEFORE
        if edges := model["intervals"]["mae"]:
            interval(axes, [_SCALE * edge for edge in edges], at, colour)
        axes.plot([_SCALE * model["mae"]], [at], "o", color=colour, **_SMALL)
    axes.set_xlim(left=0)
    label(axes, x="mean error, points")
    return inline(figure, salt, "Mean error of every model with its 95 % interval; the table has every figure")


def _rows(names: Sequence[str]) -> tuple[Any, Any]:
    """A figure with one row for each name."""
    figure, (axes,) = new_figure(width=_WIDTH, height=0.55 + _ROW * max(len(names), 2))
    named_rows(axes, [short(name, MAX_NAME) for name in names])
    axes.locator_params(axis="x", nbins=5)
    return figure, axes
