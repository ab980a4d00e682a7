"""What may follow in the line that somebody types: names of instances, sizes, units and words that it understands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse

from advisor.domain import Instance
from advisor.service import InventoryService
from api.routes.common import InventoryDep
from api.web import one_line, picture

MOST = 8
_LONGEST = 256  # characters, as of the field
_NAME_AT_END = re.compile(r"(?P<word>like|as|named?|called)\s+(?P<name>\S*)", re.IGNORECASE)
_COUNT = re.compile(r"(?P<number>\d{1,9}(?:[.]\d{0,6})?)\s*(?P<unit>[a-z]*)", re.IGNORECASE)
_UNITS = (("vcpus", "vCPUs"), ("memory_mb", "GB"), ("memory_mb", "MB"), ("memory_mb", "TB"))
_LIMIT = re.compile(
    r"(?:keeps?(?:\s+at least)?|at least|short(?:\s+at most)?)\s+(?P<number>\d{1,9}(?:[.]\d{1,6})?)", re.IGNORECASE
)
_WORDS = (  # field, text that is put in, what it says
    ("like", "like ", "as an instance that is there"),
    ("max_time_short", "short at most 1 %", "of the time less CPU than it wants"),
    ("min_throughput_ratio", "keep at least 90 %", "of the speed that it has alone"),
    ("service", "latency", "what it is sensitive to"),
    ("service", "throughput", "what it is sensitive to"),
    ("exclusive", "alone", "a host for itself"),
    ("id", "named ", "its name"),
)


@dataclass(frozen=True, slots=True)
class LineSuggestion:
    """One way to go on: `text` takes the place of the unfinished part, `about` says what it is."""

    text: str
    about: str


def suggest(
    inventory: InventoryDep, ask: Annotated[str, Query()], of: Literal["line", "instance"] = "line"
) -> JSONResponse:
    """What may follow `ask`, the text before the cursor: `before` is what of it stays, with each suggestion behind it.

    `of` says whether a whole line is typed, or the name of an instance.
    """
    text = ask[:_LONGEST].replace("\0", "")
    said, start = one_line.unfinished(text) if of == "line" else (set[str](), 0)
    part = text[start:]
    found = _of_line(inventory, said, part, first=start == 0) if of == "line" else _instances(inventory, part)
    return JSONResponse({"before": text[:start], "items": [asdict(one) for one in islice(found, MOST)]})


def _of_line(inventory: InventoryService, said: set[str], part: str, *, first: bool) -> Iterator[LineSuggestion]:
    if named := _NAME_AT_END.fullmatch(part):
        if named["word"].lower() in {"like", "as"}:
            for one in _instances(inventory, named["name"]):
                yield LineSuggestion(f"{named['word']} {one.text}", one.about)
        return
    if (limit := _LIMIT.fullmatch(part)) and float(limit["number"]) >= 1:
        yield LineSuggestion(f"{part} %", "per cent")
        return
    if count := _COUNT.fullmatch(part):
        yield from _units(said, count["number"].rstrip("."), count["unit"].lower())
    words = [one for one in _WORDS if one[0] not in said and one[1].startswith(part.lower())]
    yield from (LineSuggestion(text, about) for _, text, about in words if text != part)
    if len(part) > 1 and not said & {"vcpus", "memory_mb"}:
        for size in inventory.flavors(part, limit=MOST // 2):
            yield LineSuggestion(f"{size.vcpus} vCPUs, {picture.memory(size.memory_mb)}", f"flavor {size.name}")
    if first and part:
        yield from _instances(inventory, part)


def _units(said: set[str], number: str, begun: str) -> Iterator[LineSuggestion]:
    for field, unit in _UNITS:
        if field not in said and unit.lower().startswith(begun) and unit.lower() != begun:
            yield LineSuggestion(f"{number} {unit}", "CPUs of it" if field == "vcpus" else "memory")


def _instances(inventory: InventoryService, part: str) -> Iterator[LineSuggestion]:
    for one in inventory.named(part, limit=MOST):
        if one.id != part:
            yield LineSuggestion(one.id, _about(one))


def _about(one: Instance) -> str:
    return f"{picture.size(one)}, {f'on {one.host}' if one.host else 'on no host'}"
