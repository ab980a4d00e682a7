"""Pictures of a plan as inline SVG, drawn by matplotlib without any global figure; colours are the page's own."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advisor.domain import Band
from advisor.reports.view import HostRows, Row

MAX_ROWS = 16  # the rest of a crowded host stands in the table
MAX_NAME = 16
WIDTH, RIGHT, TOP, BOTTOM, ROW = 3.3, 0.14, 0.06, 0.24, 0.27  # inches
PAD, LETTER = 0.1, 0.068  # room for names: one letter in the widest of the usual fonts
# Drawn in these and shown in the page's own colours, so that one picture fits light, dark and paper.
SOFT, LINE, SHEET, BEFORE, AFTER, NEW, BAD = (f"#0a000{number}" for number in range(1, 8))
_VARIABLES = {SOFT: "soft", LINE: "line", SHEET: "sheet", BEFORE: "before", AFTER: "after", NEW: "new", BAD: "bad"}
DRAWING = threading.Lock()  # matplotlib's settings are one per process


def throughput(hosts: Sequence[HostRows], *, salt: str) -> list[Markup]:
    """For each host its instances' throughput ratios before and after with their intervals; `salt` keeps ids apart."""
    letters = max((len(_name(row)) for host in hosts for row in host.rows[:MAX_ROWS]), default=0)
    return [_picture(host.rows[:MAX_ROWS], PAD + LETTER * letters, f"{salt} {host.name}") for host in hosts]


def _picture(rows: Sequence[Row], left: float, salt: str) -> Markup:
    height = TOP + BOTTOM + ROW * len(rows)
    style: Any = {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",  # text stays text, in the page's own font
        "font.size": 8,
        "axes.linewidth": 0,
    }
    with DRAWING, mpl.rc_context(style):
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes(
            (left / WIDTH, BOTTOM / height, (WIDTH - left - RIGHT) / WIDTH, ROW * len(rows) / height)
        )
        _draw(axes, rows)
        text = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # no date: the same plan gives the same file
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return Markup(inline(text.getvalue()))  # noqa: S704 - matplotlib escapes the names


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    for position, row in enumerate(rows):
        if row.before is not None:
            _interval(axes, row.before, position - 0.18, BEFORE, hollow=True)
        if row.after is not None:
            _interval(axes, row.after.throughput_ratio, position + 0.18, NEW if row.comes else AFTER, hollow=False)
        if row.limit is not None:
            axes.plot([row.limit] * 2, [position - 0.42, position + 0.42], color=BAD, linewidth=1.2)
    axes.set_xlim(0, 1.1)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"], color=SOFT)
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
    axes.tick_params(length=0, pad=4)
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    axes.axvline(1, color=SOFT, linewidth=0.8)
    axes.set_axisbelow(True)


def _interval(axes: Axes, band: Band, y: float, colour: str, *, hollow: bool) -> None:
    axes.plot([band.lower, band.upper], [y, y], color=colour, linewidth=1.6, solid_capstyle="round")
    fill = SHEET if hollow else colour
    axes.plot(
        [band.expected], [y], "o", markersize=4.2, markerfacecolor=fill, markeredgecolor=colour, markeredgewidth=1.2
    )


def _name(row: Row) -> str:
    """The name as far as there is room; what no name of the contract holds is not drawn, markup least of all."""
    name = re.sub(r"[^A-Za-z0-9._:-]", "?", row.instance)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def inline(svg: str) -> str:
    """An SVG as an HTML page needs it: no prologue, name spaces, styles for the whole page, or ids of no use."""
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg, count=2)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' width="[^"]*" height="[^"]*"', "", svg, count=1)
    svg = re.sub(r"; font-family: [^;\"]*", "", svg)
    svg = svg.replace("<svg ", '<svg aria-hidden="true" ', 1)
    for drawn, variable in _VARIABLES.items():
        svg = svg.replace(drawn, f"var(--{variable})")
    return svg
