"""Figures in words: lists, durations, CPU time that is contended, latency; for every front end."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.domain.effects import Band, CpuTime, Effect

# Several names in a sentence.


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and the number of the others."""
    others = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + others


# Durations in words.


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


# Contended CPU time in words.

FELT = 0.001  # of the time: less than that counts as none


def time_part(part: float) -> str:
    """A part of the time, 0-1, in per cent; a decimal where that is less than ten per cent."""
    if 0 < part < FELT:
        return "< 0.1 %"
    return f"{100 * part:.0f} %" if part == 0 or part >= 0.0995 else f"{100 * part:.1f} %"


def speed(ratio: float) -> str:
    """A relative throughput in a sentence, as a whole percentage."""
    return f"{round(100 * ratio):d} % of its uncontended speed"


def short_of_cpu(name: str, cpu: CpuTime) -> str:
    """In a sentence for how much of the time an instance is contended, and was before."""
    if cpu.overloaded:
        return f"{name} is overloaded at busy times: more work arrives then than it is served."
    before = "" if cpu.short_before is None else f", {time_part(cpu.short_before)} before"
    return f"{name} is contended {time_part(cpu.short)} of the time{before}."


def latency_in_words(effect: Effect) -> str:
    """The expected latency as a multiple of that alone; an overloaded instance has none."""
    return "overloaded" if effect.overloaded else f"× {effect.latency_ratio.expected:.2f}"
