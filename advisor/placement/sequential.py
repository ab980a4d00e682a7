"""Questions one after another on one cloud, each with the former ones carried out; and where residents go in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from advisor.domain import HostRanking, Instance, Move, PlacementRequest, Recommendation, settings_there, unpinned
from advisor.placement import decision
from advisor.prediction.active import QuestionContext
from advisor.scheduling.pinning import own_profile, with_own_profile
from advisor.snapshot import ClusterSnapshot


def in_turn(
    snapshot: ClusterSnapshot, context: QuestionContext, requests: Sequence[PlacementRequest]
) -> tuple[Recommendation, ...]:
    """One answer per question, in their order; the requests are checked ones.

    Hosts on which a limit breaks as every instance is set are rejected with `limit.settings`.
    """
    turn = Turn(knowing_profiles(snapshot, requests), context)
    return tuple(turn.ask(request) for request in requests)


class Turn:
    """Questions one after another; each answer counts as carried out for the next.

    An instance that must be apart from another one, or was placed beside it, must also when the other one comes later.
    `snapshot` must know the profiles of the requests (`knowing_profiles`).
    """

    def __init__(self, snapshot: ClusterSnapshot, context: QuestionContext) -> None:
        self._snapshot, self._context = snapshot, context
        self._placed: Recommendation | None = (
            None  # not in the snapshot yet: after the last one no instance needs it there
        )
        self._apart: defaultdict[str, list[str]] = defaultdict(list)  # from each instance: those asked about earlier
        self._beside: defaultdict[str, list[str]] = defaultdict(list)

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cloud with all answers carried out."""
        if self._placed is not None:
            self._snapshot, self._placed = after(self._snapshot, there(self._placed)), None
        return self._snapshot

    def ask(self, request: PlacementRequest, planned: str | None = None) -> Recommendation:
        """The next answer: on the host `planned` alone, and on all others only if that refuses or is None."""
        name, constraints = request.instance.id, request.constraints
        mutual = replace(
            constraints,
            anti_affinity=tuple(dict.fromkeys([*constraints.anti_affinity, *self._apart[name]])),
            affinity=tuple(dict.fromkeys([*constraints.affinity, *self._beside[name]])),
        )
        query = replace(request, constraints=mutual)
        answer = None if planned is None else as_it_is(self.snapshot, self._context, replace(query, hosts=(planned,)))
        if answer is None or not answer.candidates:
            answer = as_it_is(self.snapshot, self._context, query)
        answer = replace(answer, request=replace(answer.request, hosts=request.hosts, constraints=constraints))
        for other in constraints.anti_affinity:
            self._apart[other].append(name)
        if answer.candidates:
            self._placed = answer
            for other in constraints.affinity:
                self._beside[other].append(name)
        return answer


def as_it_is(snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest) -> Recommendation:
    """The answer to one question with the present settings."""
    return decision.recommend(snapshot, context, replace(request, mitigate=False))


def ranked_as_it_is(
    snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest, *, detailed: int
) -> HostRanking:
    """The scores of hosts with the present settings, and everything of no more than `detailed` of them."""
    return decision.rank_hosts(snapshot, context, replace(request, mitigate=False), detailed=detailed)


def there(answer: Recommendation) -> Instance:
    """The instance that was asked about on the first candidate, as it would run there."""
    first, new_vm = answer.candidates[0], answer.request.instance
    return replace(with_own_profile(answer.request), host=first.host, settings=settings_there(new_vm, first))


def knowing_profiles(snapshot: ClusterSnapshot, requests: Iterable[PlacementRequest]) -> ClusterSnapshot:
    """The same moment with the new VMs' own profiles among the workloads, so that they keep them when placed."""
    own = {profile.name: profile for profile in map(own_profile, requests) if profile is not None}
    if not own:
        return snapshot
    workloads = (*(workload for workload in snapshot.workloads if workload.name not in own), *own.values())
    return snapshot.changed(workloads=workloads, seen={}, pending=snapshot.names.coming, taken_at=snapshot.taken_at)


def after(snapshot: ClusterSnapshot, placed: Instance) -> ClusterSnapshot:
    """The same moment with this instance on its host, and nowhere else."""
    return snapshot.changed(
        instances={placed.id: placed}, seen={}, pending=snapshot.names.coming, taken_at=snapshot.taken_at
    )


# Where residents go when a host is emptied, in turn.


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
        recommendation = as_it_is(
            snapshot, context, PlacementRequest(unpinned(instance), hosts=elsewhere, limit=1, explain=False)
        )
        if not recommendation.candidates:
            moves.append(Move(instance.id, host, None, _refusals(recommendation)))
            continue
        best = recommendation.candidates[0]
        moves.append(Move(instance.id, host, best.host, f"host {host} is to be emptied"))
        snapshot = after(snapshot, there(recommendation))
    return tuple(moves)


def _refusals(recommendation: Recommendation) -> str:
    """Why no host takes it, in one sentence."""
    if not recommendation.rejected:
        return "there is no other host"
    first = recommendation.rejected[0]
    more = f" (and {len(recommendation.rejected) - 1} more hosts refuse)" if len(recommendation.rejected) > 1 else ""
    return f"{first.host}: {first.reason}{more}"
