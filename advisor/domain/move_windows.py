"""Windows in which instances may move, such as `Sat,Sun 02:00-06:00; Mon-Fri 22:00-23:30`, in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from advisor.errors import InvalidInput

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PART = re.compile(r"(?:(?P<days>[A-Za-z,\- ]+?)\s+)?(?P<begin>\d{1,2}:\d{2})\s*-\s*(?P<end>\d{1,2}:\d{2})\Z")
MINUTES_A_DAY, DAYS_A_WEEK = 24 * 60, 7
Span = tuple[int, int, int]  # day of the week (Monday = 0), and begin and end in minutes; an end after midnight is more


def spans(text: str) -> tuple[Span, ...]:
    """The spans of a week that a text names; InvalidInput says what is wrong with one that names none."""
    found: list[Span] = []
    for part in text.split(";"):
        match = _PART.match(part.strip())
        if match is None:
            message = f"{part.strip()[:40]!r} is no window; write days and times, such as Sat,Sun 02:00-06:00"
            raise InvalidInput(message)
        begin, end = (_minutes(match[name]) for name in ("begin", "end"))
        end += MINUTES_A_DAY if end <= begin else 0
        found += [(day, begin, end) for day in _days(match["days"] or "Mon-Sun")]
    return tuple(found)


def next_open(text: str, now: datetime) -> datetime:
    """`now` where a window is open, else when the next one opens; a text that names none is open at all times."""
    try:
        week = spans(text)
    except InvalidInput:
        return now
    now = now.astimezone(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    opens = []
    for ahead in range(-1, DAYS_A_WEEK + 1):
        day = midnight + timedelta(days=ahead)
        for weekday, begin, end in week:
            if weekday == day.weekday() and day + timedelta(minutes=end) > now:
                opens.append(max(day + timedelta(minutes=begin), now))
    return min(opens)


def _minutes(text: str) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    if hours * 60 + minutes > MINUTES_A_DAY or minutes > 59:
        raise InvalidInput(f"{text} is no time of a day")
    return hours * 60 + minutes


def _days(text: str) -> list[int]:
    days: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.lower().partition("-")
        if first[:3] not in DAYS or (last and last[:3] not in DAYS):
            raise InvalidInput(f"{part[:20]!r} is no day of the week; write Mon, Tue, Wed, Thu, Fri, Sat or Sun")
        begin, end = DAYS.index(first[:3]), DAYS.index((last or first)[:3])
        days += [(begin + step) % DAYS_A_WEEK for step in range((end - begin) % DAYS_A_WEEK + 1)]
    return days
