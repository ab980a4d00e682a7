"""The first page: where an instance should go, and names that it suggests while one is typed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, JSONResponse

from advisor.domain import CloudGlance, Instance, asked_about
from advisor.errors import InvalidInput, NotFound
from advisor.service import InventoryService, PlacementService
from api.html import picture
from api.html.render import page
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.web import chart, form, worth
from api.web.cloud import known_demand, worst_off
from api.web.form import FIELDS, LINE_EXAMPLE, OBJECTIVE_WORDS, Form
from api.web.placements import RecommendationView, answer

# Completions of the question in one line: names of instances, sizes, units and words that it understands.

MOST = 8
_LONGEST = 256  # characters, as of the field
_NAME_AT_END = re.compile(r"(?P<word>like|as|named?|called)\s+(?P<name>\S*)", re.IGNORECASE)
_COUNT = re.compile(r"(?P<number>\d{1,9}(?:[.]\d{0,6})?)\s*(?P<unit>[a-z]*)", re.IGNORECASE)
_UNITS = (("vcpus", "vCPUs"), ("memory_mb", "GB"), ("memory_mb", "MB"), ("memory_mb", "TB"))
_LIMIT = re.compile(
    r"(?:keeps?(?:\s+at least)?|at least|short(?:\s+at most)?)\s+(?P<number>\d{1,9}(?:[.]\d{1,6})?)", re.IGNORECASE
)
_WORDS = (  # field, text to insert, its meaning
    ("like", "like ", "like an existing instance"),
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
    fields, start = form.unfinished_line(text) if of == "line" else (set[str](), 0)
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


_OFFERED = 500  # instances and workloads in the pick lists; any other name can be typed


def where(request: Request, cloud: CloudDep, inventory: InventoryDep, placements: PlacementDep) -> HTMLResponse:
    """Where should this instance go? A form and the ranked answer."""
    form = Form.read(request.query_params)
    form.take_line(lambda name: _known(inventory, name))
    state = cloud.ready()
    recommendation = _ask(form, inventory, placements) if form.asked and not form.errors else None
    glance = None if recommendation else cloud.glance()
    now = glance.now if glance else None
    cells = chart.strip_cells(now.hosts) if now else ()
    return page(
        request,
        "where.html",
        status=422 if form.errors else 200,
        form=form,
        answer=recommendation,
        state=state,
        instances=[(item.id, item.host) for item in inventory.instances(limit=_OFFERED).items],
        workloads=[item.name for item in inventory.workloads(limit=_OFFERED).items],
        objectives=OBJECTIVE_WORDS,
        fields=FIELDS,
        cells=cells,
        counts=chart.strip_counts(cells),
        worst=worst_off(now.hosts) if now else (),
        known_demand=known_demand(now.hosts) if now else "",
        alarms=cloud.alarms() if now else (),
        scores=worth.score_pane(glance.scores.cloud, cloud.score_history()) if glance and glance.scores else None,
        shown=now,
        predicting=_predicting(glance, cloud.clock()) if glance else "",
        example=LINE_EXAMPLE,
        named=chart.NAMED,
    )


def _predicting(glance: CloudGlance, now: datetime) -> str:
    """What is shown while the state of now is being predicted, as a sentence; empty where it is shown."""
    if glance.part is None:
        return ""
    if glance.scores is None:
        return f"The effects on all instances are being predicted: {glance.part:.0%} of the hosts are done."
    return f"State of {picture.age_since(glance.scores.time, now)} ago; it is being predicted anew."


def _known(inventory: InventoryService, name: str) -> str | None:
    """The id of the instance that goes by this name, None = none does; ValueError where several do."""
    try:
        return inventory.find_instance(name).id
    except NotFound:
        return None
    except InvalidInput as error:
        raise ValueError(error.message) from None


def _ask(form: Form, inventory: InventoryService, placements: PlacementService) -> RecommendationView | None:
    try:
        instance = _resident(form.existing, inventory) if form.existing else _new(form, inventory)
        if instance is None:
            return None
        recommendation = placements.place(form.request(instance)).recommendation
    except NotFound as error:
        form.errors["instance"] = error.message
        return None
    except InvalidInput as error:
        form.blame(error)
        return None
    shown = (*recommendation.candidates, *recommendation.tuned, *filter(None, [recommendation.present]))
    limits = _limits(inventory, {candidate.host for candidate in shown})
    return answer(recommendation, instance, limits)


def _new(form: Form, inventory: InventoryService) -> Instance | None:
    """The new instance that was typed; the one that it is like may be named by its name, too."""
    if like := form.values["like"]:
        try:
            other = _known(inventory, like)
        except ValueError as error:
            form.errors["like"] = str(error)
            return None
        if other is None:
            form.errors["like"] = f"there is no instance {like[:60]!r}"
            return None
        form.values["like"] = other
    return form.new_instance(inventory.instance)


def _resident(name: str, inventory: InventoryService) -> Instance:
    """The instance of the inventory that goes by this name; NotFound where none does."""
    return asked_about(inventory.find_instance(name).id, {}, inventory.instance)


def _limits(inventory: InventoryService, hosts: Collection[str]) -> dict[str, float]:
    """The lowest ratios that instances on these hosts accept, where they have one."""
    return {
        neighbour.id: neighbour.min_throughput_ratio
        for host in hosts
        for neighbour in inventory.instances(host=host, limit=_OFFERED).items
        if neighbour.min_throughput_ratio is not None
    }
