"""Rules that hosts and groups of instances keep, and windows of time in which instances may move."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from advisor.errors import InvalidInput
from profiler import host_kinds
from profiler.observed import (
    AFFINITY_LABEL,
    ANTI_AFFINITY_LABEL,
    ANTI_AFFINITY_MOST_LABEL,
    NEVER_MOVE_LABEL,
    REQUIRE_LABEL,
    Host,
    Instance,
)

# Windows in which instances may move, such as `Sat,Sun 02:00-06:00; Mon-Fri 22:00-23:30`, in UTC.

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


# Of an instance, before the name of a label of hosts (`id` = the host's id): its value there is one of these, is none
# of these, has each of these among its own, and is one of these where that is possible.
ANY, NONE, EACH, PREFER = "require_any.", "require_none.", "require_each.", "prefer_any."
NEEDS, HAS = host_kinds.NEEDS, host_kinds.HAS  # before the name of what is counted: how many of it, of how many there
SOFT_AFFINITY, SOFT_ANTI_AFFINITY = "soft_affinity", "soft_anti_affinity"
WINDOW = "move_window"  # of an instance or a host: the times (UTC) in which plans move it, or to and from it
LOCAL_STORAGE = "local_storage"  # "true" = its disk is on its host, and a move copies it
PREFIXES = (REQUIRE_LABEL, ANY, NONE, EACH, PREFER, NEEDS)
SOFT = (SOFT_AFFINITY, SOFT_ANTI_AFFINITY)
RULES = (AFFINITY_LABEL, ANTI_AFFINITY_LABEL, ANTI_AFFINITY_MOST_LABEL, *SOFT)
HOST_ID = "id"
RuleKey = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of an instance about hosts, each by the name of a label of hosts; `needs` by what is counted."""

    any_of: Mapping[str, tuple[str, ...]]
    none_of: Mapping[str, tuple[str, ...]]
    each_of: Mapping[str, tuple[str, ...]]
    prefers: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, float]

    def refusal(self, host: Host) -> str:
        """Why a host must not have it, whatever else is there; "" = nothing is in the way."""
        for name, allowed in self.any_of.items():
            if value_of(host, name) not in allowed:
                some = f"{name}={allowed[0]}" if len(allowed) == 1 else f"{name} to be one of {', '.join(allowed)}"
                return f"needs label {some}, has {value_of(host, name) or 'none'}"
        for name, barred in self.none_of.items():
            if value_of(host, name) in barred:
                return f"must not be where the label {name} is {value_of(host, name)}"
        for name, wanted in self.each_of.items():
            there = items(value_of(host, name))
            if missing := [item for item in wanted if item not in there]:
                return f"needs {', '.join(missing)} in label {name}, has {value_of(host, name) or 'none'}"
        return ""


def rule_key(instance: Instance) -> RuleKey:
    """All labels of an instance that are rules about hosts or other instances, in order of their names."""
    found = ((name, text) for name, text in instance.labels.items() if name.startswith(PREFIXES) or name in RULES)
    return tuple(sorted(found))


def without_soft(instance: Instance) -> Instance:
    """The instance without its soft rules."""
    kept = {name: text for name, text in instance.labels.items() if not (name in SOFT or name.startswith(PREFER))}
    return instance if len(kept) == len(instance.labels) else replace(instance, labels=kept)


def has_soft(instance: Instance) -> bool:
    """Whether it has a soft rule."""
    return any(name in SOFT or name.startswith(PREFER) for name in instance.labels)


def rules_of(instance: Instance) -> Rules:
    """The rules of an instance about hosts."""
    return _parsed(rule_key(instance))


@lru_cache(maxsize=4096)
def _parsed(labels: RuleKey) -> Rules:
    def of(prefix: str) -> dict[str, tuple[str, ...]]:
        return {name[len(prefix) :]: items(text) for name, text in labels if name.startswith(prefix)}

    exact = {name[len(REQUIRE_LABEL) :]: (text,) for name, text in labels if name.startswith(REQUIRE_LABEL)}
    any_of = of(ANY)
    for name, allowed in exact.items():  # both: what both allow
        any_of[name] = tuple(one for one in allowed if one in any_of.get(name, allowed))
    needs = {name[len(NEEDS) :]: amount(text) or 0.0 for name, text in labels if name.startswith(NEEDS)}
    return Rules(any_of, of(NONE), of(EACH), of(PREFER), {name: some for name, some in needs.items() if some})


NO_RULES = _parsed(())


def has_of(host: Host) -> dict[str, float]:
    """What a host has of each thing that is counted."""
    counted = {name[len(HAS) :]: amount(text) for name, text in host.labels.items() if name.startswith(HAS)}
    return {name: some for name, some in counted.items() if some}


def value_of(host: Host, name: str) -> str:
    """What a host says under a name, "" = nothing."""
    return host.id if name == HOST_ID else host.labels.get(name, "")


def items(text: str) -> tuple[str, ...]:
    """The parts of a text with commas between them."""
    return tuple(part for part in (each.strip() for each in text.split(",")) if part)


def amount(text: str) -> float | None:
    """A number from 0 on; None where a text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def needed(instances: Iterable[Instance]) -> Counter[str]:
    """What these instances need together of everything that is counted."""
    total: Counter[str] = Counter()
    for instance in instances:
        for name, some in rules_of(instance).needs.items():
            total[name] += some  # type: ignore[assignment]
    return total


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold on a host: `what` identifies it there, `text` says it, `instances` could leave."""

    host: str
    what: str
    text: str
    instances: tuple[str, ...]


def violations(host: Host, residents: Sequence[Instance]) -> Iterator[Violation]:
    """Rules that do not hold on one host: of places, of what is counted, and of anti-affinity groups."""
    for instance in residents:
        if why := rules_of(instance).refusal(host):
            yield Violation(host.id, f"place {instance.id}", f"{instance.id} on {host.id} {why}", (instance.id,))
    has = has_of(host)
    for name, some in sorted(needed(residents).items()):
        if some > has.get(name, 0.0):
            users = tuple(one.id for one in residents if name in rules_of(one).needs)
            text = f"{host.id} has {has.get(name, 0.0):g} of {name}, its instances need {some:g}"
            yield Violation(host.id, f"needs {name}", text, users)
    for group, most, members in groups_above(residents):
        text = f"{host.id} has {len(members)} instances of the anti-affinity group {group}, at most {most} may share it"
        yield Violation(host.id, f"apart {group}", text, members)


def groups_above(residents: Sequence[Instance]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Anti-affinity groups with more members here than may share a host: group, how many may, and who is here."""
    groups: dict[str, list[Instance]] = {}
    for instance in residents:
        for group in instance.anti_affinity_groups:
            groups.setdefault(group, []).append(instance)
    for group, members in sorted(groups.items()):
        most = min(one.anti_affinity_most for one in members)
        if len(members) > most:
            yield group, most, tuple(one.id for one in members)


def parted(hosts: Sequence[Host], residents: Sequence[Sequence[Instance]]) -> Iterator[Violation]:
    """Affinity groups whose members are on several hosts; those that could leave are not where most are."""
    where: dict[str, dict[str, list[str]]] = {}
    for host, there in zip(hosts, residents, strict=True):
        for instance in there:
            if instance.affinity_group is not None:
                where.setdefault(instance.affinity_group, {}).setdefault(host.id, []).append(instance.id)
    for group, by_host in sorted(where.items()):
        if len(by_host) > 1:
            home = max(sorted(by_host), key=lambda name: len(by_host[name]))
            away = tuple(name for host, names in sorted(by_host.items()) if host != home for name in names)
            text = f"the affinity group {group} is on {len(by_host)} hosts: {', '.join(sorted(by_host)[:5])}"
            yield Violation(home, f"together {group}", text, away)


def check_rule(name: str, text: str, subject: str) -> None:
    """Refuse a label that is a rule which cannot be kept; InvalidInput says why."""
    prefix = next((each for each in (*PREFIXES, HAS) if name.startswith(each)), "")
    if prefix and name == prefix:
        example = f"{prefix}gpu to count the thing gpu"
        if prefix not in {NEEDS, HAS}:
            example = f"{prefix}zone to require the label zone"
        raise InvalidInput(f"{subject} has the label {prefix} without a name; write {example}")
    if prefix in {NEEDS, HAS} and amount(text) is None:
        raise InvalidInput(f"{name} of {subject} is {text[:40]!r}, which is no number from 0 on")
    if prefix in {ANY, NONE, EACH, PREFER} and not items(text):
        raise InvalidInput(f"{name} of {subject} names nothing; write values with commas between them")
    if name in {NEVER_MOVE_LABEL, LOCAL_STORAGE} and text.lower() not in {"true", "false"}:
        raise InvalidInput(f"{name} of {subject} is neither true nor false")
    if name == WINDOW:
        spans(text)
