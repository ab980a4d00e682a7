"""The packing problem: the goal, which hosts each instance may use, sizes and demand as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from advisor.domain import (
    Band,
    Constraints,
    Host,
    Instance,
    IsolationSettings,
    Objective,
    PlacementRequest,
    Rejection,
    unpinned,
)
from advisor.domain.plans import Search
from advisor.domain.rules import (
    LOCAL_STORAGE,
    SOFT_AFFINITY,
    SOFT_ANTI_AFFINITY,
    has_of,
    has_soft,
    rule_key,
    rules_of,
    without_soft,
)
from advisor.planning.cloud_evaluation import required_ratios_of
from advisor.planning.migration_time import DIRTY_LABEL
from advisor.rounding import with_slack
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot, promised_vcpus
from models.arrays import Bools, Floats, Ints
from models.data.scene import ProfileTable, build_batch
from models.physics.demands import demands
from profiler.observed import ANTI_AFFINITY_LABEL

# The goal of an assignment and its result: the interface between the planner and the solver.

NO_LIMIT = 1e-6  # T/B that every instance keeps: of a goal that protects limits of instances alone
Aim = Literal["admit", "rebalance", "evacuate", "consolidate"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What an assignment should achieve for the whole cloud.

    `new_vms` are to be placed (admit). `movable` are ids of residents that may move, None = all whose pinning was not
    given by the caller. `targets` are the hosts that may be used, None = all, and `targets_of` those of single movers
    by id; `emptied` are those to be emptied (evacuate). `resting` are ids of residents that stay after a move;
    `leaving` of those that must leave their host (evacuate), and `soft_off` of those whose soft rules do not count.
    `keep_ratio` is the T/B that instances without a limit of their own must keep; `move_gain` the least that a move
    must gain beyond its cost (`move_value.gain`, `move_cost`), which it must pay within `pays_within_s`; moves use at
    most `host_mbit` of a host's network, None = as it says. After `time_limit_s` seconds the best assignment so far is
    answered.
    """

    aim: Aim
    new_vms: tuple[Instance, ...] = ()
    movable: frozenset[str] | None = None
    targets: frozenset[str] | None = None
    targets_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    emptied: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    soft_off: frozenset[str] = frozenset()
    objective: Objective = "worst"
    keep_ratio: float = 0.8
    max_moves: int | None = None
    move_gain: float = 0.02
    pays_within_s: float = 6 * 3600.0
    host_mbit: float | None = None
    time_limit_s: float = 30.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which instance goes where, and the cloud afterwards.

    `where` lists new VMs and movers only; None = no host takes it, and `refused` gives the reasons. `gains` is what
    each move of a rebalance gains beyond its cost (`move_value.gain`), with its interval. `settings` lists instances
    whose settings change. `after` is the cloud with everything carried out; `notes` say what limits the result.
    `below` are instances that stay below a limit, by cause: how many, the lowest ratio and its host.
    """

    where: Mapping[str, str | None]
    refused: Mapping[str, tuple[Rejection, ...]]
    gains: Mapping[str, Band]
    settings: Mapping[str, IsolationSettings]
    after: ClusterSnapshot
    search: Search
    notes: tuple[str, ...] = ()
    below: Mapping[str, tuple[int, float, str]] = field(default_factory=dict)


# Which kinds of instances the placement filters allow on which hosts, found with few filter runs.

MONOTONE_FIELDS = ("vcpus", "memory_mb", "disk_gb", "load")  # of which no filter lets in more than less


def allowed_hosts(
    bare: ClusterSnapshot, goal: Goal, kinds: Sequence[Instance], wanted: Mapping[int, str | None], fresh_s: float
) -> Bools:
    """Which kind may go to which host of a cloud without its movable instances, (K, H).

    `wanted` maps the kinds in question to the kind of hypervisor each must stay on, None = any. Kinds that differ only
    in size are handled together: if the largest and the smallest may enter the same hosts, so may all in between.
    """
    may_enter = np.zeros((len(kinds), len(bare.hosts)), dtype=bool)
    for group in _alike(bare.scenes.table, kinds, wanted):
        host_kind = wanted[group[0]]
        subsets = [sorted(group, key=lambda number: (kinds[number].memory_mb, kinds[number].vcpus, number))]
        while subsets:
            subset = subsets.pop()
            members = [kinds[number] for number in subset]
            least, most = (
                replace(
                    members[0],
                    labels=_rules(members[0]),
                    demand=members[0].demand if _asks_driver(bare.scenes.table, members[0]) else {},
                    **{name: pick(getattr(instance, name) for instance in members) for name in MONOTONE_FIELDS},
                )
                for pick in (min, max)
            )
            hosts = filters.apply(bare, request_of(most, goal, host_kind), fresh_s=fresh_s)[0]
            if len(subset) == 1 or hosts == filters.apply(bare, request_of(least, goal, host_kind), fresh_s=fresh_s)[0]:
                may_enter[np.ix_(subset, hosts)] = True
            else:
                subsets += [subset[: len(subset) // 2], subset[len(subset) // 2 :]]
    usable = np.array(
        [(goal.targets is None or h.id in goal.targets) and h.id not in goal.emptied for h in bare.hosts], dtype=bool
    )
    return np.asarray(may_enter & usable[None, :])


def request_of(instance: Instance, goal: Goal, kind: str | None) -> PlacementRequest:
    """The placement request whose filters decide about an instance."""
    return PlacementRequest(
        replace(instance, host=None),
        constraints=Constraints(exclude=tuple(sorted(goal.emptied)), kind=kind),
        hosts=None if goal.targets is None else tuple(sorted(goal.targets)),
        objective=goal.objective,
        explain=False,
    )


def _rules(instance: Instance) -> dict[str, str]:
    """The labels by which filters tell instances apart; anti-affinity groups are checked by `PackingProblem.fits`."""
    return {name: value for name, value in rule_key(instance) if not name.startswith(ANTI_AFFINITY_LABEL)}


def _asks_driver(table: ProfileTable, instance: Instance) -> bool:
    """Whether it may ask anything of a driver domain, which its demand for CPUs scales; no other filter reads that."""
    return table.row(instance.workload) != 0


def _alike(table: ProfileTable, kinds: Sequence[Instance], wanted: Mapping[int, str | None]) -> Iterator[list[int]]:
    """Groups of kinds that the filters distinguish only by size."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, host_kind in wanted.items():
        instance = kinds[number]
        demand = instance.demand_key if _asks_driver(table, instance) else ()
        key = (
            host_kind, instance.workload, instance.settings, instance.service, instance.exclusive,
            instance.dedicated_vcpus, demand, tuple(_rules(instance).items()),
        )  # fmt: skip
        groups.setdefault(key, []).append(number)
    yield from groups.values()


Kinds = tuple[int, ...]  # a multiset of kinds, sorted

VCPUS, MEMORY, DISK, DRIVER, OWN = range(5)
SIZES = (VCPUS, MEMORY, DISK, OWN)  # what sizes alone decide, without a profile
ASKED = (VCPUS, DRIVER, OWN)  # none of which keeps out an instance that needs nothing of it


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """H hosts of C classes and K kinds of instances; instances of a kind are alike in everything that a plan considers.

    `kinds` (K,) has one instance of each kind, `ids_of_kind` (K,) the ids of its movable instances. `current_host` maps
    movable instances to their host, None = to be placed. `fixed` and `initial` (H,) are the fixed and the movable
    instances of each host as kinds; `waiting` are those to be placed. `classes` (C,) has one host of each class,
    `class_of_host` (H,) the class of each host. `allowed` (K, H) is what the filters allow once all movable instances
    are gone. `room` (H, 5) and `needs` (K, C, 5) are vCPUs, MB of memory, GB of disk, CPUs of the driver domain and
    pCPUs of dedicated vCPUs; `cpus` (K, C) are the mean demand of a kind for CPUs.
    `min_ratio` (C, K) is the lowest T/B that a kind must keep (`required_ratios_of`), `max_latency` (K,) its highest
    accepted latency ratio, and `max_short` (K,) the longest part of the time short of CPU, inf = any. `exclusive_kinds`
    require a host for themselves. `anti_affinity` has the groups of each kind that is in some, and how many of each may
    come to share a host. `counted_needs` are what kinds need of things that are counted, `counted_room` (H,) what hosts
    have of them.
    """

    snapshot: ClusterSnapshot
    table: ProfileTable
    kinds: tuple[Instance, ...]
    ids_of_kind: tuple[tuple[str, ...], ...]
    current_host: dict[str, str | None]
    fixed: tuple[Kinds, ...]
    initial: tuple[Kinds, ...]
    waiting: Kinds
    classes: tuple[Host, ...]
    class_of_host: Ints
    allowed: Bools
    room: Floats
    needs: Floats
    cpus: Floats
    min_ratio: Floats
    max_latency: Floats
    max_short: Floats
    anti_affinity: Mapping[int, tuple[tuple[str, int], ...]]
    counted_needs: Mapping[int, Mapping[str, float]]
    counted_room: Sequence[Mapping[str, float]]
    exclusive_kinds: frozenset[int]
    # As plain Python values, because `fits` runs a hundred thousand times: `needs` by class, and `room` with slack.
    needs_by_class: Sequence[Sequence[tuple[float, ...]]]
    room_with_slack: Sequence[tuple[float, ...]]

    @property
    def hosts(self) -> int:
        return len(self.fixed)

    def used(self, host: int, kinds: Kinds) -> Floats:
        """What these kinds need on a host, (5,)."""
        return np.asarray(self.needs[list(kinds), self.class_of_host[host]].sum(axis=0))

    def fits(self, host: int, movers: Kinds) -> bool:
        """Whether these movers fit beside the fixed instances; always True where none of them is new to the host."""
        left = list(self.initial[host])
        came: list[int] = []
        for kind in movers:
            if kind in left:
                left.remove(kind)
            else:
                came.append(kind)
        if not came:
            return True
        all_kinds = (*self.fixed[host], *movers)
        if self.anti_affinity and self._group_shared(all_kinds, came):
            return False
        if self.counted_needs and not self.has_counted(host, all_kinds, came):
            return False
        if not all(self.allowed[kind, host] for kind in came):
            return False
        if len(all_kinds) > 1 and not self.exclusive_kinds.isdisjoint(all_kinds):
            return False
        needs = self.needs_by_class[self.class_of_host[host]]
        used = tuple(map(sum, zip(*(needs[kind] for kind in all_kinds), strict=True)))
        room = self.room_with_slack[host]
        if used[MEMORY] > room[MEMORY] or used[DISK] > room[DISK]:
            return False
        return not any(used[one] > room[one] and any(needs[kind][one] > 0 for kind in came) for one in ASKED)

    def _group_shared(self, all_kinds: Kinds, came: Sequence[int]) -> bool:
        """Whether one of who came is beside another one of its anti-affinity group."""
        found = [entry for kind in all_kinds for entry in self.anti_affinity.get(kind, ())]
        members = Counter(group for group, _ in found)
        most = {group: min(some for other, some in found if other == group) for group in members}
        groups = {group for kind in came for group, _ in self.anti_affinity.get(kind, ())}
        return any(members[group] > most[group] for group in groups)

    def has_counted(self, host: int, all_kinds: Iterable[int], came: Iterable[int]) -> bool:
        """Whether a host has what all these need of the counted things that those that came need."""
        names = {name for kind in came for name in self.counted_needs.get(kind, ())}
        if not names:
            return True
        needs = [self.counted_needs[kind] for kind in all_kinds if kind in self.counted_needs]
        room = self.counted_room[host]
        return all(sum(each.get(name, 0.0) for each in needs) <= with_slack(room.get(name, 0.0)) for name in names)


def build_problem(snapshot: ClusterSnapshot, goal: Goal, fresh_s: float) -> PackingProblem:
    """Sort a cloud into kinds and classes, and run the placement filters for each.

    The filters see the cloud without movable instances; room and sharing, which depend on these, are checked by `fits`.
    Residents stay on hypervisors of their kind: a move does not turn a container into a virtual machine.
    """
    movers = _movers(snapshot, goal)
    bare = snapshot
    if movers:
        bare = snapshot.without(instance.id for instance in movers)
    kind_of_host = {host.id: host.kind for host in snapshot.hosts}
    number: dict[tuple[object, ...], int] = {}
    kinds: list[Instance] = []
    members: list[list[str]] = []
    came: list[str | None] = []

    def kind(instance: Instance, moves: bool, resident: bool) -> int:
        instance = without_soft(instance) if instance.id in goal.soft_off else instance
        host_kind = kind_of_host.get(instance.host or "") if resident else None
        key = (
            moves, host_kind, instance.workload, instance.vcpus, instance.memory_mb, instance.disk_gb,
            instance.load, instance.settings, instance.service, instance.dedicated_vcpus,
            instance.min_throughput_ratio, instance.max_latency_ratio, instance.max_time_short, instance.exclusive,
            rule_key(instance), instance.demand_key, goal.targets_of.get(instance.id) if moves else None,
            (instance.labels.get(DIRTY_LABEL), instance.labels.get(LOCAL_STORAGE)) if moves else None,
        )  # fmt: skip
        if key not in number:
            number[key] = len(kinds)
            kinds.append(replace(instance, host=None))
            members.append([])
            came.append(host_kind if moves else None)
        return number[key]

    moving = {instance.id for instance in movers}
    fixed = tuple(tuple(sorted(kind(instance, False, True) for instance in residents)) for residents in bare.residents)
    initial: list[list[int]] = [[] for _ in snapshot.hosts]
    current_host: dict[str, str | None] = {}
    waiting = []
    for instance in (*goal.new_vms, *movers):
        kind_number = kind(instance, True, instance.id in moving)
        members[kind_number].append(instance.id)
        stays = instance.host not in goal.emptied and instance.id not in goal.leaving
        current_host[instance.id] = instance.host if instance.id in moving and stays else None
        if current_host[instance.id] is None:
            waiting.append(kind_number)
        else:
            initial[snapshot.names.positions[instance.host or ""]].append(kind_number)
    allowed = allowed_hosts(
        bare, goal, kinds, {at: host_kind for at, host_kind in enumerate(came) if members[at]}, fresh_s
    )
    for at, ids in enumerate(members):
        if ids and ids[0] in goal.targets_of:
            allowed[at] &= np.array([host.id in goal.targets_of[ids[0]] for host in snapshot.hosts])
        if ids and has_soft(kinds[at]):
            kept, _ = filters.preferred(bare, kinds[at], np.flatnonzero(allowed[at]).tolist())
            allowed[at] = np.isin(np.arange(len(snapshot.hosts)), kept)
    classes, class_of_host = _classes(snapshot.hosts)
    needs, cpus = _needs(kinds, classes, snapshot.scenes.table)
    rooms = (
        snapshot.room_vcpus, snapshot.room_memory_mb, snapshot.room_disk_gb, snapshot.room_driver_cpus,
        snapshot.room_own,
    )  # fmt: skip
    room = np.stack(rooms, axis=1)
    return PackingProblem(
        snapshot=snapshot,
        table=snapshot.scenes.table,
        kinds=tuple(kinds),
        ids_of_kind=tuple(tuple(ids) for ids in members),
        current_host=current_host,
        fixed=fixed,
        initial=tuple(tuple(sorted(movers_here)) for movers_here in initial),
        waiting=tuple(waiting),
        classes=classes,
        class_of_host=class_of_host,
        allowed=allowed,
        room=room,
        needs=needs,
        cpus=cpus,
        min_ratio=_limits(kinds, classes, snapshot.scenes.table, goal.keep_ratio),
        max_latency=np.array([np.inf if k.max_latency_ratio is None else k.max_latency_ratio for k in kinds]),
        max_short=np.array([np.inf if k.max_time_short is None else k.max_time_short for k in kinds]),
        anti_affinity={at: groups for at, one in enumerate(kinds) if (groups := _groups(one, goal))},
        counted_needs={at: rules_of(one).needs for at, one in enumerate(kinds) if rules_of(one).needs},
        counted_room=[has_of(host) for host in snapshot.hosts],
        needs_by_class=[[tuple(each) for each in kind_needs] for kind_needs in needs.transpose(1, 0, 2).tolist()],
        exclusive_kinds=frozenset(number for number, instance in enumerate(kinds) if instance.exclusive),
        room_with_slack=[tuple(each) for each in with_slack(room).tolist()],
    )


def _groups(instance: Instance, goal: Goal) -> tuple[tuple[str, int], ...]:
    """Its anti-affinity groups, and how many of each may share a host; a soft one, too, of which one may."""
    hard = tuple((group, instance.anti_affinity_most) for group in instance.anti_affinity_groups)
    soft = "" if instance.id in goal.soft_off else instance.labels.get(SOFT_ANTI_AFFINITY)
    return (*hard, (f"{soft} (soft)", 1)) if soft else hard


def _movers(snapshot: ClusterSnapshot, goal: Goal) -> tuple[Instance, ...]:
    """Residents that may move: none to admit, only those that leave or are on emptied hosts to evacuate.

    Pending placements cannot move because they are not there yet. Instances of an affinity group stay: migrations,
    one after the other, would part them, and Nova refuses each; those of a soft one stay where a plan only improves.
    """
    if goal.aim == "admit":
        return ()
    movers = []
    companions = Counter(
        instance.affinity_group for residents in snapshot.residents for instance in residents if instance.affinity_group
    )
    for residents in snapshot.residents:
        beside = Counter(instance.labels.get(SOFT_AFFINITY) for instance in residents)
        for instance in residents:
            if instance.id not in snapshot.names.placed or instance.id in goal.resting:
                continue
            if goal.movable is not None and instance.id not in goal.movable:
                continue
            group = instance.affinity_group
            together = group is not None and companions[group] > 1 and instance.id not in goal.leaving
            if instance.never_moves or together:
                continue
            if goal.aim == "evacuate":
                if instance.host in goal.emptied or instance.id in goal.leaving:
                    movers.append(unpinned(instance))  # its pinning names pCPUs of the host that it leaves
            elif instance.labels.get(SOFT_AFFINITY) and beside[instance.labels[SOFT_AFFINITY]] > 1:
                continue
            elif instance.settings.pinning is None or goal.movable is not None:
                movers.append(instance)
    return tuple(sorted(movers, key=lambda instance: (-instance.memory_mb, -instance.vcpus, instance.id)))


def _classes(hosts: Sequence[Host]) -> tuple[tuple[Host, ...], Ints]:
    """Groups hosts that are alike in everything a prediction depends on."""
    class_numbers: dict[str, int] = {}
    classes: list[Host] = []
    class_of_host = []
    for host in hosts:
        alike = replace(
            host, id="any", labels={}, enabled=True, disk_gb=None, cpu_overcommit=1.0, memory_overcommit=1.0,
            driver_overcommit=1.0,
        )  # fmt: skip
        key = repr(alike)
        if key not in class_numbers:
            class_numbers[key] = len(classes)
            classes.append(host)
        class_of_host.append(class_numbers[key])
    return tuple(classes), np.array(class_of_host, dtype=np.int64)


def _limits(kinds: Sequence[Instance], classes: Sequence[Host], table: ProfileTable, keep_ratio: float) -> Floats:
    pairs = [(host, instance) for host in classes for instance in kinds]
    return required_ratios_of(pairs, table, keep_ratio).reshape(len(classes), len(kinds))


def _needs(kinds: Sequence[Instance], classes: Sequence[Host], table: ProfileTable) -> tuple[Floats, Floats]:
    """What each kind needs on each class of hosts, (K, C, 5), and its demand for CPUs there, (K, C)."""
    needs, cpus = np.zeros((len(kinds), len(classes), 5)), np.zeros((len(kinds), len(classes)))
    for resource, name in ((MEMORY, "ordinary_memory_mb"), (DISK, "disk_gb"), (OWN, "dedicated_vcpus")):
        needs[:, :, resource] = np.array([getattr(instance, name) for instance in kinds], dtype=np.float64)[:, None]
    for number, host in enumerate(classes):
        needs[:, number, VCPUS] = [promised_vcpus(host, instance) for instance in kinds]
        if kinds:
            alone = demands(build_batch([(host, (instance,)) for instance in map(unpinned, kinds)], table))
            needs[:, number, DRIVER], cpus[:, number] = alone.driver[:, 0], alone.cpu[:, 0]
    return needs, cpus
