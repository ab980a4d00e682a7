"""Numbers → what a page shows: interval pictures, words for ratios and ages; no HTML here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from advisor.domain import (
    Band,
    Effect,
    Instance,
    PredictedVsObserved,
    latency_in_words,
    short_of_cpu,
    speed,
    time_part,
)
from advisor.rounding import SLACK

WIDTH = 240  # of a picture, in its own units
MOST = 1.1  # the right edge: an instance can be a little faster than its solo measurement said
KEPT = 0.9  # without a limit of its own, an instance counts as unharmed from here on
FALLS_BEHIND = "falls behind"  # said of an instance: "overloaded" would be taken for its host
_LEFT, _RIGHT = 4.0, 236.0


def x(ratio: float) -> float:
    """The place of a throughput ratio in a picture from 0 to MOST; a ratio beyond is drawn at the edge."""
    return round(_LEFT + (_RIGHT - _LEFT) * min(max(ratio, 0.0), MOST) / MOST, 1)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One instance in the table of a candidate: its picture and its figures."""

    name: str
    new_vm: bool
    level: str  # good, fair or bad: how the expected ratio compares with its limit
    low: float
    high: float
    mark: float
    before: float | None
    limit: float | None
    figure: str
    interval: str
    before_figure: str
    latency: str  # over that alone, or that it falls behind
    short: str  # the part of the time for which it is short of CPU; empty = not predicted
    short_before: str
    short_words: str  # the same as a sentence
    outside: bool  # nothing like it was measured, so its range is wider
    words: str
    complaint: str  # in words, when the level is bad
    loss: float  # how much of its ratio the placement takes; 0 for the new VM
    longer: float  # growth of the part of the time for which it is short of CPU; 0 for the new VM


def row(effect: Effect, *, new_vm: bool, limit: float | None = None) -> IntervalRow:
    """What happens to one instance, ready to be drawn; `limit` is the lowest ratio that it accepts, None = any."""
    band = effect.throughput_ratio
    before = effect.before.expected if effect.before else None
    words = f"expected at {speed(band.expected)}, between {100 * band.lower:.0f} and {100 * band.upper:.0f} %"
    if before is not None:
        words += f", before {100 * before:.0f} %"
    if limit is not None:
        words += f", limit {100 * limit:.0f} %"
    return IntervalRow(
        name=effect.instance,
        new_vm=new_vm,
        level="bad" if effect.overloaded else _level(band.expected, band.lower, KEPT if limit is None else limit),
        low=x(band.lower),
        high=x(band.upper),
        mark=x(band.expected),
        before=None if before is None else x(before),
        limit=None if limit is None else x(limit),
        figure=f"{band.expected:.2f}",
        interval=f"{band.lower:.2f}–{band.upper:.2f}",
        before_figure="–" if before is None else f"{before:.2f}",
        latency=FALLS_BEHIND if effect.overloaded else latency_in_words(effect),
        short=time_part(effect.cpu.short) if effect.cpu else "",
        short_before=_short_before(effect),
        short_words=short_of_cpu(effect.instance, effect.cpu) if effect.cpu else "",
        outside=effect.outside_training,
        words=words,
        complaint=_complaint(effect, limit),
        loss=effect.before.expected - band.expected if effect.before else 0.0,
        longer=_longer(effect),
    )


def _complaint(effect: Effect, limit: float | None) -> str:
    if effect.overloaded:
        return FALLS_BEHIND
    return "below its limit" if limit is not None else f"loses more than {1 - KEPT:.0%}"


def _longer(effect: Effect) -> float:
    cpu = effect.cpu
    return 0.0 if cpu is None or cpu.short_before is None else cpu.short - cpu.short_before


def _short_before(effect: Effect) -> str:
    before = effect.cpu.short_before if effect.cpu else None
    return "" if before is None else time_part(before)


def _level(expected: float, lower: float, limit: float) -> str:
    if expected < limit - SLACK:
        return "bad"
    return "good" if round(lower, 2) >= limit - SLACK else "fair"  # as it is shown


def size(instance: Instance) -> str:
    """vCPUs and memory, as the question in one line takes them, too: "8 vCPUs, 16 GB"."""
    return f"{instance.vcpus} vCPU{'s' if instance.vcpus > 1 else ''}, {memory(instance.memory_mb)}"


def memory(megabytes: float) -> str:
    """In GB where that is a short figure."""
    return f"{megabytes / 1024:g} GB" if megabytes >= 1024 and megabytes % 256 == 0 else f"{megabytes:.12g} MB"


def age_in_words(seconds: float) -> str:
    """An age as people say it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def age_since(then: datetime, now: datetime) -> str:
    """How long ago that was, as people say it; a clock that is ahead makes it 0."""
    return age_in_words(max((now - then).total_seconds(), 0.0))


@dataclass(frozen=True, slots=True)
class BesideRow:
    """One instance's measured ratio, and the predicted interval (`drawn`, None = none was predicted)."""

    name: str
    drawn: IntervalRow | None
    measured: float
    figure: str
    words: str
    inside: bool | None


def predicted_row(name: str, band: Band, *, limit: float | None = None) -> IntervalRow:
    """The predicted throughput ratio of an instance, ready to be drawn."""
    return row(Effect(name, band, Band(1.0, 1.0, 1.0)), new_vm=False, limit=limit)


def beside(observed: PredictedVsObserved, *, limit: float | None = None) -> BesideRow:
    """What was predicted and what was measured, ready to be drawn."""
    drawn, words, inside = None, "not predicted there", None
    if observed.band is not None:
        drawn, inside = predicted_row(observed.instance, observed.band, limit=limit), observed.inside
        words = "inside" if inside else "above" if observed.measured > observed.band.upper else "below"
    return BesideRow(observed.instance, drawn, x(observed.measured), f"{observed.measured:.2f}", words, inside)


def moment(at: datetime) -> str:
    """A time as the pages show it, in UTC to the minute."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"
