"""A question typed in one line: the name of an instance, or a new one such as "8 vCPUs, 16 GB, like db-142"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_NUMBER = r"(?P<number>\d{1,9}(?:[.]\d{1,6})?)"
_MB = {"m": 1, "g": 1024, "t": 1024 * 1024}
_BETWEEN = re.compile(r"(?:[\s,;]+|and\b)+")
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("vcpus", re.compile(rf"{_NUMBER}\s*(?:v?cpus?|cores?)\b", re.IGNORECASE)),
    ("memory_mb", re.compile(rf"{_NUMBER}\s*(?P<unit>[mgt])(?:i?b)?\b", re.IGNORECASE)),
    ("like", re.compile(r"(?:like|as)\s+(?:\"(?P<quoted>[^\"]{1,255})\"|(?P<name>[^\s,;]{1,255}))", re.IGNORECASE)),
    ("id", re.compile(r"(?:named?|called)\s+(?P<name>[^\s,;]{1,255})", re.IGNORECASE)),
    (
        "min_throughput_ratio",
        re.compile(rf"(?:keeps?(?:\s+at least)?|at least)\s+{_NUMBER}(?P<percent>\s*%)?", re.IGNORECASE),
    ),
    ("max_time_short", re.compile(rf"short\s+(?:at most\s+)?{_NUMBER}(?P<percent>\s*%)?", re.IGNORECASE)),
    ("service", re.compile(r"(?P<name>latency|throughput)\b", re.IGNORECASE)),
    ("exclusive", re.compile(r"(?P<name>alone|exclusive)\b", re.IGNORECASE)),
)
_LONG_NAME = re.compile(r"(?:like|as)\s+(?P<name>[^\s,;\"][^,;\"]{0,253}[^\s,;\"])\s*(?=[,;]|\Z)", re.IGNORECASE)
EXAMPLE = "8 vCPUs, 16 GB, like db-142"


def read(text: str, known: Callable[[str], str | None]) -> dict[str, str]:
    """Fields of the form that the line fills; `known` gives the id of an instance by a name, None = there is none.

    A name with blanks stands in double quotes, or ends at a comma. ValueError says which part is not understood.
    """
    text = text.strip()
    instance = known(text)
    if instance is not None:
        return {"instance": instance}
    fields: dict[str, str] = {}
    at = _skip(text, 0)
    for name, match in _parts(text, known):
        fields[name], at = _value(name, match), _skip(text, match.end())
        if name == "like":
            other = known(fields[name])
            if other is None:
                raise ValueError(f"there is no instance {fields[name]!r} to be like")
            fields[name] = other
    if at < len(text):
        raise ValueError(_complaint(text, text[at:].split(",")[0][:60]))
    return fields


def unfinished(text: str) -> tuple[set[str], int]:
    """Of the line up to the cursor: the fields that are complete, and where the part at the cursor begins."""
    parts = list(_parts(text))
    if parts and parts[-1][1].end() == len(text):
        start = parts.pop()[1].start()
        return {name for name, _ in parts}, start
    at = _skip(text, parts[-1][1].end() if parts else 0)
    mark = max(text.rfind(",", at), text.rfind(";", at)) + 1  # a part that is not understood ends there, too
    return {name for name, _ in parts}, _skip(text, max(at, mark))


def _parts(text: str, known: Callable[[str], object] = lambda _: None) -> Iterator[tuple[str, re.Match[str]]]:
    """Each part with the field that it fills, up to the first that is not understood; a name with blanks counts where
    it is `known`."""
    at = _skip(text, 0)
    while at < len(text):
        long = _LONG_NAME.match(text, at)
        if long and known(long["name"]) is not None:
            part: tuple[str, re.Match[str]] | None = ("like", long)
        else:
            part = next(((name, match) for name, pattern in _PARTS if (match := pattern.match(text, at))), None)
        if part is None:
            return
        yield part
        at = _skip(text, part[1].end())


def _skip(text: str, at: int) -> int:
    """Where the next part begins."""
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _value(name: str, match: re.Match[str]) -> str:
    parts = match.groupdict()
    if name == "memory_mb":
        return f"{float(parts['number']) * _MB[parts['unit'].lower()]:.12g}"
    if name in {"min_throughput_ratio", "max_time_short"} and parts["percent"]:
        return f"{float(parts['number']) / 100:g}"
    if name == "exclusive":
        return "yes"
    if name == "service":
        return parts["name"].lower()
    return parts.get("number") or parts.get("quoted") or parts["name"]


def _complaint(text: str, rest: str) -> str:
    if rest == text and " " not in text:
        return f"there is no instance {rest!r}: for a new one say its size, as in {EXAMPLE!r}"
    return f"cannot read {rest!r}: say it as in {EXAMPLE!r}"
