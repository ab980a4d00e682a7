"""Pressure → small bars with their figure in words; no HTML here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.domain import Headroom, HostMemory

WIDTH = 100.0  # of a bar, in its own units; demand for all of a resource fills it
FULL, HIGH = 1.0, 0.7  # above these an instance must wait; queues grow long (a choice: at 0.7 an M/M/1 queue holds 2.3)
NAMES: Mapping[str, str] = {
    "cpu": "CPU",
    "driver_domain": "Driver domain",
    "nic": "NIC",
    "disk": "Disk",
    "memory": "Memory bandwidth",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One resource of a host; `figure` is empty where its capacity is not known."""

    name: str
    level: str  # good, fair or bad
    length: float
    figure: str
    words: str
    peak: float | None = None  # length at busy times; None = not known
    peak_figure: str = ""


def bars(pressure: Mapping[str, float | None], cpu_peak: float) -> tuple[Bar, ...]:
    """Demand for each resource, in the order of `pressure`; `cpu_peak` is the demand for CPUs at busy times."""
    return tuple(
        _bar(NAMES.get(name, name), value, cpu_peak if name == "cpu" else None) for name, value in pressure.items()
    )


def _bar(name: str, value: float | None, peak: float | None) -> Bar:
    if value is None:
        return Bar(name, "good", 0.0, "", f"{name}: its capacity is not known")
    level = "bad" if value > FULL else "fair" if value > HIGH else "good"
    words = f"{name}: demand is {_figure(value)} of capacity"
    bar = Bar(name, level, _length(value), _figure(value), words)
    if not peak or peak <= value:
        return bar
    if peak > FULL and level == "good":
        bar = replace(bar, level="fair")
    return replace(bar, words=f"{words}, {_figure(peak)} at busy times", peak=_length(peak), peak_figure=_figure(peak))


MEMORY_HIGH = 0.9  # of a host's memory: above it few new instances find room


def memory(promised_mb: float, memory_mb: float, state: HostMemory | None = None) -> Bar:
    """The memory of a host's instances, over that of the host; stalls and swap in place of it where there are any."""
    part = promised_mb / max(memory_mb, 1.0)  # all of it may be huge pages
    level = "bad" if part > FULL else "fair" if part > MEMORY_HIGH else "good"
    words = f"Memory: {promised_mb / 1024:,.0f} of {memory_mb / 1024:,.0f} GB"
    bar = Bar("Memory", level, _length(part), _figure(part), words)
    if state is None or not state.words:
        return bar
    figure = "swaps" if state.swaps else f"stalls {state.stalled:.0f} %"
    return replace(bar, level="bad" if state.is_short() else "fair", figure=figure, words=f"{words}; it {state.words}")


def kept(share: float, level: str) -> Bar:
    """At what part of its uncontended speed an instance runs."""
    text = f"runs at {100 * share:.0f} % of its uncontended speed"
    return Bar("Relative throughput", level, _length(share), f"{share:.2f}", text)


def _length(value: float) -> float:
    return round(WIDTH * min(max(value, 0.0), 1.0), 1)


def _figure(value: float) -> str:
    return f"{100 * value:.0f} %" if value < 10 else f"{value:.0f} ×"


@dataclass(frozen=True, slots=True)
class Room:
    """One resource of a host with the new VM: `before` is used already, `added` by the new VM; WIDTH is all."""

    name: str
    level: str
    before: float
    added: float
    figure: str
    words: str


def rooms(headroom: Headroom | None) -> tuple[Room, ...]:
    """How full CPUs, memory and network are; what is not known is said to be so."""
    if headroom is None:
        return ()
    parts = (("CPU", "cpu", "at busy times"), ("Memory", "memory", "promised"), ("Network", "nic", "at busy times"))
    return tuple(
        _room(name, 1 - getattr(headroom, field), getattr(headroom, f"{field}_before"), when)
        for name, field, when in parts
    )


def _room(name: str, after: float, left: float | None, when: str) -> Room:
    before = after if left is None else 1 - left
    if not (before or after):  # its capacity or use is not known: a measured use is never exactly 0
        return Room(name, "good", 0.0, 0.0, "–", f"{name} {when}: not known")
    level = "bad" if after > FULL else "fair" if after > HIGH else "good"
    start, end = _length(before), _length(after)
    figure = f"{100 * after:.0f} %"
    return Room(
        name,
        level,
        start,
        round(max(end - start, 0.0), 1),
        figure,
        f"{name} {when}: {100 * before:.0f} % before, {figure} with it",
    )
