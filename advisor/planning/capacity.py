"""Capacity: how many more instances of each size fit, by size alone and by predicted effects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np

from advisor.domain import (
    Capacity,
    Growth,
    Instance,
    PlanEnd,
    Rejection,
    RunwayPoint,
    Search,
    SpareCapacity,
    evidence_counts,
)
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.mix_packing import MixPacking, hosts_in_turn, pack_mix
from advisor.planning.assignment.packing_problem import build_problem
from advisor.planning.assignment.search_state import PatternEvaluator, SearchState
from advisor.planning.assignment.search_summary import apply_assignment
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.planning.cpu_demand import demand_scaled
from advisor.planning.failover import FailoverSearch, place_beside
from advisor.planning.plan_context import PlanContext
from advisor.prediction.active import PredictionCache, PredictorProxy
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.demand_classes import day_one
from models.data.scene import ProfileTable, SceneBatch
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from profiler.demand import Demand, Resource

# How many instances of a mix fit by size alone: first fit, and an upper bound for any packing; no predictions.

MAX_INSTANCES = 100_000  # instances of a mix; larger numbers are not counted


def repeat_mix(mix: Sequence[Instance], taken: frozenset[str]) -> Iterator[Instance]:
    """Copies of the mix in turn, without end, under ids that are not in `taken`."""
    for number in count(1):
        template = mix[(number - 1) % len(mix)]
        name = f"{template.id[:230]}.more-{number}"
        while name in taken:
            name += "-"
        yield replace(template, id=name, host=None)


def free_room(snapshot: ClusterSnapshot, hosts: frozenset[str] | None) -> Floats:
    """Free shared vCPUs, vCPUs in all, MB of memory, GB of disk and pCPUs for dedicated vCPUs of each host, (H, 5).

    With slack for rounding; 0 on closed hosts. Where a host sets no pCPUs apart, dedicated vCPUs count among the vCPUs
    that it may promise, else beside these.
    """
    vcpus = np.maximum(with_slack(snapshot.room_vcpus) - snapshot.used_vcpus, 0.0)
    own = np.maximum(snapshot.room_own - snapshot.used_own, 0.0)
    apart = np.array([bool(host.dedicated_cpus) for host in snapshot.hosts], dtype=bool)
    left = np.stack(
        [
            vcpus,
            np.where(apart, vcpus + own, vcpus),
            with_slack(snapshot.room_memory_mb) - snapshot.used_memory_mb,
            with_slack(snapshot.room_disk_gb) - snapshot.used_disk_gb,
            own,
        ],
        axis=1,
    )
    open_to_all = snapshot.enabled & ~snapshot.exclusive
    usable = np.array([hosts is None or host.id in hosts for host in snapshot.hosts], dtype=bool)
    return np.where((open_to_all & usable)[:, None], np.maximum(left, 0.0), 0.0)


def first_fit(left: Floats, mix: Sequence[Instance]) -> int:
    """How many of the mix in turn fit on the first host with room, until one does not."""
    left = left.copy()
    at = [0] * len(mix)  # room only shrinks, so each search starts where the last one ended
    for number in range(MAX_INSTANCES):
        which = number % len(mix)
        needs = _needs(mix[which])
        while at[which] < len(left) and (left[at[which]] < needs).any():
            at[which] += 1
        if at[which] == len(left):
            return number
        left[at[which]] -= needs
    return MAX_INSTANCES


def size_bound(left: Floats, mix: Sequence[Instance]) -> int:
    """An upper bound for any packing: by each kind alone, and by the sum of all room."""
    needs = np.array([_needs(instance) for instance in mix])
    by_single_kind = min(_alone_fit(left, need) * len(mix) + which for which, need in enumerate(needs))
    mix_needs, total = needs.sum(axis=0), left.sum(axis=0)
    rounds = np.divide(total, mix_needs, out=np.full(total.shape, np.inf), where=mix_needs > 0).min()
    if min(rounds * len(mix), by_single_kind) >= MAX_INSTANCES:
        return MAX_INSTANCES
    full_rounds = int(rounds)
    left_over = total - full_rounds * mix_needs
    further = 0
    for need in needs:
        left_over = left_over - need
        if (left_over < 0).any():
            break
        further += 1
    return min(full_rounds * len(mix) + further, by_single_kind)


def _alone_fit(left: Floats, need: Floats) -> int:
    """How many instances of one kind fit when no other comes."""
    times = np.divide(left, need, out=np.full(left.shape, np.inf), where=need > 0)
    return int(np.floor(times.min(axis=1)).sum())


def _needs(instance: Instance) -> Floats:
    sizes = (
        instance.shared_vcpus,
        instance.vcpus,
        instance.ordinary_memory_mb,
        instance.disk_gb,
        instance.dedicated_vcpus,
    )
    return np.array(sizes, dtype=np.float64)


MAX_LOAD = 10.0  # highest load of an instance that is predicted
SPARE_SHARE = 0.6  # of the time that is left for failures; the rest is for growth
PACKING_SHARE = 0.7  # of the time to fill a cloud; the rest is for why no further instance fits


@dataclass(frozen=True, slots=True)
class WorstEdgePredictor(PredictorProxy):
    """Predicts the worse edge of every interval as the expected value."""

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """Lower edges of throughput, upper edges of latency and jitter."""
        prediction = self.predictor.predict(scenes, targets)
        lower = prediction.throughput.lower
        latency, jitter = prediction.latency.upper, prediction.jitter.upper
        return InterferencePrediction(
            BandArrays(lower, lower, lower),
            BandArrays(latency, latency, latency),
            BandArrays(jitter, jitter, jitter),
            prediction.outside,
            basis=prediction.basis,
        )


@dataclass(frozen=True, slots=True)
class MixCapacity:
    """How many of a mix fit, an upper bound, the cloud with them, and why no further one fits.

    `in_time` is False if the time ended before that was known.
    """

    fit: int
    bound: int
    after: ClusterSnapshot
    refusal: str
    in_time: bool


def capacity(
    context: PlanContext, snapshot: ClusterSnapshot
) -> tuple[Capacity, Search, ClusterSnapshot, tuple[str, ...]]:
    """The answer, the search that found it, the filled cloud, and notes."""
    request = context.request
    usable_hosts = None if request.hosts is None else frozenset(request.hosts)
    by_rule = first_fit(free_room(snapshot, usable_hosts), request.instances)
    available_s = context.left_s
    context.say("filling the cloud as expected", 0.05)
    filled = fill(context, snapshot, available_s * 0.5)
    context.say("filling it by lower bounds", 0.5)
    worst_edge = replace(
        context.chosen, predictor=WorstEdgePredictor(context.chosen.predictor), remembered=PredictionCache()
    )
    filled_by_edges = fill(replace(context, chosen=worst_edge), snapshot, available_s * 0.2)
    edges_fit, edges_bound = min(filled_by_edges.fit, filled.fit), min(filled_by_edges.bound, filled.bound)
    is_proven = edges_fit >= edges_bound
    notes = list(_by_size(snapshot))
    if not is_proven:
        notes.append(
            f"How many fit where every instance is at the worse edge of its range is not proven: {edges_fit:,} were "
            f"placed, and not more than {edges_bound:,} fit."
        )
    spare: SpareCapacity | None = None
    if request.spare_hosts:
        context.say("letting hosts fail", 0.6)
        spare = _spare(context, snapshot, filled)
    early: float | None = None
    late: float | None = None
    runs_out: float | None = None
    runway: tuple[RunwayPoint, ...] = ()
    if request.growth is not None:
        context.say("looking ahead month by month", 0.7)
        runs_out, runway = look_ahead(context, snapshot, request.growth)
        early, late = _uncertain(context, snapshot, request.growth)
        if request.growth.uncertain_percent and context.left_s <= 0:
            notes.append("Time limit reached before all months were examined with more growth and with less.")
        notes += _outgrown(snapshot, request.instances, runway)
        if runs_out is None and len(runway) <= request.growth.months:
            notes.append(f"Time limit reached before month {len(runway)} was examined.")
    bound = max(filled.bound, filled.fit)
    gap = 0.0 if not bound else 1 - filled.fit / bound
    ended: PlanEnd = "optimal" if filled.fit == bound else "search" if filled.in_time else "time"
    search = Search("instances of the mix that fit", float(filled.fit), float(bound), gap, ended)
    fit_lower = edges_fit if is_proven else None
    answer = Capacity(filled.fit, fit_lower, by_rule, filled.refusal, runs_out, runway, spare, early, late, context.now)
    return answer, search, filled.after, tuple(notes)


def _by_size(snapshot: ClusterSnapshot) -> Iterator[str]:
    """What is assumed of instances whose demand no source reports: room and months count with it."""
    there = [resident for residents in snapshot.residents for resident in residents]
    counts = evidence_counts(map(snapshot.with_class, there), snapshot.names.profiled)
    weak = {level: counts[level] for level in ("size", "class") if counts.get(level)}
    if weak:
        words = {"size": "count with 10 % of their vCPUs", "class": "are estimated from similar ones"}
        parts = " and ".join(f"{count:,} {words[level]}" for level, count in weak.items())
        yield f"The demand of {sum(weak.values()):,} of {len(there):,} instances is not known: {parts}."


def _spare(context: PlanContext, snapshot: ClusterSnapshot, filled: MixCapacity) -> SpareCapacity:
    """What fits with the failover reserve, in a part of the time that is left."""
    clock = SearchClock.of(context.left_s * (SPARE_SHARE if context.request.growth else 1.0))

    names = [instance.id for instance in _in_turn(context, snapshot, 0, filled.fit)]
    return FailoverSearch(context, clock, lambda number: filled.after.without(names[number:])).most(filled.fit)


def _uncertain(context: PlanContext, snapshot: ClusterSnapshot, growth: Growth) -> tuple[float | None, float | None]:
    """The first month that does not fit with as much more growth as is uncertain, and with as much less."""
    if not growth.uncertain_percent:
        return None, None
    more, less = (
        replace(
            growth,
            instances_per_month=growth.instances_per_month * factor,
            load_percent_per_month=growth.load_percent_per_month * factor,
        )
        for factor in (1 + growth.uncertain_percent / 100, 1 - growth.uncertain_percent / 100)
    )
    return look_ahead(context, snapshot, more)[0], look_ahead(context, snapshot, less)[0]


def fill(context: PlanContext, snapshot: ClusterSnapshot, within_s: float) -> MixCapacity:
    """The largest number of the mix that all find a host, and why no further one does.

    The bound is what no packing surpasses, by size and by what each host holds within all limits.
    """
    mix = context.request.instances
    reserved_s = context.left_s - within_s  # what remains for later work
    usable_hosts = None if context.request.hosts is None else frozenset(context.request.hosts)
    bound = size_bound(free_room(snapshot, usable_hosts), mix)
    packing, after = _packed(context, snapshot, within_s * PACKING_SHARE, bound)
    fit, bound = packing.fit, max(min(bound, packing.bound), packing.fit)
    while fit < MAX_INSTANCES:
        left = context.left_s - reserved_s
        if left <= 0:
            return MixCapacity(fit, bound, after, _LATE, fit == bound)
        tried = place_beside(context, after, _in_turn(context, snapshot, fit, fit + 1), SearchClock.of(left))
        if tried.refused:
            why = refusal_sentence(*tried.refused.values()) if tried.in_time else _LATE
            return MixCapacity(fit, bound, after, why, fit == bound or (packing.in_time and tried.in_time))
        fit, bound, after = fit + 1, max(bound, fit + 1), tried.after
    return MixCapacity(fit, fit, after, f"nothing: numbers from {MAX_INSTANCES + 1:,} on are not counted", True)


_LATE = "the time limit was reached before the reason was known"


def _packed(
    context: PlanContext, snapshot: ClusterSnapshot, within_s: float, most: int
) -> tuple[MixPacking, ClusterSnapshot]:
    """The best packing of at most so many of the mix that was found, and the cloud with it."""
    templates = _in_turn(context, snapshot, 0, len(context.request.instances))
    goal = context.goal(snapshot, "admit", templates, within_s)
    problem = build_problem(snapshot, goal, context.fresh_s)
    if not problem.hosts:
        return MixPacking((), 0, 0, True), snapshot
    state = SearchState.of(PatternEvaluator.of(problem, context.chosen.predictor), goal.objective)
    packing = pack_mix(state, problem.waiting, most, SearchClock.of(within_s))
    new_vms = {instance.id: instance for instance in _in_turn(context, snapshot, 0, packing.fit)}
    hosts = hosts_in_turn(packing.movers, problem.waiting, packing.fit)
    where: dict[str, str | None] = {name: snapshot.hosts[host].id for name, host in zip(new_vms, hosts, strict=True)}
    return packing, apply_assignment(snapshot, new_vms, where)


def _in_turn(context: PlanContext, snapshot: ClusterSnapshot, first: int, end: int) -> tuple[Instance, ...]:
    """New VMs of the mix in turn from the first up to the end, under names that no instance has in this cloud."""
    taken = frozenset(instance.id for residents in snapshot.residents for instance in residents)
    return tuple(islice(repeat_mix(context.request.instances, taken), first, end))


def refusal_sentence(refused: Sequence[Rejection]) -> str:
    """The most frequent reason for refusal, with one of its hosts, in one sentence."""
    if not refused:
        return "there is no host that could take it"
    by_code: dict[str, list[Rejection]] = {}
    for rejection in refused:
        by_code.setdefault(rejection.code, []).append(rejection)
    most_frequent = max(by_code.values(), key=len)
    others = f" (and {len(refused) - 1} more refuse)" if len(refused) > 1 else ""
    return f"{most_frequent[0].host}: {most_frequent[0].reason}{others}"


def look_ahead(
    context: PlanContext, snapshot: ClusterSnapshot, growth: Growth
) -> tuple[float | None, tuple[RunwayPoint, ...]]:
    """The first month at whose end not every instance is served (None = none examined), and a point for each month.

    Instances added in earlier months stay where they were placed; all loads grow.
    """
    keep = context.request.keep_ratio
    initial = CloudEvaluation.of(snapshot, context.chosen.predictor)
    below_initially, points = initial.below(keep), [RunwayPoint(0.0, 0, 1.0, initial.sums(keep), True)]
    cloud, base = snapshot, {instance.id: instance for residents in snapshot.residents for instance in residents}
    mix = repeat_mix(context.request.instances, frozenset(base))
    for month in range(1, growth.months + 1):
        if context.left_s <= 0:
            return None, tuple(points)
        factor = (1 + growth.load_percent_per_month / 100) ** month
        arrived = int(growth.instances_per_month * month + 1e-9)
        arriving = tuple(islice(mix, arrived - points[-1].added))
        base |= {instance.id: instance for instance in arriving}
        cloud = _loaded(cloud, base, factor)
        table = cloud.scenes.table
        heavier = [_heavier(instance, factor, table) for instance in arriving]
        tried = place_beside(context, cloud, heavier, SearchClock.of(context.left_s))
        if not tried.in_time:
            return None, tuple(points)
        cloud = tried.after
        evaluation = CloudEvaluation.of(cloud, context.chosen.predictor)
        fits = not tried.refused and evaluation.below(keep) <= below_initially
        points.append(RunwayPoint(float(month), arrived, factor, evaluation.sums(keep), fits))
        if not fits:
            return float(month), tuple(points)
    return None, tuple(points)


def _outgrown(cloud: ClusterSnapshot, mix: Sequence[Instance], runway: Sequence[RunwayPoint]) -> Iterator[str]:
    """Notes from which month on loads exceed an instance's vCPUs or the predicted range; T/B does not show either."""
    all_instances = (*(instance for residents in cloud.residents for instance in residents), *mix)
    by_profile, by_demand = [], []
    for instance in all_instances:
        demand = _demand_over_time(instance, cloud.scenes.table).get("cpu")
        if demand is None:
            by_profile.append(instance.load)
        else:
            by_demand.append(min(instance.load, 1.0) * demand.mean / instance.vcpus)
    for limit, loads, consequence in (
        (1.0, by_profile + by_demand, "they need more than their own vCPUs, which T/B does not show"),
        (MAX_LOAD, by_profile, f"further growth is predicted as if the load stayed at {MAX_LOAD:g}"),
    ):
        heaviest = max((load for load in loads if load <= limit), default=0.0)
        month = next((point.month for point in runway if heaviest * point.load_factor > with_slack(limit)), None)
        if month is not None:
            yield f"From month {month:g} on the load of some instances is above {limit:g}: {consequence}."


def _loaded(cloud: ClusterSnapshot, base: dict[str, Instance], factor: float) -> ClusterSnapshot:
    """The cloud with every load multiplied by the factor."""
    if factor == 1.0:
        return cloud
    instances = {}
    for instance in (instance for residents in cloud.residents for instance in residents):
        heavier = _heavier(base[instance.id], factor, cloud.scenes.table)
        instances[instance.id] = replace(instance, load=heavier.load, demand=heavier.demand)
    return cloud.changed(instances=instances, seen={}, pending=(), taken_at=cloud.taken_at)


def _heavier(instance: Instance, factor: float, table: ProfileTable) -> Instance:
    """The instance with its load multiplied.

    Load is a share of what is demanded alone and counts up to 1. Beyond that, demand over time grows itself, up to all
    vCPUs; a profile is of an instance at its full speed, so that nothing is left to grow.
    """
    demand = _demand_over_time(instance, table)
    if "cpu" not in demand:
        return replace(instance, load=min(instance.load * factor, MAX_LOAD))
    load = min(instance.load * factor, max(instance.load, 1.0))
    further = factor * min(instance.load, 1.0) / min(load, 1.0)
    if further <= 1.0:
        return replace(instance, load=load)
    known = replace(instance, demand=demand)
    return replace(instance, load=load, demand=demand_scaled(known, further, instance.vcpus))


def _demand_over_time(instance: Instance, table: ProfileTable) -> Mapping[Resource, Demand]:
    """What is known of its demand, or assumed where neither that nor a profile is."""
    if "cpu" in instance.demand or table.row(instance.workload):
        return instance.demand
    return {**instance.demand, "cpu": day_one(instance.vcpus)}
