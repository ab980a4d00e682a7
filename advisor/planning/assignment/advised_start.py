"""Newcomers one after another, each on the host and under the settings that a placement advises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from advisor.domain import Host, Instance
from advisor.placement import sequential
from advisor.planning.assignment.allowed_hosts import request_of
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.local_search import Clock
from advisor.planning.required_ratios import least_of
from advisor.prediction.active import ActivePredictor
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot


def in_turn(
    snapshot: ClusterSnapshot, chosen: ActivePredictor, goal: Goal, *, now: datetime, fresh_s: float, clock: Clock
) -> tuple[Mapping[str, Instance], bool]:
    """Newcomers by id as they would run where a placement puts them, those before them counting in; whom nobody takes
    is left out, and so is who comes after half of the time that is left: then False comes with it.

    Whoever has no limit of its own is given the plan's for one, so that the ranking keeps what the plan must keep; a
    newcomer the lowest of all hosts, as nobody knows which will be its own.
    """
    until = clock.left_s / 2
    hosts = list(snapshot.hosts)
    there = [(host, one) for host, residents in zip(hosts, snapshot.residents, strict=True) for one in residents]
    limits = least_of(there, snapshot.scenes.table, goal.keep_ratio).tolist()
    everybody = {
        one.id: replace(one, min_throughput_ratio=limit) for (_, one), limit in zip(there, limits, strict=True)
    }
    standing = {name: everybody[name] for name in snapshot.names.placed if name in everybody}
    snapshot = snapshot.changed(
        instances=standing,
        seen={},
        pending=[everybody.get(one.id, one) for one in snapshot.names.coming],
        taken_at=snapshot.taken_at,
    )
    found: dict[str, Instance] = {}
    context = QuestionContext(chosen, now, fresh_s)
    for one in goal.newcomers:
        if clock.left_s < until:
            return found, False
        request = replace(request_of(_limited(one, hosts, snapshot, goal), goal, None), limit=1)
        answer = sequential.as_it_is(snapshot, context, request)
        if answer.candidates:
            placed = sequential.there(answer)
            found[one.id] = replace(one, host=placed.host, settings=placed.settings)
            snapshot = sequential.after(snapshot, placed)
    return found, True


def _limited(one: Instance, hosts: Sequence[Host], snapshot: ClusterSnapshot, goal: Goal) -> Instance:
    least = least_of([(host, one) for host in hosts], snapshot.scenes.table, goal.keep_ratio)
    return replace(one, min_throughput_ratio=float(least.min()))
