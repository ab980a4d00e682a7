"""A plan of a large cloud in groups of hosts: which hosts one search gets, and the groups' results as one assignment.

Rules between instances are about hosts, and every group has whole hosts with all their instances, so that the merged
plan breaks no rule that no search breaks inside its group.
"""

from __future__ import annotations

import copyreg
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import numpy as np

from advisor import deadline, work
from advisor.background import one_thread_for_products, spread
from advisor.deadline import Progress
from advisor.domain import Instance, Inventory, Rejection, unpinned
from advisor.domain.plans import PlanEnd, Search
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.packing_problem import Assignment, Goal
from advisor.planning.assignment.search_summary import (
    LEVEL_NAMES,
    apply_assignment,
    below_sentences,
    refused_sentences,
)
from advisor.prediction.active import ActivePredictor, PredictorProxy, ValidatingPredictor
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure_array
from models.executor import usable_cpus
from models.prediction import Predictor

# Which hosts are planned together.

GROUP_HOSTS = 250  # of one search at most: its memory and its time grow with hosts times instances
DIVIDING = ("source", "zone", "pool", "cluster")  # labels of hosts, the widest first
MOVES_OF_HOST = 4  # that a host is taken to need where `max_moves` is shared out
WORK_AT_ONCE = 2  # groups together have the work of so many searches
ELSEWHERE = 0.25  # of the work of a search, for what finds no host in its group
MOST_NOTES = 10  # of all groups

Positions = tuple[int, ...]


def is_large(snapshot: ClusterSnapshot) -> bool:
    """Whether a cloud has more hosts than one search is given."""
    return len(snapshot.hosts) > GROUP_HOSTS


def is_divided(snapshot: ClusterSnapshot, goal: Goal) -> bool:
    """Whether a goal is reached group by group: new VMs may go anywhere, so they are not shared out."""
    return is_large(snapshot) and goal.aim != "admit"


def groups_of_hosts(snapshot: ClusterSnapshot, goal: Goal) -> list[Positions]:
    """The positions of hosts that are planned together, each host in one group.

    A part of the cloud that is too large for one search is divided by the first label of DIVIDING that divides it, and
    without any into groups with busy hosts and idle ones alike. Small parts are planned together. Hosts stay together
    that have instances of an affinity group which a repair brings together.
    """
    load = np.nan_to_num(pressure_array(snapshot)[:, 0], nan=0.0) if snapshot.hosts else np.zeros(0)
    units = _linked(snapshot, goal)
    groups: list[list[int]] = []
    for part in _parts(snapshot, units, DIVIDING):
        size = sum(map(len, part))
        if groups and len(groups[-1]) + size <= GROUP_HOSTS:
            groups[-1] += [at for unit in part for at in unit]
        elif size <= GROUP_HOSTS:
            groups.append([at for unit in part for at in unit])
        else:
            groups += _dealt(part, load, -(-size // GROUP_HOSTS))
    return [tuple(sorted(group)) for group in groups]


Units = list[list[int]]  # hosts that stay together, each a list of positions


def _linked(snapshot: ClusterSnapshot, goal: Goal) -> Units:
    """Single hosts, and those together between which a repair moves instances of an affinity group."""
    first = list(range(len(snapshot.hosts)))

    def root(at: int) -> int:
        while first[at] != at:
            at = first[at]
        return at

    groups = {one.affinity_group for name in goal.leaving if (one := snapshot.names.placed.get(name)) is not None}
    met: dict[str, int] = {}
    for at, residents in enumerate(snapshot.residents if groups - {None} else ()):
        for one in residents:
            if one.affinity_group is not None and one.affinity_group in groups:
                other = met.setdefault(one.affinity_group, at)
                low, high = sorted((root(other), root(at)))
                first[high] = low
    units: dict[int, list[int]] = {}
    for at in range(len(first)):
        units.setdefault(root(at), []).append(at)
    return list(units.values())


def _parts(snapshot: ClusterSnapshot, units: Units, labels: Sequence[str]) -> list[Units]:
    """Parts of the cloud by their labels, divided no further than is needed."""
    if sum(map(len, units)) <= GROUP_HOSTS or not labels:
        return [units]
    by_value: dict[str, Units] = {}
    for unit in units:
        by_value.setdefault(snapshot.hosts[unit[0]].labels.get(labels[0], ""), []).append(unit)
    return [part for value in sorted(by_value) for part in _parts(snapshot, by_value[value], labels[1:])]


def _dealt(units: Units, load: np.ndarray, count: int) -> list[list[int]]:
    """Units in so many groups, to and fro in the order of load, so that each has its part of the busy and the idle."""
    groups: list[list[int]] = [[] for _ in range(count)]
    order = sorted(units, key=lambda unit: (-max(float(load[at]) for at in unit), unit[0]))
    for number, unit in enumerate(order):
        turn, at = divmod(number, count)
        groups[at if turn % 2 == 0 else count - 1 - at] += unit
    return groups


def part_of(snapshot: ClusterSnapshot, positions: Iterable[int]) -> ClusterSnapshot:
    """A cloud of these hosts with their instances, each with the demand that it counts with in the whole cloud."""
    return _Rows.of(snapshot, tuple(positions)).snapshot()


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a process needs to lay out a part of a cloud."""

    inventory: Inventory
    coming: tuple[Instance, ...]
    seen: Mapping[str, datetime | None]
    patience: Mapping[str, float]
    subjects: Mapping[str, int]
    taken_at: datetime

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, positions: Positions) -> _Rows:
        names, hosts = snapshot.names, [snapshot.hosts[at] for at in positions]
        placed: list[Instance] = []
        coming: list[Instance] = []
        for at in positions:
            for one in snapshot.residents[at]:
                (placed if one.id in names.placed else coming).append(one)
        ticks = {host.id: int(names.seen[at]) for at, host in zip(positions, hosts, strict=True)}
        patience = {host.id: float(names.patience[at]) for at, host in zip(positions, hosts, strict=True)}
        return cls(
            Inventory(tuple(hosts), tuple(placed), snapshot.workloads),
            tuple(coming),
            {name: None if tick < 0 else _EPOCH + timedelta(microseconds=tick) for name, tick in ticks.items()},
            patience,
            dict(snapshot.scenes.table.subjects),
            snapshot.taken_at,
        )

    def snapshot(self) -> ClusterSnapshot:
        return ClusterSnapshot.build(
            self.inventory,
            seen=self.seen,
            pending=self.coming,
            taken_at=self.taken_at,
            patience=self.patience,
            subjects=self.subjects,
        )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _read_only(values: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(values)


# Labels and demands of instances without any are mappings that cannot be sent to a process unless it is said how.
copyreg.pickle(MappingProxyType, lambda values: (_read_only, (dict(values),)))

# One search for each group, in processes.


@dataclass(frozen=True, slots=True)
class _Task:
    """The search of one group; `wall_s` is how long it may take and `ends_s` when all have to be done (monotonic);
    `asked_by` is the process of the plan."""

    rows: _Rows
    goal: Goal
    predictor: Predictor
    now: datetime
    fresh_s: float
    wall_s: float
    ends_s: float
    asked_by: int = field(default_factory=os.getpid)


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of one search, without the cloud afterwards; `slots` is the work that it took."""

    assignment: Assignment
    slots: float
    stopped: bool


def _searched(task: _Task) -> _Found:
    """Search one group; runs in a process of its own, or here where only one group is searched."""
    if os.getpid() != task.asked_by:
        one_thread_for_products()
        os.nice(max(10 - os.nice(0), 0))  # who asks the service for a place goes first
    snapshot = task.rows.snapshot()
    answering = ActivePredictor(ValidatingPredictor(task.predictor))
    left_s = max(min(task.wall_s, task.ends_s - time.monotonic()), 0.01)
    with work.counted(answering, left_s) as counted:
        found = assign(snapshot, counted, task.goal, now=task.now, fresh_s=task.fresh_s)
        hosts = [host.id for host in snapshot.hosts]
        of_group = {*below_sentences(found.below), *refused_sentences(task.goal, found.refused, hosts)}
        notes = tuple(note for note in found.notes if note not in of_group)  # these are said of the whole cloud
        return _Found(replace(found, after=_NO_CLOUD, notes=notes), work.slots(), work.stopped())


_NO_CLOUD = ClusterSnapshot.build(Inventory(), seen={}, pending=(), taken_at=_EPOCH)


def assign_divided(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    goal: Goal,
    *,
    now: datetime,
    fresh_s: float,
    progress: Progress | None = None,
) -> Assignment:
    """As `assign`, of a cloud in groups of hosts that are searched at the same time.

    The groups share twice the work of the time limit by their instances that may move, and `max_moves` by how busy
    their hosts are, so that the answer depends neither on the number of processes nor on which is done first. What
    leaves a host and finds none in its group is searched for once more, among the hosts of all groups with the most
    room.
    """
    search = _DividedSearch(snapshot, chosen, _without_parted(snapshot, goal), now, fresh_s, progress)
    return search.answer()


def _without_parted(snapshot: ClusterSnapshot, goal: Goal) -> Goal:
    """Instances of affinity groups stay, wherever the others of theirs are, unless a repair moves them."""
    there = [one for residents in snapshot.residents for one in residents if one.affinity_group is not None]
    companions = Counter(one.affinity_group for one in there)
    staying = {one.id for one in there if companions[one.affinity_group] > 1 and one.id not in goal.leaving}
    return replace(goal, resting=goal.resting | staying)


@dataclass(frozen=True, slots=True)
class _DividedSearch:
    """One goal on a cloud in groups."""

    snapshot: ClusterSnapshot
    chosen: ActivePredictor
    goal: Goal
    now: datetime
    fresh_s: float
    progress: Progress | None

    def answer(self) -> Assignment:
        goal, snapshot = self.goal, self.snapshot
        groups = groups_of_hosts(snapshot, goal)
        searched = [group for group in groups if goal.aim != "evacuate" or self._weight(group)]
        results = self._run(searched, goal) if searched else []
        found = [result.assignment for result in results]
        where = {name: host for one in found for name, host in one.where.items()}
        refused = {name: why for one in found for name, why in one.refused.items()}
        left = frozenset(name for name, host in where.items() if host is None)
        after = self._after(where)
        if left and not any(result.stopped for result in results):
            more = self._elsewhere(after, left, groups)
            found.append(more)
            where |= more.where
            refused = _beside(refused, more.refused)
            after = self._after(where)
        refused = {name: why for name, why in refused.items() if where[name] is None}
        below = _left_below(found)
        return Assignment(
            where=where,
            refused=refused,
            gains={name: gain for one in found for name, gain in one.gains.items()},
            settings={name: settings for one in found for name, settings in one.settings.items()},
            after=after,
            search=_as_one([one.search for one in found], goal, where, after),
            notes=(
                _how(groups, len(searched), snapshot),
                *refused_sentences(goal, refused, [host.id for host in snapshot.hosts]),
                *below_sentences(below),
                *_few([note for one in found for note in one.notes]),
            ),
            below=below,
        )

    def _weight(self, group: Positions) -> int:
        """How many instances of a group may move, or are to leave their hosts."""
        goal = self.goal
        residents = [(self.snapshot.hosts[at].id, one.id) for at in group for one in self.snapshot.residents[at]]
        if goal.aim == "evacuate":
            return sum(host in goal.emptied or name in goal.leaving for host, name in residents)
        return sum((goal.movable is None or name in goal.movable) and name not in goal.resting for _, name in residents)

    def _run(self, groups: Sequence[Positions], goal: Goal) -> list[_Found]:
        """Search the groups, as many at a time as there are CPUs."""
        weights = [self._weight(group) for group in groups]
        shares = [(weight + 1) / (sum(weights) + len(weights)) for weight in weights]
        moves = _moves_of_groups(self.snapshot, groups, goal)
        wall_s = min(work.wall_left_s(), deadline.left_s())
        turns = -(-len(groups) // min(usable_cpus(), len(groups)))
        ends_s = time.monotonic() + wall_s
        tasks = [
            self._task(
                self.snapshot,
                group,
                replace(goal, max_moves=most, time_limit_s=min(WORK_AT_ONCE * share, 1.0) * goal.time_limit_s),
                wall_s / turns,
                ends_s,
            )
            for group, share, most in zip(groups, shares, moves, strict=True)
        ]

        def say(_: str, share: float) -> None:
            if self.progress:
                done = round(share * len(groups))
                self.progress(f"searching: {done} of {len(groups)} groups of hosts done", 0.1 + 0.8 * share)

        results = spread(_searched, tasks, progress=say)
        self._count(results)
        return results

    def _count(self, results: Iterable[_Found]) -> None:
        work.add(sum(result.slots for result in results) / WORK_AT_ONCE)
        if any(result.stopped for result in results):
            work.stop()

    def _task(self, snapshot: ClusterSnapshot, group: Positions, goal: Goal, wall_s: float, ends_s: float) -> _Task:
        there = {snapshot.hosts[at].id for at in group}
        ids = {one.id for at in group for one in snapshot.residents[at]}
        own = replace(
            goal,
            movable=None if goal.movable is None else goal.movable & ids,
            targets=None if goal.targets is None else goal.targets & there,
            targets_of={name: hosts & there for name, hosts in goal.targets_of.items() if name in ids},
            emptied=goal.emptied & there,
            resting=goal.resting & ids,
            leaving=goal.leaving & ids,
        )
        predictor = _plain(self.chosen.predictor)
        return _Task(_Rows.of(snapshot, group), own, predictor, self.now, self.fresh_s, wall_s, ends_s)

    def _elsewhere(self, after: ClusterSnapshot, left: frozenset[str], groups: Sequence[Positions]) -> Assignment:
        """The search for those that found no host in their group, among the hosts with the most memory free."""
        placed = self.snapshot.names.placed
        sources = {self.snapshot.names.positions[placed[name].host or ""] for name in left}
        former = {at for group in groups if sources & set(group) for at in group}
        free = with_slack(after.room_memory_mb) - after.used_memory_mb
        others = sorted(set(range(len(after.hosts))) - sources, key=lambda at: (at in former, -float(free[at]), at))
        group = tuple(sorted((*sources, *others[: max(GROUP_HOSTS - len(sources), 1)])))
        goal = replace(self.goal, movable=left, time_limit_s=ELSEWHERE * self.goal.time_limit_s)
        wall_s = min(work.wall_left_s(), deadline.left_s())
        result = _searched(self._task(after, group, goal, wall_s, time.monotonic() + wall_s))
        self._count([result])
        return result.assignment

    def _after(self, where: Mapping[str, str | None]) -> ClusterSnapshot:
        before = {one.id: one for residents in self.snapshot.residents for one in residents if one.id in where}
        if self.goal.aim == "evacuate":
            before = {name: unpinned(one) if where[name] is not None else one for name, one in before.items()}
        return apply_assignment(self.snapshot, before, dict(where))


def _plain(predictor: Predictor) -> Predictor:
    """A predictor without what counts and guards it here; the process that gets it counts and guards anew."""
    while isinstance(predictor, PredictorProxy):
        predictor = predictor.predictor
    return predictor


def _moves_of_groups(snapshot: ClusterSnapshot, groups: Sequence[Positions], goal: Goal) -> Sequence[int | None]:
    """How many of `max_moves` each group has: those of the busiest hosts first, to consolidate of the emptiest."""
    if goal.max_moves is None or goal.aim == "evacuate":
        return [goal.max_moves] * len(groups)
    group_of = {at: number for number, group in enumerate(groups) for at in group}
    load = np.nan_to_num(pressure_array(snapshot)[:, 0], nan=0.0)
    if goal.aim == "consolidate":
        order = sorted(group_of, key=lambda at: (len(snapshot.residents[at]), float(load[at]), at))
        turns = [(at, len(snapshot.residents[at])) for at in order]  # a host is emptied or not
    else:
        order = sorted(group_of, key=lambda at: (-float(load[at]), at))
        turns = [(at, 1) for turn in range(MOVES_OF_HOST) for at in order if len(snapshot.residents[at]) > turn]
    left, moves = goal.max_moves, [0] * len(groups)
    for at, needed in turns:
        taken = min(needed, left)
        moves[group_of[at]] += taken
        left -= taken
    for number in range(len(groups)):  # more than all hosts are taken to need
        moves[number] += left // len(groups) + (number < left % len(groups))
    return moves


def _beside(
    first: Mapping[str, tuple[Rejection, ...]], second: Mapping[str, tuple[Rejection, ...]]
) -> dict[str, tuple[Rejection, ...]]:
    """The reasons of both searches, one of each host: the later one."""
    found = dict(first)
    for name, reasons in second.items():
        by_host = {one.host: one for one in (*found.get(name, ()), *reasons)}
        found[name] = tuple(by_host[host] for host in sorted(by_host))
    return found


# The results as one.


def _as_one(found: Sequence[Search], goal: Goal, where: Mapping[str, str | None], after: ClusterSnapshot) -> Search:
    """What all searches reach together, with a bound that holds for plans that do not divide the cloud."""
    ends = {one.ended for one in found}
    ended: PlanEnd = next((end for end in _WORST_FIRST if end in ends), "already fine")
    if goal.aim == "evacuate":
        placed, asked = sum(host is not None for host in where.values()), len(where)
        if placed < asked:
            ended = "time" if "time" in ends else "in the way"
        elif where:
            ended = "time" if "time" in ends else "search"
        return _search(LEVEL_NAMES["unplaced"], placed, asked, ended)
    if goal.aim == "consolidate":
        used = sum(bool(residents) for residents in after.residents)
        least = _least_hosts(after)
        if ended == "already fine" and used > least:
            ended = "search"
        return _search(LEVEL_NAMES["used"], used, min(least, used), ended)
    return _search(LEVEL_NAMES["below"], sum(one.value for one in found), 0.0, ended)


_WORST_FIRST: tuple[PlanEnd, ...] = ("time", "in the way", "search", "optimal")


def _search(aim: str, value: float, bound: float, ended: PlanEnd) -> Search:
    ended = "search" if ended == "optimal" else ended  # proven of each group alone
    return Search(aim, float(value), float(bound), abs(value - bound) / (bound or 1.0), ended)


def _least_hosts(snapshot: ClusterSnapshot) -> int:
    """How many hosts all instances need by vCPUs, memory and disk, if they could be split; the largest hosts first."""
    least = int(any(snapshot.residents))
    for used, room in (
        (snapshot.used_vcpus, snapshot.room_vcpus),
        (snapshot.used_memory_mb, snapshot.room_memory_mb),
        (snapshot.used_disk_gb, snapshot.room_disk_gb),
    ):
        rooms = np.cumsum(np.sort(with_slack(room))[::-1])
        if used.sum() > 0:
            least = max(least, int((rooms < used.sum()).sum()) + 1)
    return min(least, len(snapshot.hosts))


def _how(groups: Sequence[Positions], searched: int, snapshot: ClusterSnapshot) -> str:
    """How the cloud was divided, as a sentence."""
    largest = max(map(len, groups))
    labels = [
        label
        for label in DIVIDING
        if len({host.labels.get(label) for host in snapshot.hosts}) > 1
        and all(len({snapshot.hosts[at].labels.get(label) for at in group}) == 1 for group in groups)
    ]
    by = f" by {' and '.join(labels)}" if labels else ""
    some = "" if searched == len(groups) else f" {searched:,} of them had something to move."
    return (
        f"The cloud was planned in {len(groups):,} groups of up to {largest:,} hosts{by}; instances move within their "
        f"group.{some}"
    )


def _left_below(found: Sequence[Assignment]) -> dict[str, tuple[int, float, str]]:
    """What is left below a limit in all groups together."""
    left: dict[str, tuple[int, float, str]] = {}
    for cause, (count, ratio, host) in (entry for one in found for entry in one.below.items()):
        so_far, lowest, worst = left.get(cause, (0, math.inf, ""))
        left[cause] = (so_far + count, *min((ratio, host), (lowest, worst)))
    return left


def _few(notes: Sequence[str]) -> list[str]:
    """The first notes of all groups."""
    different = list(dict.fromkeys(notes))
    if len(different) <= MOST_NOTES:
        return different
    return [*different[:MOST_NOTES], f"{len(different) - MOST_NOTES:,} more notes of groups are left out."]
