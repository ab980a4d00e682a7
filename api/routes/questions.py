"""The questions: what would these do to each other, and where should this go."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic_core import to_json

from advisor.domain import joint_search_as_json, recommendation_as_json, summary_as_json
from api.auth import require
from api.http.idempotency import OnceDep
from api.routes.common import CountersDep, InventoryDep, OutcomeDep, PathId, PlacementDep
from api.schemas.effects import SceneAnswer, SceneBody
from api.schemas.placements import BatchBody, OutcomeBody, PlacementBody

Summary = Annotated[
    bool,
    Query(
        description="answer in short: the hosts that can take it and the most affected on each; what is stored is whole"
    ),
]


def predict(body: SceneBody, placements: PlacementDep, inventory: InventoryDep, counters: CountersDep) -> SceneAnswer:
    """What co-located instances would do to each other on a host."""
    answer = placements.predict(body.to_domain(inventory.instance))
    counters.predicted(answer)
    return SceneAnswer.of(answer)


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
        text = to_json(summary_as_json(answer.recommendation)) if summary else answer.as_json()
        return _json(text, {"Location": f"/v1/placements/{answer.head.id}"})

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
        search: Any = None
        if body.order == "joint":
            joint = placements.jointly(requests, hold=hold, time_limit_s=body.time_limit_s)
            answers, search = joint.answers, joint_search_as_json(joint.search)
        else:
            answers = placements.in_turn(requests, hold=hold)
        for answer in answers:
            counters.placed(answer, "miss")
        as_json = summary_as_json if summary else recommendation_as_json
        return _json(to_json({"answers": [as_json(answer) for answer in answers], "joint": search}))

    return once(body, work, holds=not body.dry_run)


def placement(placement: PathId, placements: PlacementDep, summary: Summary = False) -> Response:
    """The stored answer to a placement question."""
    as_json = summary_as_json if summary else recommendation_as_json
    return _json(to_json(as_json(placements.get(placement))))


def outcome(placement: PathId, body: OutcomeBody, outcomes: OutcomeDep) -> None:
    """Report what really happened after a placement."""
    outcomes.record(placement, body.host, body.throughput_ratios)


def _json(text: bytes, headers: dict[str, str] | None = None) -> Response:
    """A response of JSON that no schema checks: with many candidates the check took as long as the answer itself."""
    return Response(text, headers=headers, media_type="application/json")
