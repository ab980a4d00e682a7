"""Pressure → small bars with their figure in words; no HTML here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WIDTH = 100.0  # of a bar, in its own units; what asks for all there is fills it
FULL, HIGH = 1.0, 0.7  # from here on somebody must wait; queues grow long (a choice: at 0.7 an M/M/1 queue holds 2.3)
NAMES: Mapping[str, str] = {
    "cpu": "CPU",
    "driver_domain": "Driver domain",
    "nic": "NIC",
    "disk": "Disk",
    "memory": "Memory bandwidth",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One resource of a host; `figure` is empty where nobody knows what the resource can do."""

    name: str
    level: str  # good, fair or bad
    length: float
    figure: str
    words: str


def bars(pressure: Mapping[str, float | None]) -> tuple[Bar, ...]:
    """What is asked of each resource, in their order."""
    return tuple(_bar(NAMES.get(name, name), value) for name, value in pressure.items())


def _bar(name: str, value: float | None) -> Bar:
    if value is None:
        return Bar(name, "good", 0.0, "", f"{name}: nobody knows what it can do")
    level = "bad" if value > FULL else "fair" if value > HIGH else "good"
    figure = f"{100 * value:.0f} %" if value < 10 else f"{value:.0f} ×"
    return Bar(
        name, level, round(WIDTH * min(value, 1.0), 1), figure, f"{name}: {figure} of what it can do is asked for"
    )
