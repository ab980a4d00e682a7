"""Which instances count as affected on every page: one rule for lists, colours and counts."""

from __future__ import annotations

from advisor.domain import ResidentNow
from advisor.rounding import SLACK
from api.html.picture import KEPT


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


def level(resident: ResidentNow) -> str:
    """Its colour: bad beyond its limit (without one below KEPT) or where it falls behind, fair half way to that."""
    limit = resident.instance.min_throughput_ratio
    if breaks(resident) or (limit is None and resident.expected < KEPT):
        return "bad"
    return "fair" if resident.expected < (1 + (KEPT if limit is None else limit)) / 2 else "good"
