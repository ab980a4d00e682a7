"""What the model predicts now for a placement and for hosts where the instance is not, with the demand known by now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import AlternativeNow, Host, Instance, PlacementWorth, WhyHost, unpinned
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.scene import build_batch

_Scene = tuple[Host, tuple[Instance, ...]]
_Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Moved:
    """An instance that is on one host and might be on another: both without it, the other one with it."""

    instance: Instance
    here: _Scene
    there: _Scene

    @property
    def scenes(self) -> tuple[_Scene, ...]:
        coming = unpinned(self.instance)
        (here, staying), (there, others) = self.here, self.there
        return (here, staying), (here, (*staying, self.instance)), (there, others), (there, (*others, coming))


def with_alternatives(
    placements: Sequence[PlacementWorth], snapshot: ClusterSnapshot, chosen: ActivePredictor
) -> tuple[PlacementWorth, ...]:
    """The placements with the hosts of their answers and that where most was free, as predicted now, for instances that
    are still where they went."""
    moves = [(at, why, move) for at, placed in enumerate(placements) for why, move in _moves(placed, snapshot)]
    if not moves:
        return tuple(placements)
    scenes: dict[_Names, _Scene] = {_names(scene): scene for _, _, move in moves for scene in move.scenes}
    number = {names: at for at, names in enumerate(scenes)}
    batch = build_batch(list(scenes.values()), snapshot.scenes.table)
    predicted = active.ask(chosen, lambda answering: answering.predictor.predict(batch, ()).throughput.expected)
    scene_shares = np.minimum(np.asarray(predicted, dtype=float), 1.0)
    rows_of = [[number[_names(scene)] for scene in move.scenes] for _, _, move in moves]
    alternatives: dict[int, list[AlternativeNow]] = {}
    for (at, why, move), rows in zip(moves, scene_shares[np.array(rows_of)], strict=True):
        alternatives.setdefault(at, [_here(move, rows)]).append(_there(move, why, rows))
    return tuple(replace(placed, alternatives=tuple(alternatives.get(at, ()))) for at, placed in enumerate(placements))


def gained(placements: Sequence[PlacementWorth]) -> tuple[int, float, float, float, float] | None:
    """Of those that are not where most was free: how many, their mean share here and there, and that of all others;
    None where there is none such."""
    rows = []
    for placement in placements:
        freest = next((alternative for alternative in placement.alternatives if alternative.why == "most_free"), None)
        if placement.heeded == "followed" and freest is not None:
            rows.append((placement.alternatives[0].share, freest.share, freest.others_here, freest.others))
    if not rows:
        return None
    here, free, others_here, others = np.mean(rows, axis=0).tolist()
    return len(rows), here, free, others_here, others


def _moves(placement: PlacementWorth, snapshot: ClusterSnapshot) -> list[tuple[WhyHost, _Moved]]:
    instance = snapshot.names.placed.get(placement.instance)
    if instance is None or instance.host != placement.host or snapshot.index(placement.host) is None:
        return []
    why: dict[str, WhyHost] = dict.fromkeys(placement.shown, "answer")
    if placement.most_free is not None:
        why[placement.most_free] = "most_free"
    here = _without(snapshot, placement.host, placement.instance)
    resident = next(guest for guest in _residents(snapshot, placement.host) if guest.id == placement.instance)
    return [
        (reason, _Moved(resident, here, _without(snapshot, host, placement.instance)))
        for host, reason in why.items()
        if host != placement.host and snapshot.index(host) is not None
    ]


def _names(scene: _Scene) -> _Names:
    """Who is where; the same scene is predicted once."""
    return scene[0].id, *(instance.id for instance in scene[1])


def _residents(snapshot: ClusterSnapshot, host: str) -> tuple[Instance, ...]:
    at = snapshot.index(host)
    return () if at is None else tuple(snapshot.residents[at])


def _without(snapshot: ClusterSnapshot, host: str, instance: str) -> _Scene:
    others = tuple(other for other in _residents(snapshot, host) if other.id != instance)
    return snapshot.hosts[snapshot.index(host) or 0], others


def _here(move: _Moved, rows: Floats) -> AlternativeNow:
    count = len(move.here[1])
    others = float(rows[1, :count].mean()) if count else 1.0
    return AlternativeNow(move.here[0].id, "here", float(rows[1, count]), others, others)


def _there(move: _Moved, why: WhyHost, rows: Floats) -> AlternativeNow:
    staying, others = len(move.here[1]), len(move.there[1])
    moved = np.concatenate([rows[0, :staying], rows[3, :others]])
    as_it_is = np.concatenate([rows[1, :staying], rows[2, :others]])
    share = float(rows[3, others])
    if not len(moved):
        return AlternativeNow(move.there[0].id, why, share, 1.0, 1.0)
    return AlternativeNow(move.there[0].id, why, share, float(moved.mean()), float(as_it_is.mean()))
