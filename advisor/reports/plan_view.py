"""A plan for display: each host with its instances before and after; numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from advisor.domain import Band, Effect, Instance, Inventory, Plan, PlanStep, is_guessed, rests_on
from advisor.planning.required_ratios import required_ratios_of
from advisor.rounding import SLACK
from models.data.scene import ProfileTable

SLOWED = 0.05  # T/B: who loses less than this to others is not shown one by one
MAX_PICTURES = 12  # beyond them the tables say more


@dataclass(frozen=True, slots=True)
class InstanceLimit:
    """The limits of an instance: the lowest T/B, its own or the plan's, the highest latency ratio, and the longest part
    of the time short of CPU, inf = any."""

    throughput: float
    latency: float
    time_short: float = math.inf

    def broken(self, effect: Effect) -> bool:
        """Whether it is violated by expectation, as `PlanSums.below` counts it."""
        expected, late = effect.throughput_ratio.expected, effect.latency_ratio.expected
        short = 0.0 if effect.cpu is None else effect.cpu.short
        return expected < self.throughput - SLACK or late > self.latency + SLACK or short > self.time_short + SLACK

    def near(self, effect: Effect) -> bool:
        """Whether it is violated only at an edge of the interval."""
        least, latest = effect.throughput_ratio.lower, effect.latency_ratio.upper
        return not self.broken(effect) and (least < self.throughput - SLACK or latest > self.latency + SLACK)


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """An instance on a host before and after the plan; None = absent then."""

    instance: str
    before: Band | None
    after: Effect | None
    limit: InstanceLimit
    comes: bool
    goes: bool

    @property
    def change(self) -> float:
        """The change of T/B, also by a move; 0 for one that was not there before or is not afterwards."""
        if self.before is None or self.after is None:
            return 0.0
        return self.after.throughput_ratio.expected - self.before.expected

    @property
    def below_limit(self) -> bool:
        return self.after is not None and self.limit.broken(self.after)

    @property
    def may_break(self) -> bool:
        """Whether its limit holds by expectation but not at an edge of the interval."""
        return self.after is not None and self.limit.near(self.after)


@dataclass(frozen=True, slots=True)
class HostRows:
    """A host with every instance on it before or after, the worst-off first."""

    name: str
    rows: tuple[InstanceRow, ...]

    @property
    def changed(self) -> bool:
        return any(row.comes or row.goes for row in self.rows)

    @property
    def worst(self) -> float:
        """The lowest expected T/B on the host, now or afterwards."""
        before = (row.before.expected for row in self.rows if row.before is not None and not row.comes)
        return min((*before, *(ratio(row) for row in self.rows)), default=1.0)


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with its origin and the neighbour that loses most."""

    step: PlanStep
    origin: str | None
    loser: Effect | None
    loss: float


def afterwards(plan: Plan) -> str:
    """When the figures behind the plan hold, in words."""
    return {"capacity": "with all that fits", "what_if": "in the imagined cloud"}.get(
        plan.request.kind, "after the plan"
    )


def when(plan: Plan) -> str:
    """When the figures of a section that shows both clouds hold, in words."""
    return "now" if unchanged(plan) else f"now and {afterwards(plan)}"


def unchanged(plan: Plan) -> bool:
    """Whether a plan leaves every instance where it is with the same T/B."""
    before, after = (
        {
            host: {effect.instance: effect.throughput_ratio for effect in host_effects}
            for host, host_effects in effects.items()
        }
        for effects in (plan.before, plan.after)
    )
    return before == after


def hosts(inventory: Inventory, plan: Plan) -> tuple[HostRows, ...]:
    """Every host of the plan, by name."""
    limit_of = limits(inventory, plan)
    names = sorted({*plan.before, *plan.after})
    return tuple(_host(name, plan.before.get(name, ()), plan.after.get(name, ()), limit_of) for name in names)


def limits(inventory: Inventory, plan: Plan) -> Callable[[str], InstanceLimit]:
    """The limit of an instance by its name on the host where it ends.

    A further copy of a mix (`advisor.planning.size_capacity`) has the limit of the instance that it copies.
    """
    known = {instance.id: instance for instance in (*plan.request.instances, *inventory.instances)}
    sized = {step.instance: step.settings for step in plan.steps if step.settings is not None}
    hosts = {host.id: host for host in inventory.hosts}
    host_of = {
        effect.instance: hosts.get(name)
        for effects in (plan.before, plan.after)
        for name, there in effects.items()
        for effect in there
    }
    table = ProfileTable.build(inventory.workloads)

    def copied_from(name: str) -> Instance | None:
        return known.get(name) or known.get(name.rpartition(".more-")[0])

    placed = [
        (name, host, replace(instance, settings=sized.get(name, instance.settings)))
        for name, host in host_of.items()
        if host is not None and (instance := copied_from(name)) is not None
    ]
    pairs = [(host, instance) for _, host, instance in placed]
    lowest = required_ratios_of(pairs, table, plan.request.keep_ratio).tolist()
    least = {name: limit for (name, _, _), limit in zip(placed, lowest, strict=True)}

    def of(name: str) -> InstanceLimit:
        instance = copied_from(name)
        latest, longest = (instance.max_latency_ratio, instance.max_time_short) if instance else (None, None)
        return InstanceLimit(
            least.get(name, plan.request.keep_ratio),
            math.inf if latest is None else latest,
            math.inf if longest is None else longest,
        )

    return of


def _host(
    name: str, before: Sequence[Effect], after: Sequence[Effect], limit_of: Callable[[str], InstanceLimit]
) -> HostRows:
    was = {effect.instance: effect.throughput_ratio for effect in before}
    then = {effect.instance: effect for effect in after}
    rows = [
        InstanceRow(
            instance=instance,
            # one that moved here keeps the ratio it had elsewhere, so that the move can be judged
            before=was.get(instance) or (then[instance].before if instance in then else None),
            after=then.get(instance),
            limit=limit_of(instance),
            comes=instance not in was,
            goes=instance not in then,
        )
        for instance in sorted({*was, *then})
    ]
    return HostRows(name, tuple(sorted(rows, key=ratio)))


def ratio(row: InstanceRow) -> float:
    """The expected T/B after the plan, else before it."""
    if row.after is not None:
        return row.after.throughput_ratio.expected
    return row.before.expected if row.before is not None else 1.0


def worth_a_picture(hosts: Sequence[HostRows], plan: Plan) -> tuple[HostRows, ...]:
    """Hosts with slowed instances, now or afterwards, of those that the plan changes, else of all; the worst ones."""
    chosen = {step.host for step in plan.steps}
    slowed = [host for host in hosts if host.rows and host.worst < 1 - SLOWED]
    eligible = [host for host in slowed if host.changed or host.name in chosen] or slowed
    shown = {host.name for host in sorted(eligible, key=lambda host: host.worst)[:MAX_PICTURES]}
    return tuple(host for host in eligible if host.name in shown)


def steps(inventory: Inventory, plan: Plan) -> tuple[StepView, ...]:
    """The steps in their order."""
    origins = {instance.id: instance.host for instance in inventory.instances}
    return tuple(_step(step, origins.get(step.instance)) for step in plan.steps)


def _step(step: PlanStep, origin: str | None) -> StepView:
    losses = [(_loss(effect), effect) for effect in step.neighbours]
    loss, loser = max(losses, key=lambda pair: pair[0], default=(0.0, None))
    return StepView(step, origin, loser, loss)


def _loss(effect: Effect) -> float:
    return effect.before.expected - effect.throughput_ratio.expected if effect.before else 0.0


def known_demand(inventory: Inventory) -> tuple[str, ...]:
    """What a statement that no instance is affected rests on, where not all demand is known."""
    profiled = {workload.name for workload in inventory.workloads}
    there = [is_guessed(instance, profiled) for instance in inventory.instances if instance.host is not None]
    return tuple(filter(None, [rests_on(sum(there), len(there))]))
