"""Ground: who may go where and how much room there is, with everybody of a kind told by one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Host, Instance
from advisor.planning.assignment.allowed_hosts import allowed
from advisor.planning.assignment.goal import Goal
from advisor.planning.required_ratios import least_of
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats, Ints
from models.data.scene import ProfileTable, build_batch
from models.physics.demands import demands

Kinds = tuple[int, ...]  # a multiset of kinds, sorted

VCPUS, MEMORY, DISK, DRIVER = range(4)


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """H hosts of C classes and K kinds of instances; instances of a kind are alike in all that a plan may look at.

    `kinds` (K,) is one of each kind, `of_kind` (K,) who may move of it. `where` says on which host each that may move
    is now, None = it is to be placed. `fixed` and `start` (H,) are who must stay and who
    may move, as kinds; `waiting` those to be placed. `classes` (C,) is a host of each class, `of_class` (H,) which one
    a host is. `allowed` (K, H) is whom a filter lets in once everybody who may move has gone. `room` (H, 4) and `needs`
    (K, C, 4) are vCPUs, MB of memory, GB of disk and CPUs of the driver domain. `limit` (C, K) is the
    lowest T/B that a kind must keep (`least_of`), `latency` (K,) the highest latency ratio that it accepts, inf = any.
    """

    snapshot: ClusterSnapshot
    table: ProfileTable
    kinds: tuple[Instance, ...]
    of_kind: tuple[tuple[str, ...], ...]
    where: dict[str, str | None]
    fixed: tuple[Kinds, ...]
    start: tuple[Kinds, ...]
    waiting: Kinds
    classes: tuple[Host, ...]
    of_class: Ints
    allowed: Bools
    room: Floats
    needs: Floats
    limit: Floats
    latency: Floats
    exclusive: Bools
    # The same as plain numbers, for a hundred thousand questions about one host each: `exclusive` kinds, `needs` by
    # class, `room` with the slack of rounding.
    alone: frozenset[int]
    needed: Sequence[Sequence[tuple[float, ...]]]
    rooms: Sequence[tuple[float, ...]]

    @property
    def hosts(self) -> int:
        return len(self.fixed)

    def used(self, host: int, kinds: Kinds) -> Floats:
        """What these need on a host, (4,)."""
        return np.asarray(self.needs[list(kinds), self.of_class[host]].sum(axis=0))

    def fits(self, host: int, movers: Kinds) -> bool:
        """Whether these may be there beside who must stay: always where nobody came who was not there before."""
        left = list(self.start[host])
        came: list[int] = []
        for kind in movers:
            if kind in left:
                left.remove(kind)
            else:
                came.append(kind)
        if not came:
            return True
        everybody = (*self.fixed[host], *movers)
        if not all(self.allowed[kind, host] for kind in came):
            return False
        if len(everybody) > 1 and not self.alone.isdisjoint(everybody):
            return False
        needs = self.needed[self.of_class[host]]
        vcpus, memory, disk, driver = map(sum, zip(*(needs[kind] for kind in everybody), strict=True))
        room = self.rooms[host]
        if vcpus > room[VCPUS] or memory > room[MEMORY] or disk > room[DISK]:
            return False
        return not (driver > room[DRIVER] and any(needs[kind][DRIVER] > 0 for kind in came))


def survey(snapshot: ClusterSnapshot, goal: Goal, fresh_s: float) -> PackingProblem:
    """Sort a cloud into kinds and classes, and ask the filters of a placement who may go where.

    A filter is asked about a cloud without those who may move: what depends on them is room and company, which `fits`
    counts. A resident stays on hosts of its kind: a container does not become a machine by moving.
    """
    movers = _movers(snapshot, goal)
    bare = snapshot
    if movers:
        bare = without(snapshot, [one.id for one in movers])
    kind_of_host = {host.id: host.kind for host in snapshot.hosts}
    number: dict[tuple[object, ...], int] = {}
    kinds: list[Instance] = []
    members: list[list[str]] = []
    came: list[str | None] = []

    def kind(one: Instance, moves: bool, resident: bool) -> int:
        on = kind_of_host.get(one.host or "") if resident else None
        key = (
            moves, on, one.workload, one.vcpus, one.memory_mb, one.disk_gb, one.load, one.settings, one.service,
            one.min_throughput_ratio, one.max_latency_ratio, one.exclusive,
        )  # fmt: skip
        if key not in number:
            number[key] = len(kinds)
            kinds.append(replace(one, host=None))
            members.append([])
            came.append(on if moves else None)
        return number[key]

    moving = {one.id for one in movers}
    fixed = tuple(tuple(sorted(kind(one, False, True) for one in there)) for there in bare.residents)
    start: list[list[int]] = [[] for _ in snapshot.hosts]
    where: dict[str, str | None] = {}
    waiting = []
    for one in (*goal.newcomers, *movers):
        its = kind(one, True, one.id in moving)
        members[its].append(one.id)
        where[one.id] = one.host if one.id in moving and one.host not in goal.emptied else None
        if where[one.id] is None:
            waiting.append(its)
        else:
            start[snapshot.names.positions[one.host or ""]].append(its)
    classes, of_class = _classes(snapshot.hosts)
    needs = _needs(kinds, classes, snapshot.scenes.table)
    room = np.stack(
        [snapshot.room_vcpus, snapshot.room_memory_mb, snapshot.room_disk_gb, snapshot.room_driver_cpus], axis=1
    )
    return PackingProblem(
        snapshot=snapshot,
        table=snapshot.scenes.table,
        kinds=tuple(kinds),
        of_kind=tuple(tuple(ids) for ids in members),
        where=where,
        fixed=fixed,
        start=tuple(tuple(sorted(there)) for there in start),
        waiting=tuple(waiting),
        classes=classes,
        of_class=of_class,
        allowed=allowed(bare, goal, kinds, {at: on for at, on in enumerate(came) if members[at]}, fresh_s),
        room=room,
        needs=needs,
        limit=_limits(kinds, classes, snapshot.scenes.table, goal.keep_ratio),
        latency=np.array([np.inf if k.max_latency_ratio is None else k.max_latency_ratio for k in kinds]),
        exclusive=np.array([k.exclusive for k in kinds], dtype=bool),
        needed=[[tuple(each) for each in one] for one in needs.transpose(1, 0, 2).tolist()],
        alone=frozenset(number for number, one in enumerate(kinds) if one.exclusive),
        rooms=[tuple(each) for each in with_slack(room).tolist()],
    )


def without(snapshot: ClusterSnapshot, ids: Sequence[str]) -> ClusterSnapshot:
    """The same moment without these."""
    return snapshot.changed(
        instances=dict.fromkeys(ids), seen={}, pending=snapshot.names.coming, taken_at=snapshot.taken_at
    )


def _movers(snapshot: ClusterSnapshot, goal: Goal) -> tuple[Instance, ...]:
    """Residents that may move: nobody to admit, only who sits on an emptied host to evacuate; answers that are still
    pending stay where they are, as nothing can be moved that is not there yet."""
    if goal.aim == "admit":
        return ()
    found = []
    for there in snapshot.residents:
        for one in there:
            if one.id not in snapshot.names.placed or (goal.movable is not None and one.id not in goal.movable):
                continue
            if goal.aim == "evacuate":
                if one.host in goal.emptied:
                    found.append(one)
            elif one.settings.pinning is None or goal.movable is not None:
                found.append(one)
    return tuple(sorted(found, key=lambda one: (-one.memory_mb, -one.vcpus, one.id)))


def _classes(hosts: Sequence[Host]) -> tuple[tuple[Host, ...], Ints]:
    """Hosts alike in all that a prediction may look at."""
    number: dict[str, int] = {}
    found: list[Host] = []
    of_class = []
    for host in hosts:
        alike = replace(
            host, id="any", labels={}, enabled=True, disk_gb=None, cpu_overcommit=1.0, memory_overcommit=1.0,
            driver_overcommit=1.0,
        )  # fmt: skip
        key = repr(alike)
        if key not in number:
            number[key] = len(found)
            found.append(host)
        of_class.append(number[key])
    return tuple(found), np.array(of_class, dtype=np.int64)


def _limits(kinds: Sequence[Instance], classes: Sequence[Host], table: ProfileTable, keep_ratio: float) -> Floats:
    there = [(host, one) for host in classes for one in kinds]
    return least_of(there, table, keep_ratio).reshape(len(classes), len(kinds))


def _needs(kinds: Sequence[Instance], classes: Sequence[Host], table: ProfileTable) -> Floats:
    found = np.zeros((len(kinds), len(classes), 4))
    for column, name in ((VCPUS, "vcpus"), (MEMORY, "memory_mb"), (DISK, "disk_gb")):
        found[:, :, column] = np.array([getattr(one, name) for one in kinds], dtype=np.float64)[:, None]
    free = [replace(one, settings=replace(one.settings, pinning=None)) for one in kinds]
    for number, host in enumerate(classes):
        if kinds:
            found[:, number, DRIVER] = demands(build_batch([(host, (one,)) for one in free], table)).driver[:, 0]
    return found
