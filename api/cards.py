"""Reads a model's card, whatever its shape: its sections, its figures as rows, shares of training data by origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
