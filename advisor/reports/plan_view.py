"""A plan for display: each host before and after, and on demand what it rests on: pressure and interference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from advisor.domain import (
    SCORE_BUCKETS,
    Band,
    CloudScores,
    Effect,
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    Plan,
    PlanStep,
    PlanSums,
    ScorePoint,
    is_guessed,
    rests_on,
)
from advisor.explanation.comparison import AttributedLoss, attribute_interference
from advisor.planning.cloud_evaluation import required_ratios_of
from advisor.planning.cpu_demand import as_planned, demand_scaled
from advisor.reports.parts import Column, Table, count
from advisor.rounding import SLACK
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure
from models.data.scene import ProfileTable
from models.prediction import Predictor

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
    """A host with every instance on it before or after, the most affected first."""

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

    A further copy of a mix (`advisor.planning.capacity`) has the limit of the instance that it copies.
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


# Background of a plan, computed on demand: pressure on every host, interference, and the model's card.

Pressures = Mapping[str, Mapping[str, float | None]]
Effects = Mapping[str, Sequence[Effect]]


@dataclass(frozen=True, slots=True)
class Background:
    """Background figures of a plan.

    They are pressure by host and resource and interference (`harm_before`, `harm_after`), each before and after it, and
    the `card` of the model that answered; empty parts were not computed, and `notes` say why. `scores` are those of VMs
    as they stand, with what is kept of the cloud's.
    """

    before: Pressures = field(default_factory=dict)
    after: Pressures = field(default_factory=dict)
    harm_before: tuple[AttributedLoss, ...] = ()
    harm_after: tuple[AttributedLoss, ...] = ()
    card: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scores: CloudScores | None = None
    score_history: tuple[ScorePoint, ...] = ()


def of_plan(
    inventory: Inventory, plan: Plan, predictor: Predictor | None, card: Mapping[str, Any] | None = None
) -> Background:
    """The background of a plan on the cloud that it was made for, with the demand that the plan counts.

    Interference is computed only by the model that made the plan.
    """
    notes: list[str] = []
    now, then = (_cloud(inventory, plan, afterwards=afterwards) for afterwards in (False, True))
    harm_before: tuple[AttributedLoss, ...] = ()
    harm_after: tuple[AttributedLoss, ...] = ()
    if predictor is None or predictor.version != plan.model_version:
        notes.append("Antagonists are left out: the model that made this plan is not the active one.")
    else:
        harm_before = attribute_interference(_snapshot(now, plan), predictor, worst_first(plan.before))
        if unchanged(plan):
            harm_after = harm_before
        elif plan.request.what_if is not None and plan.request.what_if.pinning == "own":
            notes.append(
                "Antagonists in the imagined cloud are left out: the plan does not keep the pCPUs that it "
                "gives to each instance."
            )
        else:
            harm_after = attribute_interference(_snapshot(then, plan), predictor, worst_first(plan.after))
    lost = {effect.instance for effects in plan.after.values() for effect in effects} - {
        instance.id for instance in then.instances
    }
    if lost:
        notes.append(
            f"Of {count(len(lost), 'instance')} only the name is known; pressure and harm after the plan do not count "
            f"{'it' if len(lost) == 1 else 'them'}."
        )
    return Background(
        before=pressure(_snapshot(now, plan)),
        after=pressure(_snapshot(then, plan)),
        harm_before=harm_before,
        harm_after=harm_after,
        card=card or {},
        notes=tuple(notes),
    )


def worst_first(effects: Effects) -> list[str]:
    """Used hosts by the lowest expected T/B on them, then by name."""
    worst = {
        host: min(effect.throughput_ratio.expected for effect in host_effects)
        for host, host_effects in effects.items()
        if host_effects
    }
    return sorted(worst, key=lambda host: (worst[host], host))


def _snapshot(inventory: Inventory, plan: Plan) -> ClusterSnapshot:
    seen = dict.fromkeys((host.id for host in inventory.hosts), plan.created_at)
    there = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=plan.created_at)
    return as_planned(there, plan.request)[0]


def _cloud(inventory: Inventory, plan: Plan, *, afterwards: bool) -> Inventory:
    """The cloud with every instance where the plan has them before or after it, with the settings of that time."""
    effects, settings = (plan.after, _settings(plan)) if afterwards else (plan.before, {})
    hosts = {host.id: host for host in inventory.hosts}
    what_if = plan.request.what_if
    if what_if is not None:  # an imagined host with a known id replaces it only afterwards
        imagined = {host.id: host for host in what_if.hosts}
        hosts = hosts | imagined if afterwards else imagined | hosts
    there: list[Host] = [hosts[name] for name in sorted(effects) if name in hosts]
    known = {instance.id: instance for instance in (*plan.request.instances, *inventory.instances)}
    unpinned = afterwards and what_if is not None and what_if.pinning == "unpinned"
    placed = []
    for host in there:
        for effect in effects[host.id]:
            # A further copy of a mix is known by the instance that it copies.
            instance = known.get(effect.instance) or known.get(effect.instance.rpartition(".more-")[0])
            if instance is not None:
                new = settings.get(effect.instance, (None, None))
                placed.append(_set(replace(instance, id=effect.instance), new, host, unpinned=unpinned))
    return replace(inventory, hosts=tuple(there), instances=tuple(placed))


def _set(
    instance: Instance, new: tuple[IsolationSettings | None, int | None], host: Host, *, unpinned: bool
) -> Instance:
    settings, vcpus = new
    settings = settings or (instance.settings if instance.host == host.id else replace(instance.settings, pinning=None))
    if unpinned or (settings.pinning and host.lacks(settings.pinning.named)):
        settings = replace(settings, pinning=None)
    vcpus = vcpus or instance.vcpus
    demand = demand_scaled(instance, 1.0, vcpus)
    return replace(instance, host=host.id, settings=settings, vcpus=vcpus, demand=demand)


def _settings(plan: Plan) -> Mapping[str, tuple[IsolationSettings | None, int | None]]:
    """The settings of each instance after the last step that changes them."""
    settings_by_id: dict[str, tuple[IsolationSettings | None, int | None]] = {}
    for step in plan.steps:
        for name, settings in step.changes.items():
            settings_by_id[name] = (settings, settings_by_id.get(name, (None, None))[1])
        former = settings_by_id.get(step.instance, (None, None))
        settings_by_id[step.instance] = (step.settings or former[0], step.vcpus or former[1])
    return settings_by_id


# The tables of a plan that compare clouds: figures, month by month, side by side, and sizes.

SCORES = "VMs by predicted score, 100 = uncontended"
SIZING, VARIANTS = "Savings beside risk", "Side by side"
SHORT = "Contended is the part of the time in which the demand exceeds the vCPUs that an instance then has."
LEAST_MONTHS = 3  # of a run-way, for a picture of it
_SUMS = (
    Column("hosts", "Hosts", "count"), Column("hosts_used", "In use", "count"),
    Column("instances", "Instances", "count"), Column("below", "Below their limit", "count"),
    Column("worst", "Lowest T/B", "ratio"), Column("mean", "Mean", "ratio"),
    Column("total", "Sum of T/B", "number", shown=False), Column("watts", "W", "number"),
    Column("price", "Price a month", "number"),
)  # fmt: skip


def sums_table(plan: Plan) -> Table:
    """The cloud in figures before and after, or now where a plan changes nothing."""
    clouds = [("before", plan.sums_before), ("after", plan.sums_after)]
    if plan.sums_before == plan.sums_after:
        clouds = [("now", plan.sums_before)]
    rows = [(name, *_sums(sums)) for name, sums in clouds if sums is not None]
    return Table("sums", "The cloud in figures", (Column("cloud", "", "name"), *_SUMS), rows)


def scores_table(plan: Plan) -> Table:
    """Predicted scores of VMs before and after, or now; without rows in a plan that has none."""
    clouds = [("before", plan.sums_before), ("after", plan.sums_after)]
    if plan.sums_before == plan.sums_after:
        clouds = [("now", plan.sums_before)]
    rows = [
        (name, round(sums.score, 1), round(sums.score_lowest, 1), *sums.scores)
        for name, sums in clouds
        if sums is not None and sums.score is not None and sums.score_lowest is not None
    ]
    buckets = (Column(f"score_{name.replace('-', '_')}", name, "count") for name in SCORE_BUCKETS)
    columns = (
        Column("cloud", "", "name"), Column("score", "Mean score", "number"),
        Column("score_lowest", "Lowest", "number"), *buckets,
    )  # fmt: skip
    return Table("scores", SCORES, columns, rows)


def _sums(sums: PlanSums) -> tuple[float | None, ...]:
    return (
        sums.hosts, sums.hosts_used, sums.instances, sums.below, sums.worst, sums.mean, sums.total, sums.watts,
        sums.price,
    )  # fmt: skip


def fit_table(plan: Plan) -> Table:
    """How many more of a mix fit; without a row where that was not asked."""
    answer = plan.capacity
    columns = (
        Column("fit", "As expected", "count"), Column("fit_lower", "At the lower edges", "count"),
        Column("by_rule", "By sizes alone", "count"), Column("months_examined", "Months examined", "count"),
        Column("runs_out_month", "Full in month", "number"),
        Column("first_refusal", "What prevents one more", "prose", shown=False),
    )  # fmt: skip
    rows = [] if answer is None else [
        (answer.fit, answer.fit_lower, answer.by_rule, answer.months_examined, answer.runs_out_month,
         answer.first_refusal or None)
    ]  # fmt: skip
    return Table("capacity", "How many more of the mix fit", columns, rows)


def runway_table(plan: Plan) -> Table:
    """The cloud month by month; without rows where no growth was given."""
    columns = (
        Column("month", "Month", "number"), Column("added", "Added", "count"),
        Column("load_factor", "Load", "times"), *_SUMS, Column("fits", "Fits"),
    )  # fmt: skip
    rows = [
        (point.month, point.added, point.load_factor, *_sums(point.sums), "yes" if point.fits else "no")
        for point in (plan.capacity.runway if plan.capacity else ())
    ]
    look: Literal["folded", "plain"] = "folded" if len(rows) >= LEAST_MONTHS else "plain"
    return Table("runway", "The run-way, month by month", columns, rows, look=look, printed=True)


def variants_table(plan: Plan) -> Table:
    """Clouds side by side."""
    columns = (
        Column("name", "Cloud", "name"), *_SUMS, Column("fit", "More that fit", "count"),
        Column("runs_out_month", "Full in month", "number"), Column("instance_days", "VM-days", "number"),
        Column("notes", "Notes", "listed"),
    )  # fmt: skip
    rows = [
        (variant.name, *_sums(variant.sums), variant.fit, variant.runs_out_month, variant.instance_days, variant.notes)
        for variant in plan.variants
    ]
    return Table("variants", "Clouds side by side", columns, rows)


def sizing_table(plan: Plan) -> Table:
    """What new sizes save and risk, by class."""
    rows = [
        (
            row.name, row.instances, row.vcpus, row.vcpus_then, row.saved, row.busiest, row.short_mean, row.short,
            row.riskiest,
        )
        for row in plan.sizing
    ]  # fmt: skip
    columns = (
        Column("class", "Class", "name"), Column("instances", "Instances", "count"),
        Column("vcpus", "now", "count", "vCPUs"), Column("vcpus_then", "then", "count", "vCPUs"),
        Column("saved", "saved", "count", "vCPUs"), Column("busiest", "Busiest at its p95", "ratio"),
        Column("short_mean", "mean", "time_share", "Contended"),
        Column("short", "most", "time_share", "Contended"),
        Column("riskiest", "Most at risk", "name"),
    )  # fmt: skip
    return Table("sizing", "What new sizes save and risk, by class", columns, rows)
