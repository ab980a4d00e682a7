"""What the model says now of a placement and of the hosts where the instance is not: with the demand known by now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import AlternativeNow, Host, Instance, PlacementWorth, WhyHost
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
        unpinned = replace(self.instance, settings=replace(self.instance.settings, pinning=None))
        (here, staying), (there, others) = self.here, self.there
        return (here, staying), (here, (*staying, self.instance)), (there, others), (there, (*others, unpinned))


def with_alternatives(
    placements: Sequence[PlacementWorth], snapshot: ClusterSnapshot, chosen: ActivePredictor
) -> tuple[PlacementWorth, ...]:
    """The placements with the hosts of their answers and that where most was free, as predicted now, for instances that
    are still where they went."""
    moved = [(at, why, one) for at, told in enumerate(placements) for why, one in _moves(told, snapshot)]
    if not moved:
        return tuple(placements)
    number: dict[_Names, int] = {}
    scenes: dict[int, _Scene] = {}
    for scene in (scene for _, _, one in moved for scene in one.scenes):
        scenes.setdefault(number.setdefault(_names(scene), len(number)), scene)
    batch = build_batch(list(scenes.values()), snapshot.scenes.table)
    said = active.ask(chosen, lambda answering: answering.predictor.predict(batch, ()).throughput.expected)
    known_shares = np.minimum(np.asarray(said, dtype=float), 1.0)
    rows_of = [[number[_names(scene)] for scene in one.scenes] for _, _, one in moved]
    shares = known_shares[np.array(rows_of)]
    found: dict[int, list[AlternativeNow]] = {}
    for (at, why, one), rows in zip(moved, shares, strict=True):
        known = found.setdefault(at, [_here(one, rows)])
        known.append(_there(one, why, rows))
    return tuple(replace(told, alternatives=tuple(found.get(at, ()))) for at, told in enumerate(placements))


def gained(placements: Sequence[PlacementWorth]) -> tuple[int, float, float, float, float] | None:
    """Of those that are not where most was free: how many, their mean share here and there, and that of all others;
    None where there is none such."""
    rows = []
    for one in placements:
        there = next((two for two in one.alternatives if two.why == "most_free"), None)
        if one.heeded == "followed" and there is not None:
            rows.append((one.alternatives[0].share, there.share, there.others_here, there.others))
    if not rows:
        return None
    here, free, others_here, others = np.mean(rows, axis=0).tolist()
    return len(rows), here, free, others_here, others


def _moves(told: PlacementWorth, snapshot: ClusterSnapshot) -> list[tuple[WhyHost, _Moved]]:
    instance = snapshot.names.placed.get(told.instance)
    if instance is None or instance.host != told.host or snapshot.index(told.host) is None:
        return []
    why: dict[str, WhyHost] = dict.fromkeys(told.shown, "answer")
    if told.most_free is not None:
        why[told.most_free] = "most_free"
    here = _without(snapshot, told.host, told.instance)
    resident = next(one for one in _residents(snapshot, told.host) if one.id == told.instance)
    return [
        (reason, _Moved(resident, here, _without(snapshot, host, told.instance)))
        for host, reason in why.items()
        if host != told.host and snapshot.index(host) is not None
    ]


def _names(scene: _Scene) -> _Names:
    """Who is where; the same scene is predicted once."""
    return scene[0].id, *(one.id for one in scene[1])


def _residents(snapshot: ClusterSnapshot, host: str) -> tuple[Instance, ...]:
    at = snapshot.index(host)
    return () if at is None else tuple(snapshot.residents[at])


def _without(snapshot: ClusterSnapshot, host: str, instance: str) -> _Scene:
    there = tuple(one for one in _residents(snapshot, host) if one.id != instance)
    return snapshot.hosts[snapshot.index(host) or 0], there


def _here(one: _Moved, rows: Floats) -> AlternativeNow:
    count = len(one.here[1])
    others = float(rows[1, :count].mean()) if count else 1.0
    return AlternativeNow(one.here[0].id, "here", float(rows[1, count]), others, others)


def _there(one: _Moved, why: WhyHost, rows: Floats) -> AlternativeNow:
    staying, others = len(one.here[1]), len(one.there[1])
    moved = np.concatenate([rows[0, :staying], rows[3, :others]])
    as_it_is = np.concatenate([rows[1, :staying], rows[2, :others]])
    share = float(rows[3, others])
    if not len(moved):
        return AlternativeNow(one.there[0].id, why, share, 1.0, 1.0)
    return AlternativeNow(one.there[0].id, why, share, float(moved.mean()), float(as_it_is.mean()))
