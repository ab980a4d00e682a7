"""Charts for files and reports: figures in one style by matplotlib, which is imported when a picture is asked for.

Hosts need no matplotlib: without it everything but pictures works, and PictureError says what to install. Figures are
made without pyplot, so nothing here is global and threads may draw at the same time; only writing takes turns.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import threading
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import matplotlib.figure

Figure: TypeAlias = "matplotlib.figure.Figure"  # for annotations elsewhere, which must not import matplotlib

INK, SOFT, LINE, PAPER = "#1b2430", "#5a6675", "#d9dee5", "#ffffff"  # of the service's page
ACCENT, GOOD, FAIR, BAD = "#24568a", "#1c7a4b", "#8a5a00", "#b3261e"
SERIES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999999", "#f0e442")  # colour-blind safe
FORMATS = (".png", ".svg")
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
    for one in axes[:panels]:
        _style(one)
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


def log_axis(axes: Any, which: str = "x") -> None:
    """Make the x or y axis logarithmic, with plain numbers at 1, 2 and 5 of every decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def time_axis(axes: Any) -> None:
    """Make the x axis, in days since the epoch, one of dates and times of day in UTC."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.xaxis.get_offset_text().set(fontsize=_SMALL, color=SOFT)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG or an SVG, whole or not at all; the same figure gives the same bytes. PictureError when it cannot."""
    check_target(path)
    kind = path.suffix.lower()[1:]
    content = as_svg(figure, path.stem).encode() if kind == "svg" else as_png(figure)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            beside.write_bytes(content)
            os.replace(beside, path)  # noqa: PTH105 - says what it does
        finally:
            beside.unlink(missing_ok=True)
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
