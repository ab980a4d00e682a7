"""Demand that a plan assumes: of each instance over time, of a day of forecasts, and the cloud's own mix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.domain import Host, Instance, IsolationSettings, PlanFor, PlanRequest, Usage, listed
from advisor.errors import InvalidInput
from advisor.snapshot import ClusterSnapshot
from models.data.demand_classes import DAY_ONE, completed, day_one, from_mean
from models.data.scene import ProfileTable
from profiler.demand import Demand, Resource

# The mix that a cloud has: a few of its own instances that stand for all, in order of their size.

MEMBERS = 8  # each stands for an eighth of the instances
KEPT_LABELS = ("class", "flavor", "flavor_name")  # rules of single instances are not those of new VMs


def own_mix(snapshot: ClusterSnapshot) -> tuple[Instance, ...]:
    """Members of the mix: of all instances in order of vCPUs, memory and mean demand, the middle one of each eighth.

    So the mix has the cloud's own sizes, workloads and measured demand, each in its share. InvalidInput in a cloud
    without instances.
    """
    there = [one for residents in snapshot.residents for one in residents]
    if not there:
        raise InvalidInput("the cloud has no instances to take a mix from; name some", field="instances")
    order = sorted(there, key=lambda one: (one.vcpus, one.memory_mb, _mean(one), one.id))
    count = min(MEMBERS, len(order))
    members = [order[(2 * at + 1) * len(order) // (2 * count)] for at in range(count)]
    return tuple(_template(member) for member in members)


def mix_note(mix: Sequence[Instance]) -> str:
    """Which instances stand for all, as a sentence."""
    return f"The mix is the cloud's own, in order of size: instances like {listed([one.id for one in mix], MEMBERS)}."


def _template(member: Instance) -> Instance:
    labels = {name: text for name, text in member.labels.items() if name in KEPT_LABELS}
    settings: IsolationSettings = replace(member.settings, pinning=None)
    return replace(member, host=None, labels=labels, settings=settings)


def _mean(instance: Instance) -> float:
    cpu = instance.demand.get("cpu")
    return 0.0 if cpu is None else cpu.mean


# Demand as a plan counts it: as it varies, hour by hour, or one amount of it all the time.

SHARES: dict[PlanFor, str] = {"p50": "50 %", "p95": "95 %", "p99": "99 %"}


def as_planned(snapshot: ClusterSnapshot, request: PlanRequest) -> tuple[ClusterSnapshot, PlanRequest]:
    """The cloud and the request where every instance, new VMs too, demands what `plan_for` says, all at the same
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


def planned_demand_note(request: PlanRequest) -> tuple[str, ...]:
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


SATURATED = 0.95  # share of the usable CPUs above which an instance is held back
UPPER_EDGE = 1.645  # standard deviations: a mean is above that with 5 %
MIN_WINDOWS = 360  # an hour at the agent's ten seconds
Measured = Callable[[Sequence[str]], Mapping[str, Usage]]  # instance ids → usage of those that were measured


@dataclass(frozen=True, slots=True)
class CpuPeaks:
    """The CPUs that an instance demands in all but 5 % (`p95`) and 1 % of the time, and where that is known from.

    `steady` = it is known to want as much all the time; `from_mean` = only a mean is known, and these are the upper end
    of what public traces show at such a mean.
    """

    p95: float
    p99: float
    source: str
    steady: bool = False
    from_mean: bool = False

    def short(self, vcpus: int) -> float:
        """The part of the time, 0-1, in which it demands more than so many CPUs.

        Between and beyond both quantiles the part falls exponentially; below the lower one it counts as constant.
        """
        if vcpus < self.p95:
            return 1.0 if self.steady else 0.05
        if self.steady:
            return 0.0
        if self.p99 <= self.p95:
            return 0.0 if vcpus > self.p99 else 0.01
        return float(0.05 * 0.2 ** ((vcpus - self.p95) / (self.p99 - self.p95)))


def cpu_demand(snapshot: ClusterSnapshot, host: Host, instance: Instance, used: Usage | None) -> CpuPeaks | None:
    """What an instance demands of CPU at its peaks; None where too little is known."""
    alone = _alone(snapshot, host, instance)
    if used is not None and used.windows >= MIN_WINDOWS:
        if alone is not None and alone.p95 > used.cpus >= SATURATED * usable_cpus(instance):
            return replace(alone, source=f"{alone.source} and is held at {used.cpus:.2f}")
        source = f"used up to {used.cpus:.2f} CPUs in 95 % of {used.windows} windows"
        if used.p99 is None:
            return CpuPeaks(used.cpus, _likely_p99(used.cpus, instance.vcpus), source)
        return CpuPeaks(used.cpus, used.p99, f"{source}, and {used.p99:.2f} in 99 %")
    return alone


def _alone(snapshot: ClusterSnapshot, host: Host, instance: Instance) -> CpuPeaks | None:
    """What it would use alone; None where too little is known.

    Of a mean alone the peaks are those that public traces show at the upper edge of what is known of it. A profile
    shows no peaks either, except of a workload at full load.
    """
    demand, part = instance.demand.get("cpu"), min(instance.load, 1.0)
    if demand is not None:
        if demand.p95 is None:
            return _of_mean(part * demand.mean, part * demand.doubt, instance.vcpus)
        p95 = demand.p95 * part
        p99 = _likely_p99(p95, instance.vcpus) if demand.p99 is None else demand.p99 * part
        source = f"asks for up to {p95:.2f} CPUs in 95 % of the time by the demand that is known of it"
        return CpuPeaks(p95, p99, source)
    table = snapshot.scenes.table
    row = table.row(instance.workload, host.platform)
    if not row:
        return None
    cpus = float(table.column("cpu")[row]) / 100 * part
    if row in table.means:
        return _of_mean(cpus, 0.0, instance.vcpus)
    return CpuPeaks(cpus, cpus, f"asks for {cpus:.2f} CPUs by its profile", steady=True)


def _of_mean(mean: float, doubt: float, vcpus: int) -> CpuPeaks:
    """The peaks of an instance of which only the mean is known: those of its class at the upper edge of that."""
    known = from_mean(min(mean, float(vcpus)), vcpus)
    most = min(mean + UPPER_EDGE * max(doubt, known.doubt), float(vcpus))
    wide = from_mean(most, vcpus)
    p95 = most if wide.p95 is None else wide.p95
    p99 = _likely_p99(p95, vcpus) if wide.p99 is None else wide.p99
    source = f"has a mean of {mean:.2f} CPUs, with which public traces show up to {p95:.2f} in 95 % of the time"
    return CpuPeaks(p95, p99, source, from_mean=True)


def _likely_p99(p95: float, vcpus: int) -> float:
    """As much above the p95 as it is of machines in public traces, at most all vCPUs, and not below the p95."""
    return max(p95, min(p95 * DAY_ONE.p99 / DAY_ONE.p95, vcpus))


def usable_cpus(instance: Instance) -> float:
    """The CPUs that it may use under its cap."""
    cap = instance.settings.cap_percent
    return instance.vcpus if cap is None else min(instance.vcpus, cap / 100)


def demand_scaled(instance: Instance, factor: float, vcpus: int) -> Mapping[Resource, Demand]:
    """Its demand with that for CPUs multiplied, none of it above `vcpus`; what is not known stays so."""
    cpu = instance.demand.get("cpu")
    if cpu is None or cpu.mean == 0:
        return instance.demand
    mean = min(factor * cpu.mean, vcpus)
    grown = mean / cpu.mean
    p50, p95, p99 = (None if level is None else min(factor * level, vcpus) for level in (cpu.p50, cpu.p95, cpu.p99))
    scaled = replace(cpu, mean=mean, spread=grown * cpu.spread, doubt=grown * cpu.doubt, p50=p50, p95=p95, p99=p99)
    return {**instance.demand, "cpu": scaled}
