"""Plans: what should become of the whole cloud, the plans that were made, and how old they are."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from advisor.domain import PlanKind, codec
from api.http.bodies import OnceDep
from api.routes.common import Cursor, InventoryDep, Limit, PathId, PlanDep, SettingsDep, check_batch
from api.schemas.base import PageOut
from api.schemas.plans import PlanAnswer, PlanBody, PlanItem

OnlyKind = Annotated[PlanKind | None, Query(description="only plans of this kind")]


def make(body: PlanBody, plans: PlanDep, inventory: InventoryDep, settings: SettingsDep, once: OnceDep) -> Response:
    """What should become of the whole cloud?

    Ordered steps with the predicted effect on every instance before and after. Nothing is carried out and nothing held;
    the answer is kept. Without `kind` the instances are placed.
    """
    check_batch(body.instances, settings, "instances")
    check_batch(body.what_if.hosts if body.what_if else (), settings, "what_if.hosts")

    def work() -> Response:
        plan = plans.make(body.to_domain(inventory.instance))
        return _json(PlanAnswer.of(plan, plans.age(plan)), {"Location": f"/v1/plans/{plan.id}"})

    return once(body, work, holds=False)


def get(plan: PathId, plans: PlanDep) -> Response:
    """A plan that was made.

    `stale` says whether the inventory was written since.
    """
    return _json(PlanAnswer.asked(plans, plan))


def listing(
    inventory: InventoryDep, plans: PlanDep, kind: OnlyKind = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[PlanItem]:
    """Plans that were made, newest first; of one kind."""
    page = PlanItem.asked(plans, inventory, kind=kind, cursor=cursor, limit=limit)
    return PageOut(items=list(page.items), next_cursor=page.next_cursor)


def _json(answer: PlanAnswer, headers: dict[str, str] | None = None) -> Response:
    text = codec.answer_text(answer)
    return Response(text, headers=headers, media_type="application/json")
