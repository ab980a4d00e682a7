"""The questions: what would these do to each other, and where should this go."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response

from advisor.domain import BatchAnswer, BatchSummary, RecommendationSummary, codec
from api.auth import require
from api.http.bodies import OnceDep
from api.routes.common import CountersDep, InventoryDep, OutcomeDep, PathId, PlacementDep
from api.schemas.placements import BatchBody, OutcomeBody, PlacementBody, SceneBody

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
