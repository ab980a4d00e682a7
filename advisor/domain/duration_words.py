"""Durations in words."""

from __future__ import annotations

from advisor.domain.effects import Band


def seconds_in_words(seconds: float) -> str:
    """A time in the unit in which it is easily read."""
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"


def duration_in_words(duration: Band) -> str:
    """What is expected, with its range where that says more."""
    expected, *ends = (seconds_in_words(part) for part in (duration.expected, duration.lower, duration.upper))
    return expected if ends == [expected, expected] else f"{expected} ({ends[0]} to {ends[1]})"
