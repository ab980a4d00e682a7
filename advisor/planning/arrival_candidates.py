"""Candidates for the new VMs of a plan: predicted effects on the host that the plan gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.domain import Candidate, Host, Instance, Objective
from advisor.planning.migration_order import ScheduledChange
from advisor.prediction.effects import crowded, effect
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot, share_promised
from models.arrays import Floats
from models.data.scene import affinity_on, build_batch, slot_values, stack
from models.prediction import Predictor

ARRIVALS_PER_PREDICTION = 2048  # new VMs in one prediction
Arrival = tuple[Host, Sequence[Instance], Instance]  # host, its residents, the new VM


def candidates(
    start: ClusterSnapshot, scheduled: Sequence[ScheduledChange], predictor: Predictor, objective: Objective
) -> Mapping[str, Candidate]:
    """The candidate of every new VM at the moment of its step, by id."""
    arrivals = _arrivals(start, scheduled)
    by_id: dict[str, Candidate] = {}
    for first in range(0, len(arrivals), ARRIVALS_PER_PREDICTION):
        by_id |= _predicted(start, arrivals[first : first + ARRIVALS_PER_PREDICTION], predictor, objective)
    return by_id


def _arrivals(start: ClusterSnapshot, scheduled: Sequence[ScheduledChange]) -> list[Arrival]:
    positions = start.names.positions
    now = [{instance.id: instance for instance in residents} for residents in start.residents]
    arrivals: list[Arrival] = []
    for step in scheduled:
        then, former = step.change.then, step.change.former
        at = positions[then.host or ""]
        if former is None:
            arrivals.append((start.hosts[at], tuple(now[at].values()), then))
        else:
            now[positions[former.host or ""]].pop(then.id, None)
        now[at][then.id] = then
    return arrivals


def _predicted(
    start: ClusterSnapshot, arrivals: Sequence[Arrival], predictor: Predictor, objective: Objective
) -> Mapping[str, Candidate]:
    table = start.scenes.table
    absent = build_batch([(host, residents) for host, residents, _ in arrivals], table)
    width = absent.driver_cpus.shape[1]
    slots = [
        slot_values(
            new_vm,
            table.row(new_vm.workload, host.platform),
            affinity_on(host, new_vm, width),
            table.subject(new_vm),
        )
        for host, _, new_vm in arrivals
    ]
    scenes = absent.with_slot(**{name: np.stack([slot[name] for slot in slots]) for name in slots[0]})
    present_before = np.zeros_like(scenes.present)
    present_before[:, :-1] = absent.present
    without_new_vm = scenes.with_last(present=False)
    prediction = predictor.predict(stack([without_new_vm, scenes]))
    count = len(arrivals)
    before, after = prediction.take(slice(count)), prediction.take(slice(count, None))
    former_ratios = np.where(present_before, before.throughput.expected, 1.0)
    half_before = np.where(present_before, before.throughput.expected - before.throughput.lower, 0.0)
    limits = _limits(arrivals, scenes.slots, "min_throughput_ratio")
    waits, shorts = (_limits(arrivals, scenes.slots, name) for name in ("max_latency_ratio", "max_time_short"))
    ceilings = scoring.ceilings(after, before, present_before, waits, shorts)
    vcpu_use = [share_promised(host, (*residents, new_vm)) for host, residents, new_vm in arrivals]
    scores = scoring.score(
        after,
        scenes.present,
        former_ratios,
        limits,
        np.array(vcpu_use),
        objective,
        ceilings,
        half_before,
        scoring.more_short(after.time_short(), np.where(present_before, before.time_short(), 0.0), scenes.profiled),
    )
    by_id = {}
    for row, (host, residents, new_vm) in enumerate(arrivals):
        neighbours = [effect(resident.id, after, row, slot, before) for slot, resident in enumerate(residents)]
        by_id[new_vm.id] = Candidate(
            rank=1,
            host=host.id,
            score=float(scores.score[row]),
            combined_score=float(scores.combined[row]),
            pinning=new_vm.settings.pinning,
            isolation=new_vm.settings,
            new_vm=effect(new_vm.id, after, row, scenes.slots - 1),
            neighbours=tuple(sorted(neighbours, key=lambda shown: shown.instance)),
            crowded=crowded(after, row),
        )
    return by_id


def _limits(arrivals: Sequence[Arrival], slots: int, name: str) -> Floats:
    """A limit of every instance, the new VM in the last slot, nan = none; (S, N)."""
    limits = np.full((len(arrivals), slots), np.nan)
    for row, (_, residents, new_vm) in enumerate(arrivals):
        for slot, instance in (*enumerate(residents), (slots - 1, new_vm)):
            limit = getattr(instance, name)
            limits[row, slot] = np.nan if limit is None else limit
    return limits
