"""The one module of charts: figures, their elements and their files, in one style; callers hand the data in.

matplotlib is imported when a picture is drawn. Hosts need not have it: without it everything but pictures works, and
PictureError says what to install. Figures are made without pyplot, so no state is global and threads may draw at the
same time; only writing takes turns.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from profiler.files import write_whole

if TYPE_CHECKING:
    import matplotlib.figure

Figure: TypeAlias = "matplotlib.figure.Figure"  # for annotations elsewhere, which must not import matplotlib
Steps: TypeAlias = Sequence[tuple[float, float]]  # of a cumulative distribution: value, and the share 0-1 up to it

INK, SOFT, LINE, PAPER = "#1b2430", "#5a6675", "#d9dee5", "#ffffff"  # of the service's page
ACCENT, GOOD, FAIR, BAD = "#24568a", "#1c7a4b", "#8a5a00", "#b3261e"
SERIES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999999", "#f0e442")  # colour-blind safe
DASHES = ("-", "--", ":", "-.")
PERCENT_TICKS = ([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])  # of an axis of shares, 0-1
FORMATS = (".png", ".svg")
MOST_POINTS = 6_000  # more cannot be distinguished, and make an SVG of megabytes
_WIDTH, _HEIGHT = 4.6, 3.0  # inches of one panel
_DPI = 144
_TEXT, _SMALL = 9, 8  # points
WRITING = threading.Lock()  # matplotlib's settings are one per process


class PictureError(Exception):
    """A picture cannot be drawn or written; the message says why and what to do."""


def check_target(path: Path) -> Path:
    """Return `path` if a picture can be written there by its name; PictureError otherwise, before any work is done."""
    if path.suffix.lower() not in FORMATS:
        raise PictureError(f"{path} is neither .png nor .svg")
    if not path.absolute().parent.is_dir():
        raise PictureError(f"{path}: there is no folder {path.parent}")
    _matplotlib()
    return path


def new_figure(
    panels: int = 1, *, columns: int = 0, width: float = 0.0, height: float = 0.0
) -> tuple[Figure, list[Any]]:
    """A figure and its panels (matplotlib's Axes) in the house style, row by row; `columns` 0 = all in one row.

    `width` and `height` are inches of the whole, 0 = by the number of panels. Raises PictureError without matplotlib.
    """
    _matplotlib()
    from matplotlib.figure import Figure as NewFigure

    columns = columns or panels
    rows = -(-panels // columns)
    figure = NewFigure(
        figsize=(width or _WIDTH * columns, height or _HEIGHT * rows), dpi=_DPI, layout="constrained", facecolor=PAPER
    )
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[panels:]:
        spare.remove()
    for panel in axes[:panels]:
        _style(panel)
    return figure, axes[:panels]


def label(axes: Any, title: str = "", x: str = "", y: str = "") -> None:
    """Title and axis labels in the house style; a title stands over the left end."""
    if title:
        axes.set_title(title, fontsize=_TEXT, color=INK, loc="left", weight="bold")
    axes.set_xlabel(x, fontsize=_SMALL, color=SOFT)
    axes.set_ylabel(y, fontsize=_SMALL, color=SOFT)


def legend(axes: Any, **options: Any) -> None:
    """A legend without a frame."""
    axes.legend(fontsize=_SMALL, frameon=False, labelcolor=INK, **options)


def legend_below(figure: Figure, columns: int = 1, **options: Any) -> None:
    """A legend of all panels below them, where it covers nothing."""
    legend(figure, **{"loc": "outside lower left", "borderpad": 0, "ncols": columns} | options)


def named_rows(axes: Any, names: Sequence[str]) -> None:
    """Make the y axis a list: one row per name, at 0, 1, ... from the top, between vertical lines of the grid."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=LINE, linewidth=0.7)


def log_axis(axes: Any) -> None:
    """Make the x axis logarithmic, with plain numbers at 1, 2 and 5 of every decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def time_axis(axes: Any) -> None:
    """Make the x axis, in days since the epoch, one of dates and times of day in UTC."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.xaxis.get_offset_text().set(fontsize=_SMALL, color=SOFT)


def series_style(number: int) -> dict[str, Any]:
    """Colour and dashes of the line with this number, from 0: unlike for 32 lines, and most without colours too."""
    return {
        "color": SERIES[number % len(SERIES)],
        "linestyle": DASHES[(number + number // len(SERIES)) % len(DASHES)],
    }


def over_time(axes: Any, at_s: Sequence[float], values: Sequence[float], unit: str, title: str = "") -> None:
    """Points over seconds; a long series is thinned, but keeps its peaks."""
    times, shown = thinned(at_s, values)
    axes.plot(times, shown, ".", color=ACCENT, markersize=2.5)
    label(axes, title, "time (s)", unit)


def cumulative(values: Sequence[float]) -> Steps:
    """The empirical distribution of values, one step each."""
    return [(value, rank / len(values)) for rank, value in enumerate(sorted(values), 1)]


def distribution(
    axes: Any, curves: Sequence[tuple[str, Steps]], x: str, title: str = "", *, of: str = "values",
    log: bool = False, colours: Sequence[str] = SERIES,
) -> None:  # fmt: skip
    """Cumulative distributions by name, one or more steps each as from `cumulative`; long ones are thinned."""
    for number, (name, steps) in enumerate(curves):
        xs, ys = thinned([steps[0][0], *(value for value, _ in steps)], [0.0, *(share for _, share in steps)])
        style = series_style(number) | {"color": colours[number % len(colours)]}
        axes.step(xs, ys, where="post", linewidth=1.4, label=name, **style)
    if log:
        log_axis(axes)
    axes.set_ylim(0, 1.02)
    axes.set_yticks(*PERCENT_TICKS)
    label(axes, title, x, f"share of {of}")


def histogram(axes: Any, bins: Sequence[tuple[float, float, int]], unit: str, title: str = "") -> None:
    """Counts of bins (from, to, count) on a logarithmic scale."""
    log_axis(axes)
    axes.bar(
        [low for low, _, _ in bins], [count for _, _, count in bins], width=[high - low for low, high, _ in bins],
        align="edge", color=ACCENT, edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    label(axes, title, unit, "count")


def interval(axes: Any, edges: Sequence[float], row: float, colour: str) -> None:
    """A bar from the lower to the upper edge, in a row of a list."""
    axes.plot(edges, [row, row], color=colour, linewidth=1.6, solid_capstyle="round")


def line_at(axes: Any, value: float, name: str = "", *, vertical: bool = False, colour: str = SOFT) -> None:
    """A thin line at a threshold or a mean; one with a name is dashed, for the legend."""
    dash = "--" if name else "-"
    (axes.axvline if vertical else axes.axhline)(value, color=colour, linewidth=0.8, linestyle=dash, label=name)


def diagonal(axes: Any, low: float, high: float) -> None:
    """The line of equal values on two axes of the same range."""
    axes.plot([low, high], [low, high], color=SOFT, linewidth=0.8)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)


def thinned(
    xs: Sequence[float], ys: Sequence[float], most: int = MOST_POINTS
) -> tuple[Sequence[float], Sequence[float]]:
    """At most about `most` of the points, in order, with the lowest and the highest of every stretch among them."""
    if len(xs) <= most:
        return xs, ys
    stretch = -(-len(xs) * 2 // most)
    places: list[int] = []
    for begin in range(0, len(xs), stretch):
        inside = range(begin, min(begin + stretch, len(xs)))
        places += sorted({min(inside, key=ys.__getitem__), max(inside, key=ys.__getitem__)})
    return [xs[place] for place in places], [ys[place] for place in places]


def save(figure: Figure, path: Path) -> None:
    """Write a PNG or an SVG, whole or not at all; the same figure gives the same bytes. PictureError when it cannot."""
    check_target(path)
    kind = path.suffix.lower()[1:]
    content = as_svg(figure, path.stem).encode() if kind == "svg" else as_png(figure)
    try:
        write_whole(path, content)
    except OSError as error:
        raise PictureError(f"{path} cannot be written: {error.strerror}") from None


def as_svg(figure: Figure, salt: str) -> str:
    """The figure as a standalone SVG text; `salt` keeps its ids apart from those of other figures in one page.

    Text stays text (in the reader's own font); nothing in it refers to anything outside.
    """
    import matplotlib as mpl

    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # no date: the same figure gives the same file
    style: Any = {"svg.hashsalt": salt, "svg.fonttype": "none", "font.family": "sans-serif"}
    with WRITING, mpl.rc_context(style):
        figure.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()


def inline_svg(figure: Figure, salt: str) -> str:
    """`as_svg` for the middle of an HTML page: without prologue, name spaces, fixed size and style for the whole page.

    The caller gives it a `role` and a text alternative.
    """
    svg = as_svg(figure, salt)
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg, count=2)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    return re.sub(r' width="[^"]*" height="[^"]*"', "", svg, count=1)


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG file's content; the same figure gives the same bytes."""
    out = io.BytesIO()
    with WRITING:
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _style(axes: Any) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(length=0, labelsize=_SMALL, labelcolor=SOFT, which="both")
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)


def _matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PictureError("pictures need the Python package matplotlib; install it, or leave --picture out") from None
