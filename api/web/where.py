"""The question with its ranked answer, on `/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import OBJECTIVES, Instance, Recommendation, like_another
from advisor.errors import InvalidInput, NotFound
from advisor.service import InventoryService, PlacementService
from api.html.render import page
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.web import one_line, picture, strip
from api.web.answer import RecommendationView, answer
from api.web.cloud import worst_off
from api.web.form import Form

_OFFERED = 500  # instances and workloads in the pick lists; any other name can be typed or asked for through the API


def where(request: Request, cloud: CloudDep, inventory: InventoryDep, placements: PlacementDep) -> HTMLResponse:
    """Where should this instance go? A form and the ranked answer."""
    form = Form.read(request.query_params)
    form.take_line(lambda name: _exists(inventory, name))
    state = cloud.ready()
    found = _ask(form, inventory, placements) if form.asked and not form.errors else None
    told = None if found else cloud.now()
    cells = strip.cells(told.hosts) if told else ()
    return page(
        request,
        "where.html",
        status=422 if form.errors else 200,
        form=form,
        answer=found,
        state=state,
        age=picture.age_in_words,
        instances=[(item.id, item.host) for item in inventory.instances(limit=_OFFERED).items],
        workloads=[item.name for item in inventory.workloads(limit=_OFFERED).items],
        objectives=OBJECTIVES,
        picture=picture,
        cells=cells,
        counts=strip.counts(cells),
        worst=worst_off(told.hosts) if told else (),
        alarms=cloud.alarms() if told else (),
        example=one_line.EXAMPLE,
        named=strip.NAMED,
    )


def _exists(inventory: InventoryService, name: str) -> bool:
    try:
        inventory.instance(name)
    except (NotFound, InvalidInput):
        return False
    return True


def _ask(form: Form, inventory: InventoryService, placements: PlacementService) -> RecommendationView | None:
    try:
        instance = _anew(inventory.instance(form.existing)) if form.existing else form.new_instance()
        if instance is None:
            return None
        if form.values["like"] and not form.existing:
            if not _exists(inventory, form.values["like"]):
                form.errors["like"] = f"there is no instance {form.values['like'][:60]!r}"
                return None
            instance = like_another(instance, inventory.instance(form.values["like"]), form.sized)
        told = placements.place(form.request(instance)).recommendation
        there: Recommendation | None = None
        if instance.host and all(candidate.host != instance.host for candidate in told.candidates):
            # With the best one, so that it is told whether both are tied.
            both = (*(candidate.host for candidate in told.candidates[:1]), instance.host)
            there = placements.place(form.request(instance, hosts=both)).recommendation
    except NotFound as error:
        form.errors["instance"] = error.message
        return None
    except InvalidInput as error:
        form.blame(error)
        return None
    now = (
        next((candidate for candidate in there.candidates if candidate.host == instance.host), None) if there else None
    )
    hosts = [candidate.host for candidate in told.candidates] + ([now.host] if now else [])
    return answer(told, instance, _limits(inventory, hosts), now)


def _anew(instance: Instance) -> Instance:
    """An instance as it may be moved: its pinning speaks of the pCPUs of the host that it leaves."""
    return replace(instance, settings=replace(instance.settings, pinning=None))


def _limits(inventory: InventoryService, hosts: Sequence[str]) -> dict[str, float]:
    """The limits of everybody on these hosts; a neighbour that left meanwhile has none."""
    found = {}
    for host in hosts:
        for neighbour in inventory.instances(host=host, limit=_OFFERED).items:
            if neighbour.min_throughput_ratio is not None:
                found[neighbour.id] = neighbour.min_throughput_ratio
    return found
