"""Tables of pages: sorted without a script, by the address, and which instances count as affected in all of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from advisor.domain import ResidentNow
from advisor.errors import InvalidInput
from advisor.rounding import SLACK
from api.html.picture import KEPT

# Which instances count as affected on every page: one rule for lists, colours and counts.


def breaks(resident: ResidentNow) -> bool:
    """Whether it falls behind, or is predicted beyond a limit of its own."""
    it = resident.instance
    return (
        resident.falls_behind
        or (it.min_throughput_ratio is not None and resident.expected < it.min_throughput_ratio - SLACK)
        or (it.max_time_short is not None and resident.short is not None and resident.short > it.max_time_short + SLACK)
    )


def is_affected(resident: ResidentNow) -> bool:
    """Whether it breaks a limit or falls behind, or is predicted below KEPT: the lists of the most affected."""
    return breaks(resident) or resident.expected < KEPT


def affected_level(resident: ResidentNow) -> str:
    """Its colour: bad beyond its limit (without one below KEPT) or where it falls behind, fair half way to that."""
    limit = resident.instance.min_throughput_ratio
    if breaks(resident) or (limit is None and resident.expected < KEPT):
        return "bad"
    return "fair" if resident.expected < (1 + (KEPT if limit is None else limit)) / 2 else "good"


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

    def first(self, most: int, rows: Sequence[T], value: Callable[[T], Value], name: Callable[[T], str]) -> list[T]:
        """The first `most` rows in this order: equal ones by name, unknown values (None) last in both directions.

        Only those on the page are compared by name, which takes longer than their values do.
        """
        values: list[Any] = [value(row) for row in rows]
        pick = heapq.nlargest if self.descending else heapq.nsmallest
        taken: list[T] = []
        if picked := pick(most, (one for one in values if one is not None)):
            taken = self._up_to(picked[-1], values, rows, name)
            equal = (row for one, row in zip(values, rows, strict=True) if one == picked[-1])
            taken += heapq.nsmallest(most - len(taken), equal, key=name)
        unknown = (row for one, row in zip(values, rows, strict=True) if one is None)
        return taken + heapq.nsmallest(most - len(taken), unknown, key=name)

    def _up_to(self, last: Any, values: Sequence[Any], rows: Sequence[T], name: Callable[[T], str]) -> list[T]:
        """The rows before those with this value, in order."""
        pairs = [
            (one, row)
            for one, row in zip(values, rows, strict=True)
            if one is not None and (one > last if self.descending else one < last)
        ]
        pairs.sort(key=lambda pair: name(pair[1]))
        pairs.sort(key=lambda pair: pair[0], reverse=self.descending)
        return [row for _, row in pairs]


@dataclass(frozen=True, slots=True)
class PageSlice:
    """One page of a long list: which, of how many, and where the others are."""

    number: int
    last: int
    at_once: int
    total: int
    path: str

    @classmethod
    def of(cls, total: int, wanted: int, at_once: int, path: str, query: Mapping[str, str]) -> PageSlice:
        """A page number beyond the last shows the last page; `query` is what its links keep."""
        last = max(-(-total // at_once), 1)
        return cls(min(wanted, last), last, at_once, total, f"{path}?{urlencode({**query, 'page': ''})}")

    @property
    def end(self) -> int:
        """The number of rows up to the end of this page."""
        return self.number * self.at_once

    def cut(self, rows: list[T]) -> list[T]:
        """The rows of this page, of those up to its end."""
        return rows[self.end - self.at_once : self.end]
