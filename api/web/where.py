"""The question with its ranked answer, on `/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import OBJECTIVES, Candidate, Instance, like_another
from advisor.errors import InvalidInput, NotFound
from advisor.service import InventoryService, PlacementService
from api.html.render import page
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.web import one_line, strip
from api.web.answer import RecommendationView, answer
from api.web.cloud import worst_off
from api.web.form import Form

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
        objectives=OBJECTIVES,
        cells=cells,
        counts=strip.counts(cells),
        worst=worst_off(now.hosts) if now else (),
        alarms=cloud.alarms() if now else (),
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
        instance = _unpinned(inventory.find_instance(form.existing)) if form.existing else form.new_instance()
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
        hosts = [candidate.host for candidate in recommendation.candidates]
        present: Candidate | None = None
        if instance.host and instance.host not in hosts:
            # Asked together with the best host, so that the answer says whether both are tied.
            both = placements.place(form.request(instance, hosts=(*hosts[:1], instance.host))).recommendation
            present = next((candidate for candidate in both.candidates if candidate.host == instance.host), None)
    except NotFound as error:
        form.errors["instance"] = error.message
        return None
    except InvalidInput as error:
        form.blame(error)
        return None
    limits = _limits(inventory, [*hosts, present.host] if present else hosts)
    return answer(recommendation, instance, limits, present)


def _unpinned(instance: Instance) -> Instance:
    """The instance as it may be moved: its pinning names pCPUs of the host that it leaves."""
    return replace(instance, settings=replace(instance.settings, pinning=None))


def _limits(inventory: InventoryService, hosts: Sequence[str]) -> dict[str, float]:
    """The lowest ratios that instances on these hosts accept, where they have one."""
    return {
        neighbour.id: neighbour.min_throughput_ratio
        for host in hosts
        for neighbour in inventory.instances(host=host, limit=_OFFERED).items
        if neighbour.min_throughput_ratio is not None
    }
