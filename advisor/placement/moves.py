"""Where residents go when a host is emptied, in turn."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.domain import Move, PlacementRequest, Recommendation, unpinned
from advisor.placement import sequential
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot


def evacuation(
    snapshot: ClusterSnapshot, context: QuestionContext, host: str, targets: Sequence[str] | None = None
) -> tuple[Move, ...]:
    """Where each resident of a host goes when it is emptied, the largest first; later moves see the earlier ones.

    Its pinning names pCPUs of the host that it leaves, so it is asked for without.

    `targets` None = any other host. A resident that no host takes has a move without a target and with the reason.
    """
    position = snapshot.index(host)
    residents = () if position is None else snapshot.residents[position]
    host_names = [other.id for other in snapshot.hosts] if targets is None else targets
    elsewhere = tuple(name for name in host_names if name != host)
    moves: list[Move] = []
    for instance in sorted(residents, key=lambda instance: (-instance.memory_mb, -instance.vcpus, instance.id)):
        recommendation = sequential.as_it_is(
            snapshot, context, PlacementRequest(unpinned(instance), hosts=elsewhere, limit=1, explain=False)
        )
        if not recommendation.candidates:
            moves.append(Move(instance.id, host, None, _refusals(recommendation)))
            continue
        best = recommendation.candidates[0]
        moves.append(Move(instance.id, host, best.host, f"host {host} is to be emptied"))
        snapshot = sequential.after(snapshot, sequential.there(recommendation))
    return tuple(moves)


def _refusals(recommendation: Recommendation) -> str:
    """Why no host takes it, in one sentence."""
    if not recommendation.rejected:
        return "there is no other host"
    first = recommendation.rejected[0]
    more = f" (and {len(recommendation.rejected) - 1} more hosts refuse)" if len(recommendation.rejected) > 1 else ""
    return f"{first.host}: {first.reason}{more}"
