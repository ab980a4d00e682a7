"""What a report is made of: sections with sentences, pictures and tables; values only, laid out by one template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from markupsafe import Markup

Kind = Literal[
    "name", "text", "prose", "listed", "sentences", "argv", "when",
    "count", "number", "figure", "ratio", "band", "points", "times", "latest", "share",
    "figure_between", "share_between", "pressure", "harm",
]  # fmt: skip
MOST_ROWS = 200  # of one table on the page; its CSV has all


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its `key` in the data, its heading, and what its values are (see `figures`); None = not known.

    `over` is a heading that columns side by side share.
    """

    key: str
    title: str
    kind: Kind = "text"
    over: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; `name` is its file's, `most` how many rows the page has, of the first ones.

    `look` is plain, matrix (coloured cells) or folded (behind its caption, for what a picture shows already).
    `picked` are rows that stand out, by their first value.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    most: int = MOST_ROWS
    look: Literal["plain", "matrix", "folded"] = "plain"
    picked: frozenset[str] = frozenset()

    @property
    def on_page(self) -> list[tuple[int, Column]]:
        """The columns with anything in them, each with its place."""
        numbered = enumerate(self.columns)
        return [(at, column) for at, column in numbered if any(row[at] not in (None, "", ()) for row in self.rows)]

    @property
    def left_out(self) -> int:
        return max(len(self.rows) - self.most, 0)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Figures of one kind by two names, as coloured cells; the same stand in a table of long form, None = none."""

    title: str
    across: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Any]]]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its caption; what it shows stands in a table of the same section."""

    caption: str
    svg: Markup
    note: str = ""
    broad: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One section; `key` names the colours of its cells, from fine to worst, () = none. Empty parts are left out."""

    id: str
    title: str
    note: str = ""
    sentences: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()
    key: Sequence[tuple[str, str]] = ()
    matrices: Sequence[Matrix] = ()
    tables: Sequence[Table] = ()

    def __bool__(self) -> bool:
        return bool(
            self.sentences or self.facts or self.pictures or self.matrices or any(one.rows for one in self.tables)
        )


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report: `what` it is of, the strongest thing in one sentence, and what else must be said first.

    `facts` tell when, by which model and from what it was made; `made_at` is what it speaks of, not when it was drawn.
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
        """Every table with rows, in the order of the page."""
        return tuple(table for section in self.sections for table in section.tables if table.rows)
