"""Hosts → a strip of columns: height is demand for CPUs at busy times, colour the worst-off instance; no HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.domain import HostNow
from api.web import affected

HEIGHT = 48.0  # of a column, in its own units; a host whose CPUs are all asked for fills it
_LEVELS = ("good", "fair", "bad")
NAMED = 24  # hosts of a strip that has names below its columns


@dataclass(frozen=True, slots=True)
class Cell:
    """One host."""

    name: str
    level: str  # good, fair or bad: of the most affected instance there; empty = the host is empty
    height: float
    over: bool  # demand at busy times exceeds its CPUs
    figure: str
    known: str  # of how many of its instances more than the size is known
    badge: str  # all, some or none
    words: str


def counts(cells: Sequence[Cell]) -> Counter[str]:
    """The number of hosts of each level."""
    return Counter(cell.level for cell in cells)


def cells(hosts: Sequence[HostNow]) -> tuple[Cell, ...]:
    """All hosts by name."""
    return tuple(_cell(host) for host in sorted(hosts, key=lambda host: host.host.id))


def _cell(now: HostNow) -> Cell:
    worst, count = now.worst, len(now.residents)
    level = ""
    if worst is not None:
        level = max((affected.level(resident) for resident in now.residents), key=_LEVELS.index)
    figure = f"{100 * now.cpu_peak:.0f} %"
    words = f"{now.host.id}: {figure} of the CPUs at busy times"
    if worst is None:
        words += ", empty"
    else:
        words += f"; most affected: {worst.instance.id}, at {100 * worst.expected:.0f} % of its uncontended speed"
        words += f"; more than the size is known of {now.known} of {count}"
    return Cell(
        now.host.id,
        level,
        round(HEIGHT * min(now.cpu_peak, 1.0), 1),
        now.cpu_peak > 1,
        figure,
        f"{now.known}/{count}",
        "all" if now.known == count else "some" if now.known else "none",
        words,
    )
