"""Questions one after another on one cloud, each with the former ones carried out and nobody's settings changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from advisor.domain import HostRanking, Instance, PlacementRequest, Recommendation, settings_there
from advisor.placement import decision
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot


def in_turn(
    snapshot: ClusterSnapshot, context: QuestionContext, requests: Sequence[PlacementRequest]
) -> tuple[Recommendation, ...]:
    """One answer per question, in their order; the requests are checked ones.

    Hosts on which a limit breaks as everybody is set are rejected with `limit.settings`.
    """
    answers: list[Recommendation] = []
    for request in requests:
        answer = as_it_is(snapshot, context, request)
        answers.append(answer)
        if answer.candidates and len(answers) < len(requests):
            snapshot = after(snapshot, there(answer))
    return tuple(answers)


def as_it_is(snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest) -> Recommendation:
    """The answer to one question with everybody's settings as they are."""
    return decision.recommend(snapshot, context, replace(request, mend=False))


def ranked_as_it_is(
    snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest, *, told: int
) -> HostRanking:
    """The scores of hosts with everybody's settings as they are, and everything of no more than `told` of them."""
    return decision.rank_hosts(snapshot, context, replace(request, mend=False), told=told)


def there(answer: Recommendation) -> Instance:
    """The instance that was asked about on the first candidate, as it would run there."""
    first, asked = answer.candidates[0], answer.request.instance
    return replace(asked, host=first.host, settings=settings_there(asked, first))


def after(snapshot: ClusterSnapshot, placed: Instance) -> ClusterSnapshot:
    """The same moment with this instance on its host, and nowhere else."""
    return snapshot.changed(
        instances={placed.id: placed}, seen={}, pending=snapshot.names.coming, taken_at=snapshot.taken_at
    )
