"""The parts of a report: sections with sentences, pictures and tables; values only, laid out by one template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, Literal, ParamSpec

from markupsafe import Markup

from advisor import extras

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
        return Markup() if extras.missing("plots") else draw(*args, **kwargs)

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
