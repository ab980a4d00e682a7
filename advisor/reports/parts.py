"""The parts of a report: sections with sentences, pictures and tables of formatted numbers; values only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from itertools import pairwise
from typing import Any, Literal, ParamSpec

from markupsafe import Markup

from advisor import plug_ins
from advisor.domain import LONGEST_KNOWN_LATENCY, Band, time_part

# Formats numbers for people and programs: a column's value as a cell of the page or of a data file.

MOST_NAMED = 8  # more names than these are counted
LONGEST_UNBROKEN = 24  # letters of a name that stays on one line
NBSP = "\u00a0"
NOTHING = "–"
BETWEEN: Mapping[str, Kind] = {"figure_between": "figure", "share_between": "share"}
"""Kinds whose values are (value, edges of its interval or None), and what the value alone is."""
PRESSED = (("n", 0.5), ("w1", 0.75), ("w2", 0.9), ("w3", 1.0), ("w4", 1.25))
"""Class of a cell and the pressure (demand over capacity) below which it holds; from the last on it is w5."""
HARMED = (("n", 0.01), ("w1", 0.03), ("w2", 0.08), ("w3", 0.15), ("w4", 0.30))
"""The same for what an instance loses by a neighbour, of T/B."""


@dataclass(frozen=True, slots=True)
class FormattedCell:
    """The content of a cell: text, small print beside it, CSS class, and separate lines instead of the text."""

    text: str
    small: str = ""
    css: str = ""
    lines: Sequence[str] = ()


def cell(value: Any, kind: Kind) -> FormattedCell:
    """A value for the page; a dash where it is unknown."""
    css = _CLASSES.get(kind, "")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return FormattedCell(NOTHING, css=css)
    if kind == "band":
        return FormattedCell(percent(value.expected), interval(value), css)
    if kind in BETWEEN:
        shown = cell(value[0], BETWEEN[kind])
        return FormattedCell(shown.text, edges(value[1]) if value[1] else "", css)
    if kind in ("listed", "sentences", "argv"):
        return FormattedCell("", css=css, lines=[str(line) for line in value])
    if kind == "name":
        return FormattedCell(str(value), css=f"{css} unbroken" if len(str(value)) <= LONGEST_UNBROKEN else css)
    if kind == "duration":
        expected, _, between = str(value).replace(" ", NBSP).partition(f"{NBSP}(")
        return FormattedCell(expected, between.removesuffix(")"), css)
    if kind == "pressure":
        return FormattedCell(percent(value), css=_strength(value, PRESSED))
    if kind == "harm":
        return FormattedCell(points(-value), css=_strength(value, HARMED))
    return FormattedCell(_WORDS.get(kind, str)(value), css=css)


def as_texts(table: Table, section: Section) -> TextTable:
    """The columns of a table of a section that are shown, as texts."""
    columns = table.on_page
    return TextTable(
        table.name,
        section.title,
        section.note,
        table.caption,
        [" ".join(filter(None, (column.over, column.title))) for _, column in columns],
        [[_one_line(cell(row[at], column.kind)) for at, column in columns] for row in table.rows[: table.most]],
        frozenset(place for place, (_, column) in enumerate(columns) if column.kind in NUMERIC),
    )


def text_tables(*sections: Section) -> tuple[TextTable, ...]:
    """The tables of sections with their cells as texts; those without rows are left out."""
    return tuple(as_texts(table, section) for section in sections for table in section.tables if table.rows)


def _one_line(formatted: FormattedCell) -> str:
    text = " ".join(formatted.lines) or formatted.text
    return f"{text} ({formatted.small})" if formatted.small else text


def plain(column: Column, value: Any) -> Mapping[str, Any]:
    """A value as data by its key; a value with an interval gives three."""
    parts: Sequence[Any] = (value,)
    if column.kind == "band":
        parts = (value.expected, value.lower, value.upper) if isinstance(value, Band) else (None, None, None)
    elif column.kind in BETWEEN:
        parts = (value[0], *(value[1] or (None, None))) if value else (None, None, None)
    return dict(zip(keys(column), (_finite(part) for part in parts), strict=True))


def keys(column: Column) -> tuple[str, ...]:
    """The names of a column in the data."""
    if column.kind == "band" or column.kind in BETWEEN:
        return column.key, f"{column.key}_lower", f"{column.key}_upper"
    return (column.key,)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def percent(ratio: float | None) -> str:
    """A ratio as a whole percentage; a dash for what is unknown."""
    return NOTHING if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.0f}{NBSP}%"


def points(change: float) -> str:
    """A change of a ratio in signed percentage points."""
    return f"{100 * change:+.0f}".replace("-", "−") if abs(change) >= 0.005 else "0"


def interval(value: Band | None) -> str:
    """The interval of a ratio."""
    if value is None or not (math.isfinite(value.lower) and math.isfinite(value.upper)):
        return NOTHING
    between = "–" if value.lower > -0.005 else " to "  # a dash beside a minus is misread
    return f"{100 * value.lower:.0f}{between}{100 * value.upper:.0f}{NBSP}%".replace("-", "−")


def number(value: float) -> str:
    """A number with four digits and no exponent."""
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-4 else "< 0.0001"


def times(value: float) -> str:
    """A ratio as a multiple; only the latency of an overloaded instance is infinite."""
    return f"{value:.2f}{NBSP}×" if math.isfinite(value) else "overloaded"


def latest(value: float) -> str:
    """The upper edge of a latency interval as a multiple of that alone."""
    return times(value) if value <= LONGEST_KNOWN_LATENCY else "not known"


def share(value: float) -> str:
    """A share as a percentage with one digit; two significant digits below one percent."""
    shown = f"{100 * value:.1f}" if value == 0 or value >= 0.01 else number(float(f"{100 * value:.2g}"))
    return f"{shown}{NBSP}%"


def time_share(value: float) -> str:
    """A predicted part of the time, 0-1, as a percentage on one line."""
    return time_part(value).replace(" ", NBSP)


def error(value: float) -> str:
    """An error of T/B in percentage points."""
    return f"{100 * value:.2g}" if abs(value) < 0.01 else f"{100 * value:.1f}"


def edges(value: Sequence[float]) -> str:
    """An interval of a share in percent."""
    between = "–" if value[0] >= 0 else " to "  # a dash beside a minus is misread
    return f"{100 * value[0]:.1f}{between}{100 * value[1]:.1f}".replace("-", "−")


def when(value: datetime) -> str:
    """A time in its own zone."""
    return f"{value:%Y-%m-%d %H:%M} {value.tzname() or ''}".strip()


def listed(names: Sequence[str], what: str) -> str:
    """A few names, or the first ones and the number of others."""
    return joined(names) if len(names) <= MOST_NAMED else f"{', '.join(names[:3])} and {len(names) - 3:,} more {what}"


def joined(parts: Sequence[str]) -> str:
    """Names as a sentence lists them."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def count(number: int, thing: str) -> str:
    """A number with its noun."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def scale(classes: Sequence[tuple[str, float]], shown: Callable[[float], str]) -> list[tuple[str, str]]:
    """The legend of coloured cells: class and range, from the least."""
    ends = [shown(below) for _, below in classes]
    ranges = [f"below {ends[0]}", *(f"{low} to {high}" for low, high in pairwise(ends))]
    return [*zip([name for name, _ in classes], ranges, strict=True), ("w5", f"{ends[-1]} and more")]


def _strength(value: float, classes: Sequence[tuple[str, float]]) -> str:
    return next((name for name, below in classes if value < below), "w5")


_WORDS: Mapping[str, Callable[[Any], str]] = {
    "count": lambda value: f"{value:,}",
    "number": number,
    "figure": error,
    "ratio": percent,
    "points": points,
    "times": times,
    "latest": latest,
    "share": share,
    "time_share": time_share,
    "when": when,
}
NUMERIC = frozenset({*_WORDS, "band", *BETWEEN} - {"when"})
_CLASSES = dict.fromkeys(NUMERIC, "number") | {
    "name": "name", "prose": "prose", "duration": "duration",
    "listed": "listed", "sentences": "sentences", "argv": "argv", "pressure": "none", "harm": "none",
}  # fmt: skip


Kind = Literal[
    "name", "text", "prose", "listed", "sentences", "argv", "when",
    "count", "number", "figure", "ratio", "band", "points", "times", "latest", "share", "time_share", "duration",
    "figure_between", "share_between", "pressure", "harm",
]  # fmt: skip
Given = ParamSpec("Given")
MOST_ROWS = 200  # of one table on the page; its CSV has all


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its `key` in the data, its heading, and the kind of its values; None = unknown.

    `over` is a heading shared with adjacent columns. A column that is not `shown` stands only in the data.
    """

    key: str
    title: str
    kind: Kind = "text"
    over: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `name` is its file's name, `most` the number of rows on the page.

    `look` is plain, matrix (coloured cells) or folded (behind its caption, where a picture or a sentence says the
    same); a folded table is on paper only if it is `printed`. `picked` are highlighted rows, by their first value.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    most: int = MOST_ROWS
    look: Literal["plain", "matrix", "folded"] = "plain"
    printed: bool = False
    picked: frozenset[str] = frozenset()

    @property
    def on_page(self) -> list[tuple[int, Column]]:
        """The columns that are shown and have values, each with its position."""
        shown = [(at, column) for at, column in enumerate(self.columns) if column.shown]
        return [(at, column) for at, column in shown if any(row[at] not in (None, "", ()) for row in self.rows)]

    @property
    def left_out(self) -> int:
        return max(len(self.rows) - self.most, 0)


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table whose cells are texts, for a terminal and for pages, under the title and with the note of its section.

    `numeric` are the columns that hold numbers.
    """

    name: str
    title: str
    note: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Figures by two names, as coloured cells; also in a table of long form, None = none."""

    title: str
    across: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Any]]]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its caption; a table of the same section has its data."""

    caption: str
    svg: Markup
    note: str = ""
    broad: bool = False


def drawn(draw: Callable[Given, Markup]) -> Callable[Given, Markup]:
    """Make a function that draws a picture return an empty one where matplotlib is not installed."""

    @wraps(draw)
    def picture(*args: Given.args, **kwargs: Given.kwargs) -> Markup:
        return Markup() if plug_ins.missing("plots") else draw(*args, **kwargs)

    return picture


@dataclass(frozen=True, slots=True)
class Section:
    """A section; `key` names the colours of its cells from best to worst, () = none. Empty parts are left out."""

    id: str
    title: str
    note: str = ""
    sentences: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()
    key: Sequence[tuple[str, str]] = ()
    matrices: Sequence[HeatMap] = ()
    tables: Sequence[Table] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "pictures", [picture for picture in self.pictures if picture.svg])

    def __bool__(self) -> bool:
        return bool(
            self.sentences or self.facts or self.pictures or self.matrices or any(table.rows for table in self.tables)
        )


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """A whole report: `what` it describes, its headline in one sentence, and remarks to read first.

    `facts` say when, by which model and from what it was made; `made_at` is the time that it describes.
    """

    what: str
    title: str
    headline: str
    sentences: Sequence[str]
    facts: Mapping[str, str]
    sections: Sequence[Section]
    made_at: datetime | None = None

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables with rows, in page order."""
        return tuple(table for section in self.sections for table in section.tables if table.rows)
