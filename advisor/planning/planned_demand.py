"""Demand as a plan counts it: as it varies, hour by hour, or one amount of it all the time."""

from __future__ import annotations

from dataclasses import replace

from advisor.domain import Instance, PlanFor, PlanRequest
from advisor.snapshot import ClusterSnapshot
from models.data.demand_classes import completed, day_one, from_mean
from models.data.scene import ProfileTable
from profiler.demand import Demand, Resource

SHARES: dict[PlanFor, str] = {"p50": "50 %", "p95": "95 %", "p99": "99 %"}


def as_planned(snapshot: ClusterSnapshot, request: PlanRequest) -> tuple[ClusterSnapshot, PlanRequest]:
    """The cloud and the request where every instance, new VMs too, wants what `plan_for` says, all at the same
    time."""
    if request.plan_for == "hours":
        return snapshot, request
    table, names = snapshot.scenes.table, snapshot.names
    by_name = {
        resident.id: _at(resident, request.plan_for, table)
        for residents in snapshot.residents
        for resident in residents
    }
    placed = {
        name: replace(instance, demand=by_name[name].demand)
        for name, instance in names.placed.items()
        if name in by_name
    }
    coming = tuple(_at(snapshot.with_class(instance), request.plan_for, table) for instance in names.coming)
    new_vms = tuple(_at(snapshot.with_class(instance), request.plan_for, table) for instance in request.instances)
    planned = snapshot.changed(instances=placed, seen={}, pending=coming, taken_at=snapshot.taken_at)
    return planned, replace(request, instances=new_vms)


def note(request: PlanRequest) -> tuple[str, ...]:
    """What `plan_for` makes of demand, as a sentence."""
    if request.plan_for == "hours":
        return ()
    share = SHARES.get(request.plan_for)
    amount = f"the demand that is enough in {share} of its own time" if share else "its mean demand"
    return (
        f"Each instance counts with {amount}, at all times and without its hours of the day; a workload with a profile "
        "counts with that.",
    )


def _at(instance: Instance, plan_for: PlanFor, table: ProfileTable) -> Instance:
    known = {resource: completed(demand, instance.vcpus) for resource, demand in instance.demand.items()}
    if "cpu" not in known and (guess := _guess(instance, table)) is not None:
        known["cpu"] = guess
    demand: dict[Resource, Demand] = {resource: _constant(each, plan_for) for resource, each in known.items()}
    return replace(instance, demand=demand)


def _guess(instance: Instance, table: ProfileTable) -> Demand | None:
    """The demand that is assumed where nothing, or only a mean, is known; None for a measured profile."""
    row = table.row(instance.workload)
    if not row:
        return day_one(instance.vcpus)
    if row not in table.means:
        return None
    return from_mean(min(float(table.column("cpu")[row]) / 100, instance.vcpus), instance.vcpus)


def _constant(demand: Demand, plan_for: PlanFor) -> Demand:
    """That amount of a demand all the time; a demand of which windows are counted is not widened again."""
    amount = demand.mean if plan_for == "mean" else getattr(demand, plan_for)
    amount = demand.mean if amount is None else amount
    doubt = demand.doubt * amount / demand.mean if demand.mean else demand.doubt
    return Demand(amount, demand.resource, window_s=demand.window_s, common=0.0, windows=1.0, doubt=doubt,
                  open_loop=demand.open_loop, burst_ms=demand.burst_ms)  # fmt: skip
