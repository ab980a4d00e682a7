"""Sorted tables without a script: the address says by which column, and headings link to the other orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar
from urllib.parse import urlencode

from advisor.errors import InvalidInput

T = TypeVar("T")
Value = float | str | None
PARAMETER = "sort"  # of the address: `memory`, or `-memory` for the largest first


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column that a table can be sorted by; `largest_first` says which end comes first when it is chosen."""

    title: str
    figure: bool = True  # aligned to the right
    largest_first: bool = True
    help: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's heading: its link, and whether the table is sorted by it now."""

    column: SortColumn
    href: str
    sorted: Literal["", "ascending", "descending"]


@dataclass(frozen=True, slots=True)
class Order:
    """The column of the address and its direction."""

    key: str
    descending: bool

    @classmethod
    def read(cls, query: Mapping[str, str], columns: Mapping[str, SortColumn], default: str) -> Order:
        """From an address; InvalidInput for a column that the table does not have."""
        text = query.get(PARAMETER) or default
        key = text.removeprefix("-")
        if key not in columns:
            message = f"{PARAMETER} {text[:60]!a} is none of {', '.join(columns)}, with - for the largest first"
            raise InvalidInput(message, field=PARAMETER)
        return cls(key, text.startswith("-"))

    @property
    def text(self) -> str:
        """As the address has it."""
        return f"-{self.key}" if self.descending else self.key

    def headings(self, columns: Mapping[str, SortColumn], path: str, query: Mapping[str, str]) -> dict[str, Heading]:
        """The heading of each column; links keep the rest of the query and lead to the first page."""
        return {key: self._heading(key, column, path, query) for key, column in columns.items()}

    def _heading(self, key: str, column: SortColumn, path: str, query: Mapping[str, str]) -> Heading:
        chosen = key == self.key
        descending = not self.descending if chosen else column.largest_first
        link = urlencode({**query, PARAMETER: Order(key, descending).text})
        now: Literal["ascending", "descending"] = "descending" if self.descending else "ascending"
        return Heading(column, f"{path}?{link}", now if chosen else "")

    def rows(self, rows: Iterable[T], value: Callable[[T], Value], name: Callable[[T], str]) -> list[T]:
        """The rows in this order: equal ones by name, unknown values (None) last in both directions."""
        keyed = [(value(row), name(row), row) for row in rows]
        keyed.sort(key=lambda entry: entry[1])
        known = [entry for entry in keyed if entry[0] is not None]
        known.sort(key=lambda entry: entry[0], reverse=self.descending)  # type: ignore[arg-type,return-value]
        return [entry[2] for entry in (*known, *(entry for entry in keyed if entry[0] is None))]


@dataclass(frozen=True, slots=True)
class Part:
    """One page of a long list: which, of how many, and where the others are."""

    number: int
    last: int
    at_once: int
    total: int
    path: str

    @classmethod
    def of(cls, total: int, wanted: int, at_once: int, path: str, query: Mapping[str, str]) -> Part:
        """A page number beyond the last shows the last page; `query` is what its links keep."""
        last = max(-(-total // at_once), 1)
        return cls(min(wanted, last), last, at_once, total, f"{path}?{urlencode({**query, 'page': ''})}")

    def cut(self, rows: list[T]) -> list[T]:
        """The rows of this page."""
        return rows[(self.number - 1) * self.at_once : self.number * self.at_once]
