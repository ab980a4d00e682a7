"""A plan laid out for reading: each host with its instances before and after; numbers only, no words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.domain import Band, Effect, Inventory, Plan, PlanStep

MAX_PICTURES = 24  # beyond them the tables say more


@dataclass(frozen=True, slots=True)
class Row:
    """One instance on a host: what held before the plan and what holds after it; None = it is not there then."""

    instance: str
    before: Band | None
    after: Effect | None
    limit: float | None
    comes: bool
    goes: bool

    @property
    def change(self) -> float:
        """What the plan adds to the throughput ratio of an instance that stays; 0 for the others."""
        if self.comes or self.before is None or self.after is None:
            return 0.0
        return self.after.throughput_ratio.expected - self.before.expected

    @property
    def below_limit(self) -> bool:
        return bool(self.limit and self.after and self.after.throughput_ratio.expected < self.limit)


@dataclass(frozen=True, slots=True)
class HostRows:
    """A host with everybody who is there before or after, the worst-off first."""

    name: str
    rows: tuple[Row, ...]

    @property
    def changed(self) -> bool:
        return any(row.comes or row.goes for row in self.rows)

    @property
    def worst(self) -> float:
        return min((_ratio(row) for row in self.rows), default=1.0)


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with what its reader asks next: from where, and who of the neighbours loses the most."""

    step: PlanStep
    origin: str | None
    loser: Effect | None
    loss: float


def hosts(inventory: Inventory, plan: Plan) -> tuple[HostRows, ...]:
    """Every host of the plan, by name."""
    limits = {one.id: one.min_throughput_ratio for one in inventory.instances}
    names = sorted({*plan.before, *plan.after})
    return tuple(_host(name, plan.before.get(name, ()), plan.after.get(name, ()), limits) for name in names)


def _host(name: str, before: Sequence[Effect], after: Sequence[Effect], limits: Mapping[str, float | None]) -> HostRows:
    was = {effect.instance: effect.throughput_ratio for effect in before}
    then = {effect.instance: effect for effect in after}
    rows = [
        Row(
            instance=instance,
            # one that moved here keeps the ratio it had elsewhere, so that the move can be judged
            before=was.get(instance) or (then[instance].before if instance in then else None),
            after=then.get(instance),
            limit=limits.get(instance),
            comes=instance not in was,
            goes=instance not in then,
        )
        for instance in sorted({*was, *then})
    ]
    return HostRows(name, tuple(sorted(rows, key=_ratio)))


def _ratio(row: Row) -> float:
    if row.after is not None:
        return row.after.throughput_ratio.expected
    return row.before.expected if row.before is not None else 1.0


def worth_a_picture(hosts: Sequence[HostRows], plan: Plan) -> tuple[HostRows, ...]:
    """The hosts that the plan chooses or empties, else all that hold somebody; where too many, the worst."""
    chosen = {step.host for step in plan.steps}
    found = [host for host in hosts if host.rows and (host.changed or host.name in chosen)]
    found = found or [host for host in hosts if host.rows]
    kept = {host.name for host in sorted(found, key=lambda host: host.worst)[:MAX_PICTURES]}
    return tuple(host for host in found if host.name in kept)


def steps(inventory: Inventory, plan: Plan) -> tuple[StepView, ...]:
    """The steps in their order."""
    origins = {instance.id: instance.host for instance in inventory.instances}
    return tuple(_step(step, origins.get(step.instance)) for step in plan.steps)


def _step(step: PlanStep, origin: str | None) -> StepView:
    losses = [(_loss(effect), effect) for effect in (step.candidate.neighbours if step.candidate else ())]
    loss, loser = max(losses, key=lambda pair: pair[0], default=(0.0, None))
    return StepView(step, origin, loser, loss)


def _loss(effect: Effect) -> float:
    return effect.before.expected - effect.throughput_ratio.expected if effect.before else 0.0
