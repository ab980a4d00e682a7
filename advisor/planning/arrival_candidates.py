"""How those who are placed stand on the host that a plan gives them: as candidates, with everybody there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.domain import Band, Candidate, Effect, Host, Instance, Objective
from advisor.planning.cloud_evaluation import band
from advisor.planning.migration_order import Carried
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.scene import build_batch, slot_values, stack
from models.prediction import BandArrays as Bands
from models.prediction import InterferencePrediction, Predictor

AT_ONCE = 2048  # newcomers in one prediction
Arrival = tuple[Host, Sequence[Instance], Instance]  # where, who is there already, who comes


def candidates(
    start: ClusterSnapshot, carried: Sequence[Carried], predictor: Predictor, objective: Objective
) -> Mapping[str, Candidate]:
    """The candidate of everybody who comes, at the moment of its step, by id."""
    arrivals = _arrivals(start, carried)
    found: dict[str, Candidate] = {}
    for first in range(0, len(arrivals), AT_ONCE):
        found |= _asked(start, arrivals[first : first + AT_ONCE], predictor, objective)
    return found


def _arrivals(start: ClusterSnapshot, carried: Sequence[Carried]) -> list[Arrival]:
    positions = start.names.positions
    now = [{one.id: one for one in there} for there in start.residents]
    arrivals: list[Arrival] = []
    for one in carried:
        then, former = one.change.then, one.change.former
        at = positions[then.host or ""]
        if former is None:
            arrivals.append((start.hosts[at], tuple(now[at].values()), then))
        else:
            now[positions[former.host or ""]].pop(then.id, None)
        now[at][then.id] = then
    return arrivals


def _asked(
    start: ClusterSnapshot, arrivals: Sequence[Arrival], predictor: Predictor, objective: Objective
) -> Mapping[str, Candidate]:
    table = start.scenes.table
    absent = build_batch([(host, there) for host, there, _ in arrivals], table)
    width = absent.driver_cpus.shape[1]
    slots = [
        slot_values(comes, table.row(comes.workload, host.platform), host.pcpus, width) for host, _, comes in arrivals
    ]
    scenes = absent.with_slot(**{name: np.stack([slot[name] for slot in slots]) for name in slots[0]})
    nobody = np.zeros_like(scenes.present)
    nobody[:, :-1] = absent.present
    gone = scenes.with_last(present=False)
    told = predictor.predict(stack([gone, scenes]))
    count = len(arrivals)
    before, after = _rows(told, slice(count)), _rows(told, slice(count, None))
    former = np.where(nobody, before.throughput.expected, 1.0)
    limits = _limits(arrivals, scenes.slots, "min_throughput_ratio")
    waiting = scoring.Waiting(
        _limits(arrivals, scenes.slots, "max_latency_ratio"), np.where(nobody, before.latency.expected, 1.0)
    )
    promised = [sum(one.vcpus for one in (*there, comes)) / host.pcpus for host, there, comes in arrivals]
    scores = scoring.score(after, scenes.present, former, limits, np.array(promised), objective, waiting)
    found = {}
    for row, (host, there, comes) in enumerate(arrivals):
        neighbours = [
            _effect(one.id, after, row, slot, band(before.throughput, row, slot)) for slot, one in enumerate(there)
        ]
        found[comes.id] = Candidate(
            rank=1,
            host=host.id,
            score=float(scores.score[row]),
            combined_score=float(scores.combined[row]),
            pinning=comes.settings.pinning,
            isolation=comes.settings,
            newcomer=_effect(comes.id, after, row, scenes.slots - 1, None),
            neighbours=tuple(sorted(neighbours, key=lambda effect: effect.instance)),
        )
    return found


def _rows(told: InterferencePrediction, rows: slice) -> InterferencePrediction:
    throughput, latency, jitter = (
        Bands(one.expected[rows], one.lower[rows], one.upper[rows])
        for one in (told.throughput, told.latency, told.jitter)
    )
    return InterferencePrediction(throughput, latency, jitter, told.outside[rows])


def _limits(arrivals: Sequence[Arrival], slots: int, name: str) -> Floats:
    """A limit of everybody, the newcomer in the last slot, nan = none; (S, N)."""
    found = np.full((len(arrivals), slots), np.nan)
    for row, (_, there, comes) in enumerate(arrivals):
        for slot, one in (*enumerate(there), (slots - 1, comes)):
            limit = getattr(one, name)
            found[row, slot] = np.nan if limit is None else limit
    return found


def _effect(name: str, told: InterferencePrediction, row: int, slot: int, before: Band | None) -> Effect:
    return Effect(
        instance=name,
        throughput_ratio=band(told.throughput, row, slot),
        latency_ratio=band(told.latency, row, slot),
        jitter_ratio=band(told.jitter, row, slot),
        before=before,
        outside_training=bool(told.outside[row, slot]),
    )
