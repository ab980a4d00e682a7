"""Rows that show the same figures, joined to one with the names of the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
FEWEST = 3  # rows alike that are joined; two stay two


@dataclass(frozen=True, slots=True)
class Alike(Generic[T]):
    """A row, and the others that differ from it only by name."""

    row: T
    others: tuple[T, ...]


def joined(rows: Iterable[T], key: Callable[[T], Hashable]) -> list[Alike[T]]:
    """The rows in their order; those of one key stand where the first of them stood."""
    groups: dict[Hashable, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    joined_rows: list[Alike[T]] = []
    for first, *others in groups.values():
        if len(others) + 1 >= FEWEST:
            joined_rows.append(Alike(first, tuple(others)))
        else:
            joined_rows += [Alike(row, ()) for row in (first, *others)]
    return joined_rows
