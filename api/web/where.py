"""The question with its ranked answer, on `/`."""

from __future__ import annotations

from collections.abc import Collection

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import Instance, asked_about, like_another
from advisor.errors import InvalidInput, NotFound
from advisor.service import InventoryService, PlacementService
from api.html.render import page
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.web import one_line, scores, strip
from api.web.answer import RecommendationView, answer
from api.web.cloud import known_demand, worst_off
from api.web.form import OBJECTIVE_WORDS, Form

_OFFERED = 500  # instances and workloads in the pick lists; any other name can be typed


def where(request: Request, cloud: CloudDep, inventory: InventoryDep, placements: PlacementDep) -> HTMLResponse:
    """Where should this instance go? A form and the ranked answer."""
    form = Form.read(request.query_params)
    form.take_line(lambda name: _known(inventory, name))
    state = cloud.ready()
    recommendation = _ask(form, inventory, placements) if form.asked and not form.errors else None
    now = None if recommendation else cloud.now()
    cells = strip.cells(now.hosts) if now else ()
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
        cells=cells,
        counts=strip.counts(cells),
        worst=worst_off(now.hosts) if now else (),
        known_demand=known_demand(now.hosts) if now else "",
        alarms=cloud.alarms() if now else (),
        scores=scores.pane(cloud.scores().cloud, cloud.score_history()) if now else None,
        example=one_line.EXAMPLE,
        named=strip.NAMED,
    )


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
        instance = _resident(form.existing, inventory) if form.existing else form.new_instance()
        if instance is None:
            return None
        if form.values["like"] and not form.existing:
            try:
                other = _known(inventory, form.values["like"])
            except ValueError as error:
                form.errors["like"] = str(error)
                return None
            if other is None:
                form.errors["like"] = f"there is no instance {form.values['like'][:60]!r}"
                return None
            instance = like_another(instance, inventory.instance(other), form.sized)
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
