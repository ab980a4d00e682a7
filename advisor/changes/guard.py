"""What a change was measured to have brought, and the guard that stops where it harms."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from advisor.domain import (
    CHANGE_KINDS,
    ApplyMode,
    Band,
    Change,
    ChangeKind,
    MeasuredEffect,
    PredictedEffect,
    Rollout,
    Verdict,
)
from advisor.errors import InvalidInput
from advisor.settings import Settings

# What a rollout brought: CPU delivered in windows after it less before it, beside instances that were left alone.
#
# The difference in differences of the means of windows. Windows that follow each other are alike, so each series counts
# as fewer independent ones: n (1 - r) / (1 + r), with r the correlation of neighbours (Bayley and Hammersley, 1946).

FEWEST = 5  # windows on either side, before an effect is said
CONFIDENCE = 0.90  # of intervals, as those of predictions
_LEAST_INDEPENDENT = 2.0
Series = Mapping[float, float]  # end of a window, s since the epoch → CPU delivered, 0-1


@dataclass(frozen=True, slots=True)
class Span:
    """The windows that count: those that end in (begin, changed] are before, those that begin at `settled` or later and
    end by `end` are after; all in s since the epoch."""

    begin: float
    changed: float
    settled: float
    end: float
    window_s: float

    def before(self, time_s: float) -> bool:
        return self.begin < time_s <= self.changed

    def after(self, time_s: float) -> bool:
        return self.settled + self.window_s <= time_s <= self.end


def measure(
    predicted: PredictedEffect, own: Series, controls: Mapping[str, Series], span: Span, fewest: int = FEWEST
) -> MeasuredEffect:
    """What became of one instance; `unknown` with the reason where too few windows were measured."""
    usable = {name: series for name, series in controls.items() if _has_enough(series, span, fewest)}
    differences = _less(own, list(usable.values()))
    before = np.array([value for time_s, value in sorted(differences.items()) if span.before(time_s)])
    after = np.array([value for time_s, value in sorted(differences.items()) if span.after(time_s)])
    change = predicted.change
    counted = {"windows_before": len(before), "windows_after": len(after), "controls": tuple(sorted(usable))}
    if min(len(before), len(after)) < fewest:
        why = f"{len(before)} windows before and {len(after)} after were measured; {fewest} of each are needed"
        return MeasuredEffect(predicted.instance, change, "unknown", why=why, **counted)  # type: ignore[arg-type]
    effect = _difference(before, after)
    verdict, why = verdict_of(change, effect)
    levels = (_mean_of(own, differences, span.before), _mean_of(own, differences, span.after))
    return MeasuredEffect(predicted.instance, change, verdict, effect, *levels, why=why, **counted)  # type: ignore[arg-type]


def verdict_of(predicted: Band, effect: Band) -> tuple[Verdict, str]:
    """How a measured effect stands to the predicted one.

    harmful = beyond doubt below 0 and below what was predicted: the whole interval is; less and more = the whole
    interval is outside of the predicted range; unknown = the interval covers 0 and all of the predicted range.
    """
    said = f"{effect.expected:+.3f} [{effect.lower:+.3f}, {effect.upper:+.3f}]"
    beside = f"predicted {predicted.expected:+.3f} [{predicted.lower:+.3f}, {predicted.upper:+.3f}], measured {said}"
    if effect.upper < min(predicted.lower, 0.0):
        return "harmful", beside
    if effect.upper < predicted.lower:
        return "less", beside
    if effect.lower > predicted.upper:
        return "more", beside
    if effect.lower < min(predicted.lower, 0.0) and effect.upper > max(predicted.upper, 0.0):
        return "unknown", f"{beside}: the windows vary too much to tell"
    return "as predicted", beside


def _has_enough(series: Series, span: Span, fewest: int) -> bool:
    return sum(map(span.before, series)) >= fewest and sum(map(span.after, series)) >= fewest


def _less(own: Series, controls: Sequence[Series]) -> dict[float, float]:
    """The own value of each window less the mean of the controls that were measured in it."""
    if not controls:
        return dict(own)
    differences = {}
    for time_s, value in own.items():
        there = [series[time_s] for series in controls if time_s in series]
        if there:
            differences[time_s] = value - sum(there) / len(there)
    return differences


def _difference(before: NDArray[np.float64], after: NDArray[np.float64]) -> Band:
    """Welch's interval of the difference of means, with as many windows as are independent."""
    from scipy import stats

    parts = [(float(np.var(some, ddof=1)), _independent(some)) for some in (before, after)]
    errors = [variance / number for variance, number in parts]
    expected = float(after.mean() - before.mean())
    total = sum(errors)
    if total <= 0.0:
        return Band(expected, expected, expected)
    freedom = total**2 / sum(error**2 / max(number - 1, 1.0) for error, (_, number) in zip(errors, parts, strict=True))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(total)
    return Band(expected, expected - half, expected + half)


def _independent(values: NDArray[np.float64]) -> float:
    """How many independent windows a series is worth."""
    centred = values - values.mean()
    power = float(centred @ centred)
    if power <= 0.0 or len(values) < 3:
        return float(len(values))
    alike = min(max(float(centred[1:] @ centred[:-1]) / power, 0.0), 0.95)
    return max(len(values) * (1 - alike) / (1 + alike), _LEAST_INDEPENDENT)


def _mean_of(own: Series, counted: Mapping[float, float], chosen: object) -> float:
    values = [own[time_s] for time_s in counted if chosen(time_s)]  # type: ignore[operator]
    return sum(values) / len(values)


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(
    r"(?:(mon|tue|wed|thu|fri|sat|sun)(?:-(mon|tue|wed|thu|fri|sat|sun))? )?(\d\d):(\d\d)-(\d\d):(\d\d)"
)
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """Times of some days (0 = Monday) in UTC, in minutes after midnight; past midnight where it ends before it
    begins."""

    days: frozenset[int]
    begin: int
    end: int
    text: str

    @classmethod
    def read(cls, text: str) -> MaintenanceWindow:
        """Such as `mon-fri 22:00-04:00` or `02:00-05:00`; InvalidInput for another text."""
        match = _WINDOW.fullmatch(text.strip().lower())
        if match is None or int(match[3]) > 23 or int(match[5]) > 24 or max(int(match[4]), int(match[6])) > 59:
            message = f"maintenance window {text.strip()[:60]!r} is no time: write mon-fri 22:00-04:00 (UTC)"
            raise InvalidInput(message, field="apply_windows")
        first = _DAYS.index(match[1]) if match[1] else 0
        last = _DAYS.index(match[2]) if match[2] else first if match[1] else 6
        days = frozenset((first + number) % 7 for number in range((last - first) % 7 + 1))
        begin, end = int(match[3]) * 60 + int(match[4]), int(match[5]) * 60 + int(match[6])
        return cls(days, begin, end, text.strip())

    def holds(self, at: datetime) -> bool:
        """Whether it is open at this time (UTC)."""
        minute, today = at.hour * 60 + at.minute, at.weekday()
        if self.begin < self.end:
            return today in self.days and self.begin <= minute < self.end
        return (today in self.days and minute >= self.begin) or ((today - 1) % 7 in self.days and minute < self.end)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator allows; docs/apply.md. `kinds` and `hosts` count in mode act alone: what they leave out needs
    an approval, as all does in mode ask."""

    mode: ApplyMode
    kinds: frozenset[ChangeKind]
    hosts: tuple[str, ...]
    per_hour: int
    per_day: int
    at_once: int
    cooldown: timedelta
    windows: tuple[MaintenanceWindow, ...]

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """InvalidInput for settings that are none."""
        kinds = [kind.strip() for kind in settings.apply_kinds.split(",") if kind.strip()]
        unknown = sorted(set(kinds) - set(CHANGE_KINDS))
        if unknown:
            message = f"apply_kinds: {unknown[0][:40]!r} is none of {', '.join(CHANGE_KINDS)}"
            raise InvalidInput(message, field="apply_kinds")
        return cls(
            mode=settings.apply_mode,
            kinds=frozenset(kind for kind in CHANGE_KINDS if kind in kinds),
            hosts=tuple(part.strip() for part in settings.apply_hosts.split(",") if part.strip()),
            per_hour=settings.apply_per_hour,
            per_day=settings.apply_per_day,
            at_once=settings.apply_at_once,
            cooldown=timedelta(seconds=settings.apply_cooldown_s),
            windows=tuple(MaintenanceWindow.read(part) for part in settings.apply_windows.split(",") if part.strip()),
        )

    def asks(self, change: Change) -> bool:
        """Whether this change needs an approval."""
        allowed = change.kind in self.kinds and any(fnmatchcase(change.host, pattern) for pattern in self.hosts)
        return self.mode != "act" or not allowed


@dataclass(frozen=True, slots=True)
class Past:
    """What was done lately: when each change of the last day began, by instance the last time that it was changed, and
    which rollouts are under way, with the instances of each."""

    began: Sequence[datetime] = ()
    changed: Mapping[str, datetime] | None = None
    under_way: Mapping[str, Collection[str]] | None = None


def refusals(rollout: Rollout, rules: Rules, past: Past, now: datetime, *, approved: bool, frozen: str) -> list[str]:
    """Why nothing of a rollout may be carried out now; empty = it may."""
    return list(_refusals(rollout, rules, past, now, approved=approved, frozen=frozen))


def _refusals(
    rollout: Rollout, rules: Rules, past: Past, now: datetime, *, approved: bool, frozen: str
) -> Iterator[str]:
    if rules.mode == "advise":
        yield "the mode is advise, in which nothing is carried out: set COTENANT_APPLY_MODE to ask or act"
    if frozen:
        yield f"{frozen}; `cotenant freeze --off` lets changes be applied again"
    if not approved and (asked := [change for change in rollout.changes if rules.asks(change)]):
        one = asked[0]
        yield f"{len(asked)} of {len(rollout.changes)} changes need an approval, such as {one.kind} of {one.subject}"
    if rules.windows and not any(window.holds(now) for window in rules.windows):
        yield f"no maintenance window is open: {', '.join(window.text for window in rules.windows)} (UTC)"
    yield from _too_many(rollout, rules, past, now)
    yield from _too_soon(rollout, rules, past, now)


def _too_many(rollout: Rollout, rules: Rules, past: Past, now: datetime) -> Iterator[str]:
    number = len(rollout.changes)
    for limit, span, name in ((rules.per_hour, _HOUR, "hour"), (rules.per_day, _DAY, "day")):
        lately = sum(began > now - span for began in past.began)
        if lately + number > limit:
            yield f"{number} changes after {lately} in the last {name} are more than {limit} an {name}".replace(
                "an day", "a day"
            )
    if (under_way := len(past.under_way or ())) >= rules.at_once:
        yield f"{under_way} rollouts are under way or not measured yet, and {rules.at_once} may be at once"


def _too_soon(rollout: Rollout, rules: Rules, past: Past, now: datetime) -> Iterator[str]:
    busy = Counter(name for names in (past.under_way or {}).values() for name in names)
    for name in sorted(rollout.instances - {""}):
        if busy[name]:
            yield f"{name} is part of another rollout that is under way or not measured yet"
        elif (last := (past.changed or {}).get(name)) is not None and now - last < rules.cooldown:
            yield f"{name} was changed at {last:%Y-%m-%d %H:%M} UTC; the cooldown of {rules.cooldown} is not over"
