"""Plans for a whole cloud: a form for each kind, the list, each plan step by step, comparison, download."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse

from advisor.domain import Plan, PlanKind, codec
from advisor.errors import InvalidInput, NotFound
from advisor.service import InventoryService, ModelRegistry, PlanService
from api.html.render import page, see_other
from api.routes.common import CloudDep, Cursor, InventoryDep, ModelDep, PathId, PlanDep, SettingsDep, check_batch
from api.schemas.base import ID_PATTERN
from api.schemas.plans import PlanAnswer
from api.web import plan_view
from api.web.forms import Posted
from api.web.plan_fields import FIELDS, KINDS, MIX_ROWS
from api.web.plan_form import PlanForm

_ROWS = 25
_OFFERED = 1000  # names in the browser's lists; any other name can be typed
OtherPlan = Annotated[str, Query(pattern=ID_PATTERN, min_length=1, max_length=255)]


def listing(
    request: Request, inventory: InventoryDep, plans: PlanDep, kind: PlanKind | None = None, cursor: Cursor = None
) -> HTMLResponse:
    """Plans, newest first, all or those of one kind."""
    entries = plans.page(kind=kind, cursor=cursor, limit=_ROWS)
    return page(
        request,
        "plans.html",
        rows=entries.items,
        next_cursor=entries.next_cursor,
        first=cursor is None,
        kind=kind,
        kinds=KINDS,
        generation=inventory.generation(),
    )


def asking(request: Request, inventory: InventoryDep, models: ModelDep) -> HTMLResponse:
    """The form for one kind of question; an address may fill some of it in."""
    return _form(request, inventory, models, PlanForm.read(request.query_params, sent=False))


def make(
    request: Request, inventory: InventoryDep, models: ModelDep, plans: PlanDep, settings: SettingsDep, form: Posted
) -> Response:
    """Make the plan, keep it, and go on to its page."""
    question = PlanForm.read(form, sent=True)
    plan_request = question.request(inventory.host)
    if plan_request is None:
        return _form(request, inventory, models, question)
    try:
        check_batch(plan_request.instances, settings, "instances")
        check_batch(plan_request.what_if.hosts if plan_request.what_if else (), settings, "what_if.hosts")
        plan = plans.make(plan_request)
    except InvalidInput as error:
        question.blame(error)
        return _form(request, inventory, models, question)
    except NotFound as error:  # the model of an imagined cloud: the advisor alone looks it up
        question.errors["model"] = error.message
        return _form(request, inventory, models, question)
    return see_other(f"/plans/{plan.id}")


def show(request: Request, plan: PathId, plans: PlanDep, cloud: CloudDep) -> HTMLResponse:
    """A plan: what becomes of the cloud, the steps by stage, before and after, how the search ended."""
    stored = plans.get(plan)
    drawn, others = plan_view.hosts(stored)
    document, tables = plans.document(stored)
    age = plans.age(stored)
    mapped = stored.request.kind == "tune" and age.stale is False
    return page(
        request,
        "plan.html",
        plan=stored,
        document=document,
        tables=[table for table in tables if table.name != "sums"],  # drawn with what got better
        kind=KINDS[stored.request.kind],
        age=age,
        maps=plan_view.maps(stored, cloud.now()) if mapped else (),
        stages=plan_view.stages(stored.steps),
        refused=plan_view.refused(stored),
        undo=plan_view.stages(stored.undo),
        sums=plan_view.sums(stored.sums_before, stored.sums_after),
        hosts=drawn,
        others=others,
        beside=[entry for entry in plans.page(limit=_ROWS).items if entry.id != stored.id],
        kinds=KINDS,
    )


def compare(request: Request, plans: PlanDep, a: OtherPlan, b: OtherPlan) -> HTMLResponse:
    """Two plans beside each other."""
    first, second = plans.get(a), plans.get(b)
    return page(
        request,
        "plan_compare.html",
        plans=[_side(plans, plan) for plan in (first, second)],
        rows=plan_view.sums(first.sums_after, second.sums_after),
        differences=plan_view.differences(first, second),
        same_cloud=first.generation == second.generation,
    )


def report(plan: PathId, plans: PlanDep) -> Response:
    """The report as one file that needs no other."""
    return _file(plans.report_html(plan), "text/html; charset=utf-8", f"cotenant-plan-{plan}.html")


def data(plan: PathId, plans: PlanDep) -> Response:
    """A plan as `GET /v1/plans/{plan}` answers it, without its age; `report` holds the words and figures of its report.

    The age is left out because a file would keep it while it changes.
    """
    content = codec.answer_values(PlanAnswer.of(plans.get(plan))) | {"report": plans.report_data(plan)}
    return _file(json.dumps(content, allow_nan=False), "application/json", f"cotenant-plan-{plan}.json")


def _file(text: str, kind: str, name: str) -> Response:
    # Never shown in place: the report brings its own style, which the policy of the pages forbids.
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _form(request: Request, inventory: InventoryService, models: ModelRegistry, form: PlanForm) -> HTMLResponse:
    return page(
        request,
        "plan_new.html",
        status=422 if form.errors else 200,
        form=form,
        kinds=KINDS,
        fields=FIELDS,
        labels={name: field.label for name, field in FIELDS.items()},
        mix_rows=MIX_ROWS,
        lists={
            "hosts": [host.id for host in inventory.hosts(limit=_OFFERED).items],
            "instances": [item.id for item in inventory.instances(limit=_OFFERED).items],
            "workloads": sorted({item.name for item in inventory.workloads(limit=_OFFERED).items}),
            "models": [model.version for model in models.listing()],
        },
    )


def _side(plans: PlanService, plan: Plan) -> dict[str, object]:
    moves = sum(1 for step in plan.steps if step.action == "move" and step.host)
    stages = len(plan_view.stages(plan.steps))
    return {
        "plan": plan,
        "document": plans.document(plan)[0],
        "moves": moves,
        "stages": stages,
        "kind": KINDS[plan.request.kind][0],
    }
