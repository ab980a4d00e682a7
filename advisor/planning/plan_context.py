"""The context of a plan request (predictor, time, progress), and one assignment carried out in stages."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from advisor import deadline, work
from advisor.deadline import Progress
from advisor.domain import Instance, PlanEnd, PlanRequest, Rejection, Search
from advisor.planning.assignment import search_summary
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.divided import assign_divided, is_divided, is_large, part_of
from advisor.planning.assignment.packing_problem import Aim, Assignment, Goal
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.planning.migration_order import InstanceChange, MigrationOrder, after_steps, schedule
from advisor.planning.migration_time import MigrationLimits
from advisor.planning.repair import Repair, Rest
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot

SEARCH_SHARE = 0.9  # share of the work in the reported progress
DETOUR_HOSTS = 64  # of a large cloud that are looked at for detours
LEAST_PAYS_S = 3600.0  # a move pays within this or within its rest, whichever is longer
PLACED_LEVEL = search_summary.LEVEL_NAMES["unplaced"]  # the deciding level where not every instance finds a host


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The predictor, clock and progress of a request.

    `fresh_s` is the accepted age of host data in seconds; `until` the end by the work done (`advisor.work`); `rest`
    which instances do not move yet, and `repair` which leave their hosts.
    """

    request: PlanRequest
    chosen: ActivePredictor
    now: datetime
    fresh_s: float
    until: float
    progress: Progress | None = None
    rest: Rest = field(default_factory=Rest)
    repair: Repair = field(default_factory=Repair)

    @classmethod
    def of(
        cls,
        request: PlanRequest,
        chosen: ActivePredictor,
        *,
        now: datetime,
        fresh_s: float,
        progress: Progress | None = None,
    ) -> PlanContext:
        """A context that ends after the request's time limit."""
        return cls(request, chosen, now, fresh_s, work.now_s() + request.time_limit_s, progress)

    @property
    def left_s(self) -> float:
        """Seconds left by the work done, at most 0 once the wall clock or the caller's deadline has stopped it."""
        left = self.until - work.now_s()
        return min(left, 0.0) if work.stopped() or deadline.left_s() <= 0 else left

    @property
    def wall_until(self) -> float:
        """When the wall clock stops it, by the monotonic clock, for searches whose work is limited of itself."""
        return time.monotonic() + min(work.wall_left_s(), deadline.left_s(), self.request.time_limit_s)

    def say(self, what: str, fraction: float) -> None:
        if self.progress:
            self.progress(what, fraction)

    def part(self, first: float, last: float) -> PlanContext:
        """A context for one part of the work; its progress is reported between these two fractions."""
        return replace(self, progress=lambda what, fraction: self.say(what, first + (last - first) * fraction))

    def assign(self, snapshot: ClusterSnapshot, aim: Aim, new_vms: Sequence[Instance]) -> Assignment:
        """The solver's answer to one goal within the time that is left."""
        whole_plan = aim == self.request.kind  # a part of a plan does not report its own progress from 0 to 1
        goal = self.goal(snapshot, aim, new_vms, max(self.left_s, 0.01))
        search = assign_divided if is_divided(snapshot, goal) else assign
        return search(
            snapshot,
            self.chosen,
            goal,
            now=self.now,
            fresh_s=self.fresh_s,
            progress=self._searching if whole_plan else None,
        )

    def goal(self, snapshot: ClusterSnapshot, aim: Aim, new_vms: Sequence[Instance], limit_s: float) -> Goal:
        """What the request demands of an assignment, within so many seconds."""
        request, rest = self.request, self.rest
        host_ids = {host.id for host in snapshot.hosts}
        targets = None if request.hosts is None else frozenset(request.hosts) & host_ids
        if rest.away:
            targets = (frozenset(host_ids) if targets is None else targets) - rest.away
        return Goal(
            aim=aim,
            new_vms=tuple(replace(instance, host=None) for instance in new_vms),
            movable=None if request.movable is None else frozenset(request.movable),
            targets=targets,
            emptied=frozenset(request.empty) & host_ids,
            resting=rest.staying(snapshot),
            leaving=frozenset(self.repair.leaving),
            targets_of=self._others(snapshot, host_ids),
            objective=request.objective,
            keep_ratio=request.keep_ratio,
            max_moves=request.max_moves,
            move_gain=request.move_gain,
            pays_within_s=max(3600 * request.rest_h, LEAST_PAYS_S),
            host_mbit=request.migration_mbit,
            time_limit_s=limit_s,
            seed=request.seed,
        )

    def _others(self, snapshot: ClusterSnapshot, host_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """Of those that leave their hosts for a repair all other hosts."""
        placed = snapshot.names.placed
        return {name: frozenset(host_ids) - {placed[name].host or ""} for name in self.repair.leaving}

    def _searching(self, what: str, fraction: float) -> None:
        """Report the solver's progress; its end is not reported because steps are still to be ordered."""
        if fraction < 1:
            self.say(what, SEARCH_SHARE * fraction)


@dataclass(frozen=True, slots=True)
class StagedAssignment:
    """An assignment as ordered steps, with refusals, the search, and by id the `former` instances."""

    ordered: MigrationOrder
    search: Search
    former: Mapping[str, Instance]
    refused: Mapping[str, tuple[Rejection, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def assign_and_stage(
    context: PlanContext, snapshot: ClusterSnapshot, aim: Aim, new_vms: Sequence[Instance] = ()
) -> StagedAssignment:
    """Find an assignment and order its changes in stages.

    New VMs that already run are placed again. They stay where no host is better or none takes them.
    """
    former = {instance.id: instance for residents in snapshot.residents for instance in residents}
    assignment = _assigned(context, snapshot, aim, new_vms, former)
    context.say("putting steps in order", SEARCH_SHARE)
    changes = [
        replace(change, why=context.repair.leaving.get(change.then.id, "")) for change in changes_of(assignment, former)
    ]
    ordered = stage_changes(context, snapshot, changes)
    refused = {
        name: _hosts_beside(context, assignment, name) for name, host in assignment.where.items() if host is None
    }
    not_emptied = any(
        residents and host.id in context.request.empty
        for host, residents in zip(assignment.after.hosts, assignment.after.residents, strict=True)
    )
    search = _of_those_who_can(context, assignment, aim, ordered) if ordered.stuck else assignment.search
    search = replace(search, ended="in the way") if not_emptied and search.ended != "time" else search
    return StagedAssignment(ordered, search, former, refused, (*assignment.notes, *unmet_notes(ordered, former)))


def _assigned(
    context: PlanContext,
    snapshot: ClusterSnapshot,
    aim: Aim,
    new_vms: Sequence[Instance],
    former: Mapping[str, Instance],
) -> Assignment:
    """An assignment in which no instance takes the room of one that has to stay.

    A new VM that already runs, finds no host and therefore stays keeps its room: the others are assigned again. It
    counts as placed if it asks for nothing but what it has.
    """
    assignment = context.assign(snapshot, aim, new_vms)
    staying = {
        instance.id: instance for instance in new_vms if instance.id in former and assignment.where[instance.id] is None
    }
    if not staying:
        return assignment
    rest = [instance for instance in new_vms if instance.id not in staying]
    second = _assigned(replace(context, progress=None), snapshot, aim, rest, former)
    where = dict(second.where)
    notes = list(second.notes)
    for name, instance in staying.items():
        host = former[name].host
        where[name] = host if replace(instance, host=host) == former[name] else None
        if where[name] is None:
            notes.append(f"{name} stays as it is on {host}: no host takes it with the requested size and settings.")
    reasons = {**assignment.refused, **second.refused}
    return replace(
        second,
        where={instance.id: where[instance.id] for instance in new_vms},
        refused={name: reasons[name] for name, host in where.items() if host is None},
        search=_of_both(assignment.search, second.search, where),
        notes=tuple(notes),
    )


def _of_both(first: Search, second: Search, where: Mapping[str, str | None]) -> Search:
    """The number placed in the end, with the first search's bound, because more was free then."""
    placed = float(sum(host is not None for host in where.values()))
    bound = max(first.bound, placed)
    ended: PlanEnd = "in the way" if placed < len(where) else "search"
    ended = "time" if "time" in {first.ended, second.ended} else ended
    return Search(PLACED_LEVEL, placed, bound, (bound - placed) / (bound or 1.0), ended)


def unmet_notes(ordered: MigrationOrder, former: Collection[str]) -> Iterator[str]:
    """A note for each instance that no order of steps brings to its host without breaking a limit."""
    intermediate = {step.change.then.id: step.change.then.host for step in ordered.scheduled if step.between}
    for name, why in sorted(ordered.stuck.items()):
        outcome = f"stays on {intermediate[name]}" if name in intermediate else "stays as it is"
        yield f"{name} {outcome if name in former else 'is not placed'}: {why}."


def _of_those_who_can(context: PlanContext, assignment: Assignment, aim: Aim, ordered: MigrationOrder) -> Search:
    """The search result where some of the changes cannot be carried out."""
    search, after = assignment.search, ordered.after
    if aim == "rebalance":
        below = CloudEvaluation.of(after, context.chosen.predictor).below(context.request.keep_ratio)
        value, bound = float(len(below)), search.bound
    elif aim == "consolidate":
        value, bound = float(sum(bool(residents) for residents in after.residents)), search.bound
    else:
        missing = {name for name, host in assignment.where.items() if host is None} | ordered.stuck.keys()
        value = float(len(assignment.where) - len(missing))
        bound = search.bound if search.aim == PLACED_LEVEL else float(len(assignment.where))
        search = replace(search, aim=PLACED_LEVEL)
    return replace(search, value=value, bound=bound, gap=abs(value - bound) / (bound or 1.0), ended="in the way")


def _hosts_beside(context: PlanContext, assignment: Assignment, name: str) -> tuple[Rejection, ...]:
    """The reasons of hosts that are not being emptied."""
    return tuple(
        rejection for rejection in assignment.refused.get(name, ()) if rejection.host not in context.request.empty
    )


def changes_of(assignment: Assignment, former: Mapping[str, Instance]) -> list[InstanceChange]:
    """The changes that an assignment makes, in its order."""
    placed = assignment.after.names.placed
    placements = [(name, placed[name]) for name, host in assignment.where.items() if host is not None]
    return [InstanceChange(then, former.get(name), assignment.gains.get(name)) for name, then in placements]


def stage_changes(context: PlanContext, snapshot: ClusterSnapshot, changes: Sequence[InstanceChange]) -> MigrationOrder:
    """Order changes in stages as the request demands.

    In a large cloud the order sees the hosts that change, and some of the least busy ones for detours.
    """
    request, whole = context.request, snapshot
    if is_large(whole):
        snapshot = part_of(whole, _concerned(whole, changes))
    silent = snapshot.is_silent(context.fresh_s).tolist()
    usable = {host.id for host, is_silent in zip(snapshot.hosts, silent, strict=True) if not is_silent}
    if request.hosts is not None:
        usable &= set(request.hosts)
    ordered = schedule(
        snapshot,
        changes,
        context.chosen.predictor,
        keep_ratio=request.keep_ratio,
        limits=MigrationLimits.of(request),
        between=usable - set(request.empty) - context.rest.away,
        most_moves=request.max_moves,
    )
    return ordered if snapshot is whole else replace(ordered, after=after_steps(whole, ordered.scheduled))


def _concerned(snapshot: ClusterSnapshot, changes: Sequence[InstanceChange]) -> list[int]:
    """The positions of hosts that changes touch, and of those with the most memory free, for detours."""
    ends = (one for change in changes for one in (change.then, change.former) if one is not None)
    touched = {snapshot.names.positions[one.host] for one in ends if one.host is not None}
    free = snapshot.room_memory_mb - snapshot.used_memory_mb
    return sorted(touched.union(np.argsort(-free, kind="stable")[:DETOUR_HOSTS].tolist()))
