"""Rows of tables: those that show the same figures joined, and the card of a model as rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

# Rows that show the same figures, joined to one with the names of the others.

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


# Reads a model's card, whatever its shape: its sections, its figures as rows, shares of training data by origin.


def is_section(name: str, value: object) -> bool:
    """Whether a part of a card has the shape that its table needs; anything else is shown as it is."""
    if name == "datasets":
        return isinstance(value, list) and bool(value) and all(isinstance(dataset, Mapping) for dataset in value)
    if name == "figures":
        return isinstance(value, Mapping) and bool(figures(value))
    return name == "libraries" and isinstance(value, Mapping)


def origins(datasets: object) -> str:
    """Shares of the training data by origin, such as "measured 80 %, paper 20 %"; "" where they are not counted."""
    if not is_section("datasets", datasets) or not isinstance(datasets, list):
        return ""
    counts: dict[str, float] = {}
    for dataset in datasets:
        number = dataset.get("colocations")
        if isinstance(number, int | float):
            counts[str(dataset.get("origin", "?"))] = counts.get(str(dataset.get("origin", "?")), 0) + number
    total = sum(counts.values())
    return ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in sorted(counts.items())) if total else ""


def figures(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per target and protocol."""
    return [
        {"target": target, "protocol": protocol, **numbers}
        for target, protocols in figures.items()
        if isinstance(protocols, Mapping)
        for protocol, numbers in protocols.items()
        if isinstance(numbers, Mapping)
    ]
