"""A cloud of identical hosts during a replay: demand as it was and as it was seen, and bounds on the hosts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from advisor.domain import (
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    Objective,
    Pinning,
    PlacementRequest,
    PlanFor,
    WorkloadProfile,
)
from advisor.errors import InvalidInput
from advisor.placement import sequential
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.packing_problem import Goal
from advisor.prediction.active import ActivePredictor, QuestionContext
from advisor.replay.grid import Trace
from advisor.rounding import with_slack
from advisor.scheduling.rules import Rule, choose, known_by
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats, Ints
from models.data.demand_classes import from_mean
from models.data.scene import ProfileTable
from models.physics.demands import guessed_capacity
from models.profiling.demand_estimation import Tally, Window, estimated, others_in_step
from profiler.demand import Demand
from profiler.metrics import BY_NAME, split_key

# The workloads and loads of a trace's instances: profiles at full load, and loads over time.

MIN_LOAD = 1e-3  # loads are positive; an idle instance asks for a thousandth of its CPUs
WINDOW_S = 86_400.0  # how long past demand is taken into account
MIN_SEEN_STEPS = 12  # steps before an instance is judged by itself; till then it is taken to be like the others
CPU_ONLY = "cpu only"
QUANTILES: Mapping[PlanFor, float] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# What grows with the size of an instance: of the eight metrics all but ratios, and what is moved in a second.
SCALING_METRICS = frozenset({name for name, metric in BY_NAME.items() if metric.kind != "ratio"}) | {
    "net_mbit", "disk_mb_s", "mem_bw_mb_s", "throughput_kb_s", "throughput_rps",
}  # fmt: skip
RATES = ("net_mbit", "disk_mb_s")


@dataclass(frozen=True, slots=True)
class TraceDemand:
    """The demand of I instances.

    `names` (I) refer to `profiles`, which fill an instance's vCPUs at load 1; network and disk of the trace replace the
    profile's. `host` is the type of all hosts.
    """

    trace: Trace
    names: tuple[str, ...]
    profiles: tuple[WorkloadProfile, ...]
    host: Host
    assumptions: tuple[str, ...] = ()

    def rates(self) -> Mapping[str, NDArray[np.float32]]:
        """Network and disk over time, (T, I), where the trace has them."""
        rates = {name: getattr(self.trace, name) for name in RATES}
        return {name: values for name, values in rates.items() if values is not None}

    def loads(self, first: int, end: int) -> Floats:
        """The share of its vCPUs that each instance asks for, (T, I), in these steps; nan where it is absent."""
        return np.clip(self.trace.cpu[first:end].astype(np.float64), MIN_LOAD, 1.0)

    def of(self, instances: Ints) -> TraceDemand:
        """The demand of these instances only."""
        return replace(
            self, trace=self.trace.of(instances), names=tuple(self.names[number] for number in instances.tolist())
        )

    def planned(self, step: int, plan_for: PlanFor) -> tuple[Floats, Mapping[str, Floats]]:
        """What is known before `step`: the load of each instance, (I,), and its network and disk.

        It is that percentile of the demand in the last WINDOW_S, or its mean (`hours`, too); for instances hardly seen,
        that of all seen so far, and full load where none was. The future is never used.
        """
        window, quantile = slice(max(0, step - round(WINDOW_S / self.trace.interval_s)), step), QUANTILES.get(plan_for)
        load = _known(np.clip(self.trace.cpu[window], MIN_LOAD, 1.0), quantile, 1.0)
        return load, {name: _known(values[window], quantile, 0.0) for name, values in self.rates().items()}


def demand_of(
    trace: Trace, unsaid: Sequence[str], host: Host, workloads: Sequence[WorkloadProfile], seed: int
) -> TraceDemand:
    """Give every instance a profile: its workload's, else a random one of `workloads`, else CPU only.

    InvalidInput where the trace names an unknown workload, or one without CPU.
    """
    known: dict[str, list[WorkloadProfile]] = {}
    for profile in workloads:
        known.setdefault(profile.name, []).append(profile)
    drawn = np.random.default_rng(seed).integers(0, max(len(known), 1), len(trace)).tolist()
    everything = sorted(known)
    names: list[str] = []
    made: dict[str, list[WorkloadProfile]] = {}
    for number, named in enumerate(trace.workloads):
        name = named or (everything[drawn[number]] if everything else CPU_ONLY)
        if name not in known and name != CPU_ONLY:
            where = f"instance {trace.ids[number]} of {trace.name} runs {name[:60]!r}"
            raise InvalidInput(f"{where}, of which the host type's file has no profile", field="workload")
        vcpus = int(trace.vcpus[number])
        own = f"{name} x {vcpus}"
        if own not in made:
            profiles = known.get(name) or [WorkloadProfile(CPU_ONLY, {"cpu": 100.0}, origin="given")]
            made[own] = [_profile_at_full_load(profile, own, vcpus) for profile in profiles]
        names.append(own)
    notes = [f"The trace does not say: {', '.join(unsaid)}."] if unsaid else []
    if everything and None in trace.workloads:
        notes.append(
            f"What an instance runs is drawn (seed {seed}) from the profiles given ({len(everything)}), scaled so that "
            "they fill its vCPUs at full load; the trace says how much of that it asks for."
        )
    elif not everything:
        in_trace = [
            what for what, values in (("network", trace.net_mbit), ("disk", trace.disk_mb_s)) if values is not None
        ]
        needed = f"no more than CPU and the {' and '.join(in_trace)} of the trace" if in_trace else "CPU only"
        notes.append(f"Instances are taken to need {needed}: caches, memory bandwidth and driver domain are left out.")
    above = int((trace.cpu > 1).sum())
    if above:
        notes.append(f"What was asked for above all of an instance's vCPUs ({above:,} values) counts as all of them.")
    most = 0.0 if trace.disk_mb_s is None else float(np.nanmax(trace.disk_mb_s))
    if most and host.disk_mb_s is None:
        host = replace(host, disk_mb_s=most)
        notes.append(f"A host's disk is taken to do {most:,.1f} MB/s, the most that one instance of the trace did.")
    filling = tuple(profile for profiles_here in made.values() for profile in profiles_here)
    table = ProfileTable.build(filling)
    for key, what in (("disk_mb_s", "disk"), ("mem_bw_mb_s", "memory bandwidth")):
        if getattr(host, key) is None and (guessed := guessed_capacity(table, key)):
            notes.append(
                f"A host's {what} is taken to be {guessed:,.1f} MB/s, by the profile that reached most alone; another "
                "host type may say what it is."
            )
    return TraceDemand(trace, tuple(names), filling, host, tuple(notes))


def _profile_at_full_load(profile: WorkloadProfile, name: str, vcpus: int) -> WorkloadProfile:
    """A profile of an instance of that size whose CPUs are full: rates scale, ratios stay."""
    cpu = profile.get("cpu")
    if not cpu:
        raise InvalidInput(f"workload {profile.name}: its profile says nothing of cpu", field="workload")
    return WorkloadProfile(name, scaled(profile, 100 * vcpus / cpu), profile.platform, profile.origin)


def scaled(profile: WorkloadProfile, factor: float) -> dict[str, float]:
    """The metrics of a profile at `factor` times its load: rates scale, ratios stay."""
    return {
        key: value * (factor if split_key(key)[1] in SCALING_METRICS else 1) for key, value in profile.metrics.items()
    }


def _known(seen: NDArray[np.floating], quantile: float | None, nothing: float) -> Floats:
    """The quantile of each column (T, I), None = its mean; of all columns where it has few values; `nothing` where
    there are none."""
    there = ~np.isnan(seen)
    of_all = np.float64(nothing)
    if there.any():
        of_all = np.mean(seen[there]) if quantile is None else np.quantile(seen[there], quantile)
    known = np.full(seen.shape[1], of_all)
    enough = there.sum(axis=0) >= MIN_SEEN_STEPS
    if enough.any():
        columns = seen[:, enough]
        known[enough] = np.nanmean(columns, axis=0) if quantile is None else np.nanquantile(columns, quantile, axis=0)
    return known


# Demand of a trace's instances as it was seen till a step, learned window by window as the service learns it.


class SeenDemand:
    """The demand for CPUs of I instances before a step; steps are asked for in their order."""

    def __init__(self, demand: TraceDemand) -> None:
        self._demand = demand
        self._tallies = [Tally(window_s=demand.trace.interval_s) for _ in demand.names]
        self._steps = 0

    def before(self, step: int, loads: Floats) -> list[Demand]:
        """What is known of each before `step`: spread, what all have in common, and hours once a day was seen.

        Of instances that were hardly seen only the mean counts that `loads` (I) tell, as a part of their vCPUs.
        """
        trace = self._demand.trace
        for at, row in enumerate(self._demand.loads(self._steps, step), self._steps):
            self._add((at + 1) * trace.interval_s, row * trace.vcpus)
        self._steps = max(step, self._steps)
        return [
            estimated(tally, vcpus=vcpus, origin="trace")
            if tally.n >= MIN_SEEN_STEPS
            else from_mean(float(load) * vcpus, vcpus)
            for tally, vcpus, load in zip(self._tallies, trace.vcpus.tolist(), loads, strict=True)
        ]

    def _add(self, time_s: float, demanded: Floats) -> None:
        there = np.flatnonzero(~np.isnan(demanded)).tolist()
        means = {str(who): (float(demanded[who]), self._tallies[who].mean) for who in there}
        others = others_in_step(means)
        for who in there:
            self._tallies[who].add(Window(time_s, float(demanded[who]), others.get(str(who))))


class PackedCloud:
    """H identical hosts during a replay.

    `where` (I,) is the host of each instance, -1 = none; `used_vcpus` and `used_memory_mb` (H,) are what they hold.
    """

    def __init__(self, host: Host, hosts: int, trace: Trace) -> None:
        self.host = host
        self.where = np.full(len(trace), -1, dtype=np.int64)
        self.used_vcpus, self.used_memory_mb = np.zeros(hosts), np.zeros(hosts)
        self._vcpus, self._memory_mb = trace.vcpus, trace.memory_mb
        self.room_vcpus, self.room_memory_mb = room(host)

    def fits(self, who: int) -> Bools:
        """The hosts with room for an instance, (H,); every policy must respect it."""
        if self._vcpus[who] > self.host.pcpus:
            return np.zeros(len(self.used_vcpus), dtype=bool)
        return np.asarray(
            (self.used_vcpus + self._vcpus[who] <= with_slack(self.room_vcpus))
            & (self.used_memory_mb + self._memory_mb[who] <= with_slack(self.room_memory_mb))
        )

    def put(self, who: int, host: int) -> None:
        """Move an instance to a host, or remove it, -1."""
        for place, sign in ((int(self.where[who]), -1), (host, 1)):
            if place >= 0:
                self.used_vcpus[place] += sign * self._vcpus[who]
                self.used_memory_mb[place] += sign * self._memory_mb[who]
        self.where[who] = host


def room(host: Host) -> tuple[float, float]:
    """The vCPUs and MB that may be promised on a host."""
    return host.pcpus * host.cpu_overcommit, host.memory_mb * host.memory_overcommit


def fewest_by_size(trace: Trace, host: Host, step: int) -> int:
    """A lower bound by size on the hosts for one step."""
    there = trace.there(step)
    return max(
        bin_bound(size[there].astype(np.float64), most)
        for size, most in zip((trace.vcpus, trace.memory_mb), room(host), strict=True)
    )


def fewest_kept(trace: Trace, host: Host, step: int, keep_ratio: float) -> int:
    """A lower bound on the hosts that hold a step and serve every instance with `keep_ratio` of its demand."""
    there = trace.there(step)
    demand = float((np.minimum(trace.cpu[step][there], 1.0) * trace.vcpus[there]).sum())
    return max(fewest_by_size(trace, host, step), math.ceil(demand * keep_ratio / host.pcpus - 1e-9))


def bin_bound(sizes: Floats, room: float) -> int:
    """The bound L2 of Martello and Toth (1990) on the bins of `room`, at least the sum.

    Items larger than room - a share with none of at least a; items larger than half share with none of their like.
    """
    room = with_slack(room)
    sizes = np.sort(sizes[(sizes > 0) & (sizes <= room)])  # instances that fit nowhere are refused by every policy
    summed = np.concatenate([[0.0], np.cumsum(sizes)])
    half = int(np.searchsorted(sizes, room / 2, side="right"))  # from here on they are larger than half
    a = np.unique(sizes[:half])
    small, large = np.searchsorted(sizes, a), np.searchsorted(sizes, room - a, side="right")  # where each begins
    left = summed[half] - summed[small] - ((large - half) * room - (summed[large] - summed[half]))
    more = np.ceil(left / room).max(initial=0.0)
    return max(math.ceil(float(summed[-1]) / room), len(sizes) - half + int(more))


# Placement policies of a replay: the advisor, and every rule that schedulers use without it.

WHEN = datetime(2000, 1, 1, tzinfo=UTC)  # any moment: hosts of a replay are always fresh


# Chooses the host of a new VM, by its number in the trace, in a step; None = none can take it.
PlacementPolicy = Callable[[PackedCloud, int, int], int | None]


class RulePolicy:
    """A rule of `advisor.scheduling.rules`. It knows what hosts have promised; and the future where the rule needs it,
    which no scheduler knows: that shows what knowing better could gain."""

    COLUMNS = ("chance", "free_vcpus", "free_memory_mb", "cpus", "peak_after")

    def __init__(self, rule: Rule, demand: TraceDemand, hosts: int, seed: int) -> None:
        self._rule, self._random = rule, np.random.default_rng(seed)
        self._demanded = self._sums = np.zeros((0, hosts))
        if "peak_after" in rule.needs:
            trace = demand.trace
            self._demanded = np.nan_to_num(demand.loads(0, trace.steps)) * trace.vcpus
            self._sums = np.zeros((trace.steps, hosts))

    def __call__(self, cloud: PackedCloud, who: int, step: int) -> int | None:
        host = choose(self._rule, cloud.fits(who), lambda name: self._column(name, cloud, who, step))
        if host is not None and len(self._sums):
            self._sums[:, host] += self._demanded[:, who]
        return host

    def _column(self, name: str, cloud: PackedCloud, who: int, step: int) -> Floats:
        hosts = len(cloud.used_vcpus)
        match name:
            case "chance":
                return self._random.random(hosts)
            case "free_vcpus":
                return -cloud.used_vcpus
            case "free_memory_mb":
                return -cloud.used_memory_mb
            case "cpus":
                return np.full(hosts, float(cloud.host.pcpus))
            case _:
                return np.asarray((self._sums[step:] + self._demanded[step:, who, None]).max(axis=0))


RULES = known_by(RulePolicy.COLUMNS)


class AdvisorPolicy:
    """The advisor as a scheduler uses it: a host for each new VM, without pinning and without changed settings.

    It knows the demand seen so far. Where every host would violate a limit, it decides without limits, so that it
    refuses no instance that the other policies take.
    """

    def __init__(
        self,
        demand: TraceDemand,
        chosen: ActivePredictor,
        *,
        keep_ratio: float,
        objective: Objective,
        plan_for: PlanFor,
    ) -> None:
        self._demand, self._chosen = demand, chosen
        self._keep, self._objective, self._plan_for = keep_ratio, objective, plan_for
        self._step = -1
        self._seen = SeenDemand(demand)
        self._instances: list[Instance] = []
        self._profiles: tuple[WorkloadProfile, ...] = ()
        self._snapshots: dict[bool, ClusterSnapshot] = {}  # of this step, with limits and without

    def __call__(self, cloud: PackedCloud, who: int, step: int) -> int | None:
        for limited in (True, False):
            snapshot = self._snapshot(cloud, step, limited=limited)
            instance = self._instance(who, None, limited=limited)
            request = PlacementRequest(instance, objective=self._objective, limit=1, explain=False)
            answer = sequential.as_it_is(snapshot, QuestionContext(self._chosen, WHEN, math.inf), request)
            if answer.candidates:
                placed = int(answer.candidates[0].host)
                for which, there in self._snapshots.items():
                    self._snapshots[which] = sequential.after(there, self._instance(who, placed, limited=which))
                return placed
        return None

    def rebalance(self, cloud: PackedCloud, step: int, seed: int) -> int:
        """Carry out the moves that are worth it (`advisor.planning`, aim rebalance); returns their number."""
        snapshot = self._snapshot(cloud, step, limited=True)
        goal = Goal("rebalance", movable=frozenset(snapshot.names.placed), keep_ratio=self._keep, seed=seed)
        assignment = assign(snapshot, self._chosen, goal, now=WHEN, fresh_s=math.inf)
        moves = {name: host for name, host in assignment.where.items() if host is not None}
        for name, host in moves.items():
            cloud.put(int(name.removeprefix("i")), int(host))
        self._step = -1  # what was known of this step is so no longer
        return len(moves)

    def _snapshot(self, cloud: PackedCloud, step: int, *, limited: bool) -> ClusterSnapshot:
        """The cloud as the advisor knows it before a step."""
        if step != self._step:
            self._step = step
            self._snapshots.clear()
            self._instances, self._profiles = self._known(step)
        if limited not in self._snapshots:
            names = [_name(number) for number in range(len(cloud.used_vcpus))]
            inventory = Inventory(
                tuple(replace(cloud.host, id=name) for name in names),
                tuple(
                    self._instance(who, int(cloud.where[who]), limited=limited)
                    for who in np.flatnonzero(cloud.where >= 0).tolist()
                ),
                self._profiles,
            )
            seen = dict.fromkeys(names, WHEN)
            self._snapshots[limited] = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=WHEN)
        return self._snapshots[limited]

    def _instance(self, who: int, host: int | None, *, limited: bool) -> Instance:
        known = self._instances[who]
        name = None if host is None else _name(host)
        return replace(known, host=name, min_throughput_ratio=self._keep if limited else None)

    def _known(self, step: int) -> tuple[list[Instance], tuple[WorkloadProfile, ...]]:
        """Every instance with its known load, and the profiles."""
        demand, trace = self._demand, self._demand.trace
        loads, rates = demand.planned(step, self._plan_for)
        # Pinned to all pCPUs: an instance with a pinning of its own is offered no other.
        anywhere = tuple(range(demand.host.pcpus))
        pinned: dict[int, IsolationSettings] = {
            vcpus: IsolationSettings(pinning=Pinning.all_on(anywhere, vcpus))
            for vcpus in np.unique(trace.vcpus).tolist()
        }
        names, profiles = demand.names, demand.profiles
        cpu: Sequence[Demand | None] = [None] * len(trace)
        if self._plan_for == "hours":
            cpu = self._seen.before(step, loads)
            names, profiles = _own_profiles(demand, np.ones(len(trace)), rates, amount=loads)
            loads = np.ones(len(trace))
        elif rates:
            names, profiles = _own_profiles(demand, loads, rates)
        instances = [
            Instance(
                f"i{who}",
                vcpus=int(trace.vcpus[who]),
                memory_mb=float(trace.memory_mb[who]),
                workload=names[who],
                load=max(float(loads[who]), MIN_LOAD),
                demand={"cpu": known} if (known := cpu[who]) is not None else {},
                settings=pinned[int(trace.vcpus[who])],
            )
            for who in range(len(trace))
        ]
        return instances, profiles


def _own_profiles(
    demand: TraceDemand, loads: Floats, rates: Mapping[str, Floats], amount: Floats | float = 1.0
) -> tuple[tuple[str, ...], tuple[WorkloadProfile, ...]]:
    """A profile for each instance, with its observed network and disk rates where it has this load.

    `amount` (0-1) is how much of what a full instance does its profile shows.
    """
    amounts = np.broadcast_to(amount, len(loads))
    by_name: dict[str, list[WorkloadProfile]] = {}
    for profile in demand.profiles:
        by_name.setdefault(profile.name, []).append(profile)
    names, profiles = [], list(demand.profiles)  # by all of them it is guessed what a host can do
    for who, kind in enumerate(demand.names):
        own = {name: float(values[who] / loads[who]) for name, values in rates.items()}
        names.append(f"{kind} of {who}")
        profiles += [
            WorkloadProfile(
                names[-1], {**scaled(profile, float(amounts[who])), **own}, profile.platform, profile.origin
            )
            for profile in by_name[kind]
        ]
    return tuple(names), tuple(profiles)


def _name(host: int) -> str:
    """A host id whose order is that of the numbers."""
    return f"{host:06d}"
