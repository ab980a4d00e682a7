"""Contended CPU time in words."""

from __future__ import annotations

from advisor.domain.effects import CpuTime, Effect

FELT = 0.001  # of the time: who is short for less is not short, as far as anybody can tell


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
