"""Single moves: where residents go when a host is emptied, and moves whose gain exceeds their uncertainty."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor import deadline
from advisor.domain import Instance, Move, PlacementRequest, Recommendation
from advisor.placement import sequential
from advisor.prediction import active
from advisor.prediction.context import QuestionContext
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot

# A chosen threshold: a live migration copies for minutes, so it must gain more than a pin.
MOVE_GAIN = 0.05


def evacuation(
    snapshot: ClusterSnapshot, context: QuestionContext, host: str, targets: Sequence[str] | None = None
) -> tuple[Move, ...]:
    """Where each resident of a host goes when it is emptied, the largest first; later moves see the earlier ones.

    `targets` None = any other host. A resident that no host takes has a move without a target and with the reason.
    """
    position = snapshot.index(host)
    residents = () if position is None else snapshot.residents[position]
    host_names = [other.id for other in snapshot.hosts] if targets is None else targets
    elsewhere = tuple(name for name in host_names if name != host)
    moves: list[Move] = []
    for instance in sorted(residents, key=lambda instance: (-instance.memory_mb, -instance.vcpus, instance.id)):
        recommendation = sequential.as_it_is(
            snapshot, context, PlacementRequest(instance, hosts=elsewhere, limit=1, explain=False)
        )
        if not recommendation.candidates:
            moves.append(Move(instance.id, host, None, _refusals(recommendation)))
            continue
        best = recommendation.candidates[0]
        moves.append(Move(instance.id, host, best.host, f"host {host} is to be emptied", score=best.score))
        snapshot = sequential.after(snapshot, sequential.there(recommendation))
    return tuple(moves)


def improvements(
    snapshot: ClusterSnapshot,
    context: QuestionContext,
    targets: Mapping[str, Sequence[str]],
    *,
    most: int,
    within_s: float,
) -> tuple[Move, ...]:
    """At most `most` moves by which the worst-off gains more than MOVE_GAIN and more than the uncertainty.

    `targets` maps the instances that may move to their allowed hosts. Hosts with the greatest losses come first. The
    search stops after `within_s` seconds.
    """
    until = time.monotonic() + min(within_s, deadline.left_s() / 2)
    moves: list[Move] = []
    for instance in _suffering(snapshot, context, targets):
        if len(moves) == most or time.monotonic() > until:
            break
        improvement = _better(snapshot, context, instance, targets[instance.id])
        if improvement is not None:
            move, placed = improvement
            moves.append(move)
            snapshot = sequential.after(snapshot, placed)
    return tuple(moves)


def _better(
    snapshot: ClusterSnapshot, context: QuestionContext, instance: Instance, targets: Sequence[str]
) -> tuple[Move, Instance] | None:
    """The best move of one instance, None where no move is certain to be better."""
    here = instance.host or ""
    elsewhere = tuple(sorted({*targets} - {here}))
    answer = sequential.as_it_is(snapshot, context, PlacementRequest(instance, hosts=elsewhere, limit=1, explain=False))
    if not answer.candidates:
        return None
    target = answer.candidates[0].host
    both = sequential.as_it_is(
        snapshot, context, PlacementRequest(instance, hosts=(here, target), limit=2, explain=False)
    )
    by_host = {candidate.host: candidate for candidate in both.candidates}
    if target not in by_host:
        return None
    placed = sequential.there(replace(both, candidates=(by_host[target],)))
    if here not in by_host:
        rejection = next((reason for reason in both.rejected if reason.host == here), None)
        # It runs there, so capacity alone is no reason to move.
        if rejection is None or not rejection.code.startswith("limit."):
            return None
        return Move(instance.id, here, target, f"on {here}: {rejection.reason}", score=by_host[target].score), placed
    new, old = by_host[target], by_host[here]
    gain = new.score - old.score
    if gain <= MOVE_GAIN or scoring.tied(new.expected - old.expected, new.half_width, old.half_width):
        return None
    more = new.expected - old.expected
    text = f"with {instance.id} on {target} the worst-off keeps {more:.2f} more of its speed alone, beyond uncertainty"
    return Move(instance.id, here, target, text, score=new.score, gain=gain), placed


def _suffering(
    snapshot: ClusterSnapshot, context: QuestionContext, targets: Mapping[str, Sequence[str]]
) -> Iterator[Instance]:
    """Movable residents of hosts where somebody loses enough for a move to pay, worst hosts first.

    A move can only give back what is lost now; hosts with limits are always examined.
    """
    scenes = snapshot.scenes
    if not len(snapshot.hosts) or not scenes.present.any():
        return
    expected = active.ask(context.active, lambda answering: answering.predictor.predict(scenes, ()).throughput.expected)
    worst = np.where(scenes.present, expected, 1.0).min(axis=1, initial=1.0)
    limits = (snapshot.min_ratio, snapshot.max_latency, snapshot.max_short)
    has_limits = np.any([np.isfinite(limit).any(axis=1) for limit in limits], axis=0).tolist()
    for position in np.argsort(worst, kind="stable").tolist():
        if worst[position] > 1 - MOVE_GAIN and not has_limits[position]:
            continue
        for instance in sorted(snapshot.residents[position], key=lambda instance: instance.id):
            if instance.id in targets and instance.id in snapshot.names.placed:
                yield instance


def _refusals(recommendation: Recommendation) -> str:
    """Why no host takes it, in one sentence."""
    if not recommendation.rejected:
        return "there is no other host"
    first = recommendation.rejected[0]
    more = f" (and {len(recommendation.rejected) - 1} more hosts refuse)" if len(recommendation.rejected) > 1 else ""
    return f"{first.host}: {first.reason}{more}"
