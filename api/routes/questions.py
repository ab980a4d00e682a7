"""The questions: what instances do to each other, where one should go, plans, and what the advice brought."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response

from advisor.domain import AdviceWorth, BatchAnswer, BatchSummary, PlanKind, RecommendationSummary, codec
from api.auth import require
from api.http.bodies import OnceDep
from api.routes.common import (
    CellDep,
    CountersDep,
    Cursor,
    InventoryDep,
    Limit,
    OutcomeDep,
    PathId,
    PlacementDep,
    PlanDep,
    SettingsDep,
    check_batch,
)
from api.routes.inventory import Since
from api.schemas.base import PageOut
from api.schemas.placements import BatchBody, OutcomeBody, PlacementBody, PlanAnswer, PlanBody, PlanItem, SceneBody

Summary = Annotated[
    bool,
    Query(
        description="answer in short: the hosts that can take it and the most affected on each; what is stored is whole"
    ),
]


def predict(body: SceneBody, placements: PlacementDep, inventory: InventoryDep, counters: CountersDep) -> Response:
    """What co-located instances would do to each other on a host."""
    answer = placements.predict(body.to_domain(inventory.instance))
    counters.predicted(answer)
    return _json(answer)


def place(
    body: PlacementBody,
    placements: PlacementDep,
    inventory: InventoryDep,
    counters: CountersDep,
    request: Request,
    once: OnceDep,
    summary: Summary = False,
) -> Response:
    """Where should this instance go, so that no VM on that host suffers?

    A dry run needs a token of scope read; an answer that holds its host needs scope write.
    """
    if not body.dry_run:
        require(request, "write")

    def work() -> Response:
        answer = placements.place(body.to_domain(inventory.instance))
        counters.placed(answer.head, answer.source)
        short = codec.answer_text(RecommendationSummary.of(answer.recommendation)) if summary else None
        return _answered(short or answer.as_json(), {"Location": f"/v1/placements/{answer.head.id}"})

    return once(body, work, holds=not body.dry_run)


def place_batch(
    body: BatchBody,
    placements: PlacementDep,
    inventory: InventoryDep,
    counters: CountersDep,
    request: Request,
    once: OnceDep,
    summary: Summary = False,
) -> Response:
    """Where should each of these go? Each answer counts for those after it, so that a burst spreads.

    No settings change: a host where a limit would break with the present settings is rejected. With the order `joint`
    all are answered together, never worse than in the order given; that takes longer. A dry run needs a token of scope
    read and is not stored; answers that hold their hosts need scope write.
    """
    if not body.dry_run:
        require(request, "write")

    def work() -> Response:
        requests, hold = body.requests(inventory.instance), not body.dry_run
        if body.order == "joint":
            joint = placements.jointly(requests, hold=hold, time_limit_s=body.time_limit_s)
            whole = BatchAnswer(tuple(joint.answers), joint.search)
        else:
            whole = BatchAnswer(tuple(placements.in_turn(requests, hold=hold)))
        for answer in whole.answers:
            counters.placed(answer, "miss")
        return _json(BatchSummary.of(whole) if summary else whole)

    return once(body, work, holds=not body.dry_run)


def place_in_cells(body: PlacementBody, cells: CellDep, request: Request, once: OnceDep) -> Response:
    """Where should this instance go, of all the cells that COTENANT_CELLS names?

    Each cell is a service of its own for a part of the cloud. All are asked at once and their answers in short are
    merged; one that does not answer is named in the answer and delays the others by no more than COTENANT_CELLS_WAIT_S.
    A dry run needs a token of scope read here; an answer that holds a host, in the cell of the best candidate, needs
    scope write.
    """
    if not body.dry_run:
        require(request, "write")
    question = body.model_dump(mode="json", exclude_unset=True, by_alias=True)
    return once(
        body, lambda: _json(cells.place(question, limit=body.limit, hold=not body.dry_run)), holds=not body.dry_run
    )


def placement(placement: PathId, placements: PlacementDep, summary: Summary = False) -> Response:
    """The stored answer to a placement question."""
    whole = placements.get(placement)
    return _json(RecommendationSummary.of(whole) if summary else whole)


def outcome(placement: PathId, body: OutcomeBody, outcomes: OutcomeDep) -> None:
    """Report what really happened after a placement."""
    outcomes.record(placement, body.host, body.throughput_ratios)


def _json(answer: Any) -> Response:
    return _answered(codec.answer_text(answer))


def _answered(text: bytes, headers: dict[str, str] | None = None) -> Response:
    """A response of JSON that no schema checks: with many candidates the check took as long as the answer itself."""
    return Response(text, headers=headers, media_type="application/json")


OnlyKind = Annotated[PlanKind | None, Query(description="only plans of this kind")]


def make_plan(
    body: PlanBody, plans: PlanDep, inventory: InventoryDep, settings: SettingsDep, once: OnceDep
) -> Response:
    """What should become of the whole cloud?

    Ordered steps with the predicted effect on every instance before and after. Nothing is carried out and nothing held;
    the answer is kept. Without `kind` the instances are placed.
    """
    check_batch(body.instances, settings, "instances")
    check_batch(body.what_if.hosts if body.what_if else (), settings, "what_if.hosts")

    def work() -> Response:
        plan = plans.make(body.to_domain(inventory.instance))
        return _plan_json(PlanAnswer.of(plan, plans.age(plan)), {"Location": f"/v1/plans/{plan.id}"})

    return once(body, work, holds=False)


def get_plan(plan: PathId, plans: PlanDep) -> Response:
    """A plan that was made.

    `stale` says whether the inventory was written since.
    """
    return _plan_json(PlanAnswer.asked(plans, plan))


def list_plans(
    inventory: InventoryDep, plans: PlanDep, kind: OnlyKind = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[PlanItem]:
    """Plans that were made, newest first; of one kind."""
    page = PlanItem.asked(plans, inventory, kind=kind, cursor=cursor, limit=limit)
    return PageOut(items=list(page.items), next_cursor=page.next_cursor)


def _plan_json(answer: PlanAnswer, headers: dict[str, str] | None = None) -> Response:
    text = codec.answer_text(answer)
    return Response(text, headers=headers, media_type="application/json")


def advice_effect(outcomes: OutcomeDep, since: Since = "7d") -> AdviceWorth:
    """How placements that were asked for fared: followed or not, predicted against measured, and beside others alike.

    From windows that agents measured. A difference between those that are compared is no proof of a cause.
    """
    return outcomes.worth(since=since)
