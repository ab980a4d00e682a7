"""The instance that is asked about as it stands: on its own host, with the settings that it has there now."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from advisor.domain import Candidate, PlacementRequest
from advisor.placement.candidates import RankedHost, candidates
from advisor.placement.headroom import headroom_of
from advisor.placement.host_classes import PlacementQuestion
from advisor.prediction.context import QuestionContext
from advisor.scheduling import pinning, scoring
from advisor.scheduling.newcomer import profile_row
from advisor.snapshot import ClusterSnapshot


def as_it_stands(
    snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest, found: tuple[Candidate, ...]
) -> Candidate | None:
    """What is predicted of the instance and its neighbours if nothing changes, tied with those of the answers `found`
    that are neither better nor worse beyond the uncertainty; None = it is on no host."""
    placed = snapshot.names.placed.get(request.instance.id)
    position = None if placed is None else snapshot.index(placed.host or "")
    if placed is None or position is None:
        return None
    resident = next(resident for resident in snapshot.residents[position] if resident.id == placed.id)
    same = PlacementRequest(resident, objective=request.objective, limit=1, explain=False, mitigate=False)
    table, row, _ = profile_row(snapshot, same)
    question = PlacementQuestion(snapshot, same, context.active.predictor, table, row)
    held = resident.settings.pinning
    ranked = RankedHost(
        position,
        "as asked" if held is not None and any(held.cpus) else pinning.FREE,
        score=0.0,
        expected=0.0,
        half_width=0.0,
        lowest=np.nan,
        speed=np.nan,
        headroom=headroom_of(question, np.array([position])).of(0),
    )
    (present,) = candidates(question, [ranked], context.active.remembered)
    better = partial(is_better, latency=resident.service == "latency")
    tied = (other.host for other in found if not better(other, present) and not better(present, other))
    return replace(present, tied_with=tuple(tied))


def is_better(one: Candidate, other: Candidate, *, latency: bool) -> bool:
    """Whether the first differs from the other beyond the uncertainty, or an instance there is visibly better off."""
    if one.score <= other.score:
        return False
    if round(one.expected - other.expected, 9) > np.hypot(one.half_width, other.half_width):
        return True
    gain = _lowest(one) - _lowest(other)
    if latency:
        gain = max(gain, 1 / one.new_vm.latency_ratio.expected - 1 / other.new_vm.latency_ratio.expected)
    return bool(gain > scoring.NOTICED)


def _lowest(candidate: Candidate) -> float:
    return min(effect.throughput_ratio.expected for effect in (candidate.new_vm, *candidate.neighbours))
