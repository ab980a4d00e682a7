"""Pressure → small bars with their figure in words; no HTML here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.domain import Headroom

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


@dataclass(frozen=True, slots=True)
class Room:
    """One resource of a host with the newcomer: what is used before, and what the newcomer adds, of WIDTH."""

    name: str
    level: str
    before: float
    added: float
    figure: str
    words: str


def rooms(headroom: Headroom | None) -> tuple[Room, ...]:
    """How full CPUs, memory and network are, where that is known."""
    if headroom is None:
        return ()
    parts = (("CPU", "cpu", "at busy times"), ("Memory", "memory", "promised"), ("Network", "nic", "at busy times"))
    return tuple(
        _room(name, 1 - getattr(headroom, field), getattr(headroom, f"{field}_before"), when)
        for name, field, when in parts
    )


def _room(name: str, after: float, left: float | None, when: str) -> Room:
    was = after if left is None else 1 - left
    level = "bad" if after > FULL else "fair" if after > HIGH else "good"
    start = WIDTH * min(max(was, 0.0), 1.0)
    end = WIDTH * min(max(after, 0.0), 1.0)
    figure = f"{100 * after:.0f} %"
    return Room(
        name,
        level,
        round(start, 1),
        round(max(end - start, 0.0), 1),
        figure,
        f"{name} {when}: {100 * was:.0f} % before, {figure} with it",
    )
