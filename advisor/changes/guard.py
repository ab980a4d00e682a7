"""Guard rails: what may be carried out now, by which user, and how much of it. Each refusal is one sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from advisor.domain import CHANGE_KINDS, ApplyMode, Change, ChangeKind, Rollout
from advisor.errors import InvalidInput
from advisor.settings import Settings

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
