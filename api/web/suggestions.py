"""Completions of the question in one line: names of instances, sizes, units and words that it understands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse

from advisor.service import InventoryService
from api.html import picture
from api.routes.common import InventoryDep
from api.web import one_line

MOST = 8
_LONGEST = 256  # characters, as of the field
_NAME_AT_END = re.compile(r"(?P<word>like|as|named?|called)\s+(?P<name>\S*)", re.IGNORECASE)
_COUNT = re.compile(r"(?P<number>\d{1,9}(?:[.]\d{0,6})?)\s*(?P<unit>[a-z]*)", re.IGNORECASE)
_UNITS = (("vcpus", "vCPUs"), ("memory_mb", "GB"), ("memory_mb", "MB"), ("memory_mb", "TB"))
_LIMIT = re.compile(
    r"(?:keeps?(?:\s+at least)?|at least|short(?:\s+at most)?)\s+(?P<number>\d{1,9}(?:[.]\d{1,6})?)", re.IGNORECASE
)
_WORDS = (  # field, text to insert, its meaning
    ("like", "like ", "as an instance that is there"),
    ("max_time_short", "short at most 1 %", "contended for at most 1 % of the time"),
    ("min_throughput_ratio", "keep at least 90 %", "of its uncontended speed"),
    ("service", "latency", "what it is sensitive to"),
    ("service", "throughput", "what it is sensitive to"),
    ("exclusive", "alone", "a host for itself"),
    ("id", "named ", "its name"),
)


@dataclass(frozen=True, slots=True)
class LineSuggestion:
    """One completion: `text` replaces the unfinished part, `about` says what it is."""

    text: str
    about: str


def suggest(
    inventory: InventoryDep, ask: Annotated[str, Query()], of: Literal["line", "instance"] = "line"
) -> JSONResponse:
    """Completions of `ask`, the text before the cursor: each of `items` goes behind `before`, which stays.

    `of` says whether a whole line is typed, or the name of an instance.
    """
    text = ask[:_LONGEST].replace("\0", "")
    fields, start = one_line.unfinished(text) if of == "line" else (set[str](), 0)
    part = text[start:]
    items = _of_line(inventory, fields, part, first=start == 0) if of == "line" else _instances(inventory, part)
    return JSONResponse({"before": text[:start], "items": [asdict(item) for item in islice(items, MOST)]})


def _of_line(inventory: InventoryService, fields: set[str], part: str, *, first: bool) -> Iterator[LineSuggestion]:
    """Completions of a part; `fields` are those that the line has already, `first` = the line begins with the part."""
    if named := _NAME_AT_END.fullmatch(part):
        if named["word"].lower() in {"like", "as"}:
            for instance in _instances(inventory, named["name"]):
                yield LineSuggestion(f"{named['word']} {instance.text}", instance.about)
        return
    if (limit := _LIMIT.fullmatch(part)) and float(limit["number"]) >= 1:
        yield LineSuggestion(f"{part} %", "per cent")
        return
    if count := _COUNT.fullmatch(part):
        yield from _units(fields, count["number"].rstrip("."), count["unit"].lower())
    for field, text, about in _WORDS:
        if field not in fields and text.startswith(part.lower()) and text != part:
            yield LineSuggestion(text, about)
    if len(part) > 1 and not fields & {"vcpus", "memory_mb"}:
        for size in inventory.flavors(part, limit=MOST // 2):
            yield LineSuggestion(f"{size.vcpus} vCPUs, {picture.memory(size.memory_mb)}", f"flavor {size.name}")
    if first and part:
        yield from _instances(inventory, part)


def _units(fields: set[str], number: str, typed: str) -> Iterator[LineSuggestion]:
    for field, unit in _UNITS:
        if field not in fields and unit.lower().startswith(typed) and unit.lower() != typed:
            yield LineSuggestion(f"{number} {unit}", "its CPUs" if field == "vcpus" else "its memory")


def _instances(inventory: InventoryService, part: str) -> Iterator[LineSuggestion]:
    for instance in inventory.named(part, limit=MOST):
        if instance.id != part:
            where = f"on {instance.host}" if instance.host else "on no host"
            name = instance.labels.get("name", instance.id)
            known_as = "" if name == instance.id else f"{name}: "
            yield LineSuggestion(instance.id, f"{known_as}{picture.size(instance)}, {where}")
