"""The pages of plans: the list, the forms, one plan with its moves and what they bring."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse

from advisor.domain import CloudNow, CpuMap, Effect, Plan, PlanKind, PlanStep, PlanSums, codec, cpu_map
from advisor.errors import InvalidInput, NotFound
from advisor.service import InventoryService, ModelRegistry, PlanService
from api.html import picture
from api.html.render import page, see_other
from api.routes.common import CloudDep, Cursor, InventoryDep, ModelDep, PathId, PlanDep, SettingsDep, check_batch
from api.schemas.base import ID_PATTERN
from api.schemas.placements import PlanAnswer
from api.web.plan_form import FIELDS, KINDS, MIX_ROWS, PlanForm
from api.web.signing import Posted

# A plan laid out for reading: its steps by stage, hosts before and after as drawings, two plans beside each other.

_MAPPED = 8  # hosts whose CPUs are drawn before and after a tuning
_DRAWN = 40  # hosts with a drawing; the others are counted
_SCORES = ("score", "score_lowest")
_RISING = ("worst", "mean", "total", *_SCORES)  # sums of a cloud of which more is better
_NAMES = {
    "hosts_used": "Hosts used",
    "instances": "Instances",
    "below": "Below their limit",
    "worst": "Worst ratio",
    "mean": "Mean ratio",
    "total": "Sum of ratios",
    "score": "Mean score",
    "score_lowest": "Lowest score",
}


@dataclass(frozen=True, slots=True)
class HostDrawing:
    """One host before and after: the places of its ratios in the drawing, and the same in words."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    worst_before: float | None
    worst_after: float | None
    words: str


@dataclass(frozen=True, slots=True)
class SumRow:
    """One figure of the cloud before and after; `better` None = neither."""

    name: str
    before: str
    after: str
    better: bool | None


def plan_stages(steps: Sequence[PlanStep]) -> list[tuple[int, list[PlanStep]]]:
    """Steps that may run together, in order; those that cannot be done are left out."""
    ordered = sorted((step for step in steps if step.host or step.action == "remove"), key=lambda step: step.stage)
    return [(number, list(group)) for number, group in groupby(ordered, key=lambda step: step.stage)]


def plan_refusals(plan: Plan) -> list[PlanStep]:
    """What no host can take."""
    return [step for step in plan.steps if step.host is None and step.action != "remove"]


def plan_maps(plan: Plan, now: CloudNow) -> list[tuple[str, CpuMap, CpuMap, frozenset[int]]]:
    """Of the first hosts that a tuning changes: the name, its CPUs before and after, and which of them differ."""
    known = {one.host.id: one for one in now.hosts}
    drawn = []
    for name in list(dict.fromkeys(step.host for step in plan.steps if step.host in known))[:_MAPPED]:
        before = known[name or ""]
        host, there = before.host, {one.instance.id: one.instance for one in before.residents}
        for step in (step for step in plan.steps if step.host == name):
            if step.action == "driver_domain":
                host = replace(host, driver_cpus=() if step.driver_cpus == host.shared_cpus else step.driver_cpus)
            elif step.settings is not None and step.instance in there:
                there[step.instance] = replace(there[step.instance], settings=step.settings)
        first = cpu_map(before.host, [one.instance for one in before.residents])
        then = cpu_map(host, list(there.values()))
        drawn.append((host.id, first, then, first.differing(then)))
    return drawn


def plan_hosts(plan: Plan) -> tuple[list[HostDrawing], int]:
    """The hosts that change, those that end worst first, and how many others are not drawn."""
    names = sorted({*plan.before, *plan.after})
    drawings = [_drawing(name, plan.before.get(name, ()), plan.after.get(name, ())) for name in names]
    changed = [drawing for drawing in drawings if drawing.before != drawing.after]
    changed.sort(key=lambda drawing: (1.0 if drawing.worst_after is None else drawing.worst_after, drawing.name))
    shown = changed[:_DRAWN]
    return shown, len(drawings) - len(shown)


def plan_sums(before: PlanSums | None, after: PlanSums | None) -> list[SumRow]:
    """The cloud's figures side by side; empty where they are the same, or one is not known."""
    if before is None or after is None or before == after:
        return []
    pairs = [(name, title, getattr(before, name), getattr(after, name)) for name, title in _NAMES.items()]
    return [_sum(name, title, old, new) for name, title, old, new in pairs if old is not None and new is not None]


def plan_differences(a: Plan, b: Plan) -> list[tuple[str, str, str]]:
    """The instances that two plans treat differently: name, and what becomes of it in each."""
    first, second = _ends(a), _ends(b)
    names = sorted({*first, *second})
    rows = [(name, first.get(name, "stays"), second.get(name, "stays")) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _drawing(name: str, before: Sequence[Effect], after: Sequence[Effect]) -> HostDrawing:
    old, new = ([effect.throughput_ratio.expected for effect in effects] for effects in (before, after))
    words = f"{name}: before, {_in_words(old)}; after, {_in_words(new)}"
    return HostDrawing(name, _marks(old), _marks(new), min(old, default=None), min(new, default=None), words)


def _marks(ratios: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted(picture.x(ratio) for ratio in ratios))


def _in_words(ratios: Sequence[float]) -> str:
    if not ratios:
        return "empty"
    return f"{len(ratios)} instance{'s' if len(ratios) > 1 else ''}, the most affected at {100 * min(ratios):.0f} %"


def _sum(name: str, title: str, before: float, after: float) -> SumRow:
    form = "{:.0f}" if name in _SCORES else "{:.2f}" if name in _RISING else "{:,}"
    old, new = form.format(before), form.format(after)
    neutral = name == "instances" or old == new
    return SumRow(title, old, new, None if neutral else (after > before) == (name in _RISING))


def _ends(plan: Plan) -> Mapping[str, str]:
    ends: dict[str, str] = {}
    for step in plan.steps:
        size = f"{step.vcpus} vCPU{'s' if step.vcpus > 1 else ''}" if step.vcpus else ""
        place = f"to {step.host}" if step.action in {"place", "move"} and step.host else ""
        other = "no host" if step.host is None else "other settings" if step.action == "settings" else ""
        if not step.instance:
            continue
        ends[step.instance] = ", ".join(filter(None, (place, size, other))) or ends.get(step.instance, "stays")
    return ends


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
    drawn, others = plan_hosts(stored)
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
        maps=plan_maps(stored, cloud.now()) if mapped else (),
        stages=plan_stages(stored.steps),
        refused=plan_refusals(stored),
        undo=plan_stages(stored.undo),
        sums=plan_sums(stored.sums_before, stored.sums_after),
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
        rows=plan_sums(first.sums_after, second.sums_after),
        differences=plan_differences(first, second),
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
    stages = len(plan_stages(plan.steps))
    return {
        "plan": plan,
        "document": plans.document(plan)[0],
        "moves": moves,
        "stages": stages,
        "kind": KINDS[plan.request.kind][0],
    }
