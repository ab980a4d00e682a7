"""Pictures of an evaluation as inline SVG in the page's own colours: errors, coverage, curves; nothing is computed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advisor.reports.pictures import AFTER, BAD, BEFORE, DRAWING, LETTER, LINE, SOFT, inline
from models.evaluation import Points

WIDTH, TOP, BOTTOM, RIGHT, ROW = 3.3, 0.1, 0.42, 0.16, 0.2  # inches
PAD = 0.14
SQUARE = 2.5
MOST_ROWS = 18  # bars of one picture
MAX_NAME = 22
CLAIMED = 0.9  # what the intervals claim to cover
NAMED = 4  # lines of a curve with their name at the end; the others stand in the table
Draw = Callable[[Axes], None]


def scatter(points: Points, *, salt: str) -> Markup:
    """Predicted against measured T/B; rows whose interval missed are marked."""

    def draw(axes: Axes) -> None:
        top = max(1.05, float(np.max([points.measured.max(), points.predicted.max()])))
        axes.plot([0, top], [0, top], color=SOFT, linewidth=0.8)
        for held, colour in ((True, AFTER), (False, BAD)):
            rows = points.inside == held
            axes.plot(points.measured[rows], points.predicted[rows], "o", color=colour, markersize=2, markeredgewidth=0)
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.grid(color=LINE, linewidth=0.6)
        _named(axes, "measured", "predicted")

    return _picture(draw, left=0.5, height=SQUARE + TOP + BOTTOM, salt=salt)


def coverage(bins: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """How often the intervals held, by predicted value."""

    def draw(axes: Axes) -> None:
        axes.axhline(CLAIMED, color=SOFT, linewidth=0.8)
        axes.plot([one["predicted"] for one in bins], [one["coverage"] for one in bins], "o-", color=AFTER, **_SMALL)
        axes.set_ylim(min(0.6, *(one["coverage"] for one in bins)) - 0.05, 1.03)
        axes.grid(color=LINE, linewidth=0.6)
        _named(axes, "predicted", "held")

    return _picture(draw, left=0.5, height=SQUARE + TOP + BOTTOM, salt=salt)


def platforms(rows: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """How often the intervals held on each platform, those with the most rows."""
    shown = rows[:MOST_ROWS]

    def draw(axes: Axes) -> None:
        axes.axvline(CLAIMED, color=SOFT, linewidth=0.8)
        axes.plot([one["coverage"] for one in shown], range(len(shown)), "o", color=AFTER, **_SMALL)
        axes.set_xlim(min(0.6, *(one["coverage"] for one in shown)) - 0.05, 1.03)
        _listed(axes, [one["label"].rpartition("/")[2] for one in shown], "held")

    return _rows(draw, [one["label"].rpartition("/")[2] for one in shown], salt)


def resources(rows: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """Mean error by the resource that limits a row, ours beside the prior's."""
    labels = [one["label"].replace("_", " ") for one in rows]

    def draw(axes: Axes) -> None:
        for at, one in enumerate(rows):
            axes.plot([one["mae"], one["prior_mae"]], [at, at], color=LINE, linewidth=1.2)
        axes.plot([one["prior_mae"] for one in rows], range(len(rows)), "o", color=BEFORE, **_SMALL)
        axes.plot([one["mae"] for one in rows], range(len(rows)), "o", color=AFTER, **_SMALL)
        axes.set_xlim(left=0)
        _listed(axes, labels, "mean error")

    return _rows(draw, labels, salt)


def errors(models: Mapping[str, Mapping[str, Any]], *, salt: str) -> Markup:
    """Every model's mean error with its interval, the least on top."""
    order = sorted(models, key=lambda name: models[name]["mae"])

    def draw(axes: Axes) -> None:
        for at, name in enumerate(order):
            one, colour = models[name], AFTER if name == "cotenant" else BEFORE
            if edges := one["intervals"]["mae"]:
                axes.plot(edges, [at, at], color=colour, linewidth=1.6, solid_capstyle="round")
            axes.plot([one["mae"]], [at], "o", color=colour, **_SMALL)
        axes.set_xlim(left=0)
        _listed(axes, order, "mean error")

    return _rows(draw, order, salt)


def curve(found: Mapping[str, Any], label: str, *, salt: str) -> Markup:
    """Mean error against what was measured; ours with its interval, of the others the best at the end with names."""
    x, models = found["x"], found["models"]
    order = sorted(models, key=lambda name: models[name]["mae"][-1])
    named = [name for name in order if name != "cotenant"][: NAMED - 1]
    named += [name for name in ("cotenant",) if name in models]

    def draw(axes: Axes) -> None:
        for name in named:
            colour = AFTER if name == "cotenant" else BEFORE
            axes.plot(x, models[name]["mae"], "o-", color=colour, **_SMALL)
        edges = models.get("cotenant", {}).get("mae_intervals")
        if edges and all(edges):
            axes.fill_between(x, [one[0] for one in edges], [one[1] for one in edges], color=AFTER, alpha=0.15, lw=0)
        top = max(max(models[name]["mae"]) for name in named)
        axes.set_ylim(0, 1.1 * max(top, *(one[1] for one in edges or () if one), 1e-3))
        axes.set_xticks(x, [f"{one:g}" if label != "share of all pairs" else f"{one:.0%}" for one in x])
        for name, y in _apart({name: models[name]["mae"][-1] for name in named}, axes.get_ylim()[1] / 14):
            axes.annotate(f" {name}", (x[-1], y), color=SOFT, va="center", annotation_clip=False, xytext=(4, 0),
                          textcoords="offset points")  # fmt: skip
        axes.grid(color=LINE, linewidth=0.6)
        _named(axes, label, "mean error")

    room = LETTER * max(len(name) for name in named) + 0.2
    return _picture(draw, left=0.5, height=2.3 + TOP + BOTTOM, salt=salt, right=room)


_SMALL: Mapping[str, Any] = {"markersize": 4, "linewidth": 1.4, "markeredgewidth": 0}


def _apart(wanted: Mapping[str, float], least: float) -> list[tuple[str, float]]:
    """Heights for names at the end of their lines, from the lowest up, none nearer to the next than `least`."""
    placed: list[tuple[str, float]] = []
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        placed.append((name, max(y, placed[-1][1] + least) if placed else y))
    return placed


def _named(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=SOFT)
    axes.set_ylabel(y, color=SOFT)
    axes.tick_params(length=0, pad=4, labelcolor=SOFT)
    axes.set_axisbelow(True)


def _listed(axes: Axes, labels: Sequence[str], x: str) -> None:
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
    axes.grid(axis="x", color=LINE, linewidth=0.6)
    axes.set_xlabel(x, color=SOFT)
    axes.tick_params(length=0, pad=4)
    axes.tick_params(axis="x", labelcolor=SOFT)
    axes.locator_params(axis="x", nbins=5)
    axes.set_axisbelow(True)


def _short(label: str) -> str:
    """A name as far as there is room; characters that no name of the contract holds are not drawn."""
    name = re.sub(r"[^A-Za-z0-9._:@ /-]", "?", label)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _rows(draw: Draw, labels: Sequence[str], salt: str) -> Markup:
    left = PAD + LETTER * max(len(_short(label)) for label in labels)
    return _picture(draw, left=left, height=TOP + BOTTOM + ROW * max(len(labels), 2), salt=salt)


def _picture(draw: Draw, *, left: float, height: float, salt: str, right: float = RIGHT) -> Markup:
    style: Any = {"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": 8, "axes.linewidth": 0}
    with DRAWING, mpl.rc_context(style):
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes(
            (left / WIDTH, BOTTOM / height, (WIDTH - left - right) / WIDTH, (height - TOP - BOTTOM) / height)
        )
        draw(axes)
        text = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return Markup(inline(text.getvalue()))  # noqa: S704 - matplotlib escapes the names
