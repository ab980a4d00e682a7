"""Placement policies of a replay: the advisor, and every rule that schedulers use without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from advisor.domain import (
    Instance,
    Inventory,
    IsolationSettings,
    Objective,
    Pinning,
    PlacementRequest,
    PlanFor,
    WorkloadProfile,
)
from advisor.placement import sequential
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.packing_problem import Goal
from advisor.prediction.active import ActivePredictor, QuestionContext
from advisor.replay.packed_cloud import MIN_LOAD, PackedCloud, SeenDemand, TraceDemand, scaled
from advisor.scheduling.rules import Rule, choose, known_by
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from profiler.demand import Demand

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
