"""Places new VMs one after another, each on the host and with the settings that a placement advises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from advisor.domain import Host, Instance
from advisor.placement import sequential
from advisor.planning.assignment.allowed_hosts import request_of
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.required_ratios import required_ratios_of
from advisor.prediction.active import ActivePredictor
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot


def place_in_turn(
    snapshot: ClusterSnapshot, chosen: ActivePredictor, goal: Goal, *, now: datetime, fresh_s: float, clock: SearchClock
) -> tuple[Mapping[str, Instance], bool]:
    """New VMs by id with the advised host and settings, and whether all of them were tried.

    Each placement sees the new VMs placed before it. New VMs that no host takes are left out. The loop stops when
    half of the remaining time is used; the second value is then False.

    Instances without a limit of their own get the plan's, so that the ranking protects what the plan must protect. A
    new VM gets the lowest limit over all hosts because its host is not known yet.
    """
    keep_s = clock.left_s / 2
    hosts = list(snapshot.hosts)
    pairs = [
        (host, instance) for host, residents in zip(hosts, snapshot.residents, strict=True) for instance in residents
    ]
    min_ratios = required_ratios_of(pairs, snapshot.scenes.table, goal.keep_ratio).tolist()
    limited_by_id = {
        instance.id: replace(instance, min_throughput_ratio=limit)
        for (_, instance), limit in zip(pairs, min_ratios, strict=True)
    }
    limited_placed = {name: limited_by_id[name] for name in snapshot.names.placed if name in limited_by_id}
    snapshot = snapshot.changed(
        instances=limited_placed,
        seen={},
        pending=[limited_by_id.get(instance.id, instance) for instance in snapshot.names.coming],
        taken_at=snapshot.taken_at,
    )
    advised_by_id: dict[str, Instance] = {}
    context = QuestionContext(chosen, now, fresh_s)
    for instance in goal.new_vms:
        if clock.left_s < keep_s:
            return advised_by_id, False
        request = replace(request_of(_limited(instance, hosts, snapshot, goal), goal, None), limit=1)
        recommendation = sequential.as_it_is(snapshot, context, request)
        if recommendation.candidates:
            step = sequential.there(recommendation)
            advised_by_id[instance.id] = replace(instance, host=step.host, settings=step.settings)
            snapshot = sequential.after(snapshot, step)
    return advised_by_id, True


def _limited(instance: Instance, hosts: Sequence[Host], snapshot: ClusterSnapshot, goal: Goal) -> Instance:
    min_ratios = required_ratios_of([(host, instance) for host in hosts], snapshot.scenes.table, goal.keep_ratio)
    return replace(instance, min_throughput_ratio=float(min_ratios.min()))
