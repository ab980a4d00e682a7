"""Which residents should go to another host: to empty one, or because somebody gains by it beyond uncertainty."""

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
from advisor.snapshot import ClusterSnapshot

# A choice, not a measurement: a live migration takes minutes of copying, so it must promise more than a pin does.
MOVE_GAIN = 0.05


def evacuation(
    snapshot: ClusterSnapshot, context: QuestionContext, host: str, targets: Sequence[str] | None = None
) -> tuple[Move, ...]:
    """Where each resident of a host goes when it is emptied, the largest first and each counting in for the next.

    `targets` None = any other host. A resident that nobody can take has a move without a target that says why.
    """
    position = snapshot.index(host)
    residents = () if position is None else snapshot.residents[position]
    named = [one.id for one in snapshot.hosts] if targets is None else targets
    elsewhere = tuple(name for name in named if name != host)
    moves: list[Move] = []
    for one in sorted(residents, key=lambda one: (-one.memory_mb, -one.vcpus, one.id)):
        answer = sequential.as_it_is(snapshot, context, PlacementRequest(one, hosts=elsewhere, limit=1, explain=False))
        if not answer.candidates:
            moves.append(Move(one.id, host, None, _refusals(answer)))
            continue
        best = answer.candidates[0]
        moves.append(Move(one.id, host, best.host, f"host {host} is to be emptied", score=best.score))
        snapshot = sequential.after(snapshot, sequential.there(answer))
    return tuple(moves)


def improvements(
    snapshot: ClusterSnapshot,
    context: QuestionContext,
    targets: Mapping[str, Sequence[str]],
    *,
    most: int,
    within_s: float,
) -> tuple[Move, ...]:
    """Moves by which the worst-off gain more than MOVE_GAIN and more than is uncertain, at most `most` of them.

    `targets` says which instances may move, and to which hosts each. Hosts where somebody suffers most come first; what
    is not looked at after `within_s` seconds is left as it is.
    """
    until = time.monotonic() + min(within_s, deadline.left_s() / 2)
    moves: list[Move] = []
    for one in _suffering(snapshot, context, targets):
        if len(moves) == most or time.monotonic() > until:
            break
        found = _better(snapshot, context, one, targets[one.id])
        if found is not None:
            move, placed = found
            moves.append(move)
            snapshot = sequential.after(snapshot, placed)
    return tuple(moves)


def _better(
    snapshot: ClusterSnapshot, context: QuestionContext, one: Instance, targets: Sequence[str]
) -> tuple[Move, Instance] | None:
    """The best move of one instance, None where staying is as good as can be told."""
    here = one.host or ""
    elsewhere = tuple(sorted({*targets} - {here}))
    answer = sequential.as_it_is(snapshot, context, PlacementRequest(one, hosts=elsewhere, limit=1, explain=False))
    if not answer.candidates:
        return None
    there = answer.candidates[0].host
    both = sequential.as_it_is(snapshot, context, PlacementRequest(one, hosts=(here, there), limit=2, explain=False))
    by_host = {candidate.host: candidate for candidate in both.candidates}
    if there not in by_host:
        return None
    placed = sequential.there(replace(both, candidates=(by_host[there],)))
    if here not in by_host:
        why = next((no for no in both.rejected if no.host == here), None)
        if why is None or not why.code.startswith("limit."):  # it is there, so capacity alone is no reason to go
            return None
        return Move(one.id, here, there, f"on {here}: {why.reason}", score=by_host[there].score), placed
    gain = by_host[there].score - by_host[here].score
    if gain <= MOVE_GAIN or there in by_host[here].tied_with:
        return None
    text = f"with {one.id} on {there} the worst-off keeps {gain:.2f} more of its speed alone, beyond uncertainty"
    return Move(one.id, here, there, text, score=by_host[there].score, gain=gain), placed


def _suffering(
    snapshot: ClusterSnapshot, context: QuestionContext, targets: Mapping[str, Sequence[str]]
) -> Iterator[Instance]:
    """Residents that may move off hosts where somebody loses enough for a move to pay, worst hosts first.

    What a move away can give back is what is lost there now, but for limits, which are looked at on every host.
    """
    scenes = snapshot.scenes
    if not len(snapshot.hosts) or not scenes.present.any():
        return
    expected = active.ask(context.active, lambda answering: answering.predictor.predict(scenes, ()).throughput.expected)
    worst = np.where(scenes.present, expected, 1.0).min(axis=1, initial=1.0)
    minds = (np.isfinite(snapshot.min_ratio) | np.isfinite(snapshot.max_latency)).sum(axis=1)
    for position in np.argsort(worst, kind="stable").tolist():
        if worst[position] > 1 - MOVE_GAIN and not minds[position]:
            continue
        for one in sorted(snapshot.residents[position], key=lambda one: one.id):
            if one.id in targets and one.id in snapshot.names.placed:
                yield one


def _refusals(answer: Recommendation) -> str:
    """Why nobody takes it, in one sentence."""
    if not answer.rejected:
        return "there is no other host"
    first = answer.rejected[0]
    more = f" (and {len(answer.rejected) - 1} more hosts refuse)" if len(answer.rejected) > 1 else ""
    return f"{first.host}: {first.reason}{more}"
