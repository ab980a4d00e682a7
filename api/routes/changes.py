"""Changes that are carried out: rollouts with their ledger, approvals, and the freeze switch."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.exceptions import HTTPException

from advisor.domain import RolloutState
from advisor.errors import NotFound
from api.routes.common import (
    CallerDep,
    ChangeDep,
    Cursor,
    Limit,
    MaintenanceDep,
    OrderDep,
    PathId,
    PathName,
    PlacementDep,
    PlanDep,
)
from api.schemas.base import Id, PageOut, Schema, examples
from api.schemas.changes import FreezeBody, FreezeOut, MaintenanceOut, OrderOut, OrdersBody, OrdersOut, RolloutOut

OnlyState = Annotated[RolloutState | None, Query(description="only rollouts in this state")]


class RolloutBody(Schema):
    """What is to be carried out."""

    model_config = examples({"source": "0199d1c2a3b4-0123456789"})

    source: Id = Field(description="the id of a stored plan or answer")


def make(body: RolloutBody, changes: ChangeDep, plans: PlanDep, placements: PlacementDep) -> RolloutOut:
    """The changes that carry out a stored plan or answer, for the cloud as it is now.

    Nothing is carried out: the rollout waits for an approval, and for `cotenant apply`.
    """
    try:
        rollout = changes.of_plan(plans.get(body.source))
    except NotFound:
        rollout = changes.of_answer(placements.get(body.source))
    return RolloutOut.of(changes.store(rollout))


def get(rollout: PathId, changes: ChangeDep) -> RolloutOut:
    """A rollout: its changes, how far they came, what they brought, and every line of its ledger."""
    return RolloutOut.of(changes.get(rollout))


def listing(
    changes: ChangeDep, state: OnlyState = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[RolloutOut]:
    """Rollouts, newest first; of one state."""
    page = changes.page(state=state, cursor=cursor, limit=limit)
    return PageOut(items=[RolloutOut.of(one) for one in page.items], next_cursor=page.next_cursor)


def approve(rollout: PathId, changes: ChangeDep) -> RolloutOut:
    """Approve a rollout that is planned; `cotenant apply` carries it out."""
    return RolloutOut.of(changes.approve(rollout))


def orders(body: OrdersBody, orders: OrderDep, caller: CallerDep) -> OrdersOut:
    """What the agent of a host is to do: signed orders, which it asks for again and again.

    Only agents that may change settings ask, with a token of scope act for their host. The service has no key: it
    passes orders and reports on as they are.
    """
    if caller.host != body.host:
        raise HTTPException(403, f"this token is for the agent of host {caller.host}, not of {body.host}")
    found = orders.exchange(body.host, body.to_domain())
    return OrdersOut(orders=[OrderOut(text=one.text, signature=one.signature) for one in found])


def frozen(changes: ChangeDep) -> FreezeOut:
    """Whether changes are frozen, by which user and why."""
    return FreezeOut.of(changes.frozen())


def freeze(body: FreezeBody, changes: ChangeDep) -> FreezeOut:
    """Freeze changes: none is applied until they are thawed; applied ones can be undone."""
    return FreezeOut.of(changes.freeze(body.reason))


def thaw(changes: ChangeDep) -> None:
    """Let changes be applied again."""
    changes.thaw()


def in_maintenance(maintenance: MaintenanceDep) -> list[MaintenanceOut]:
    """The hosts whose maintenance was begun and not ended."""
    return [MaintenanceOut.of(one) for one in maintenance.listing()]


def maintenance_of(host: PathName, maintenance: MaintenanceDep) -> MaintenanceOut:
    """How far the maintenance of a host is, and which instances are still there."""
    return MaintenanceOut.of(maintenance.of(host))


def start_maintenance(host: PathName, maintenance: MaintenanceDep) -> RolloutOut:
    """The rollout that closes a host in its scheduler and moves its instances where a plan to empty it says.

    Nothing is carried out: it waits for an approval, and for `cotenant apply`.
    """
    return RolloutOut.of(maintenance.start(host))


def end_maintenance(host: PathName, maintenance: MaintenanceDep) -> RolloutOut:
    """The rollout that lets a host take new instances again; it waits for an approval and `cotenant apply`, too."""
    return RolloutOut.of(maintenance.end(host))
