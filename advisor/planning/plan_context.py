"""Asking the solver: who answers and until when, and one question of a plan carried out in steps on a cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from advisor import deadline
from advisor.domain import Instance, PlanEnd, PlanRequest, Rejection, Search
from advisor.planning.assignment import search_summary
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.goal import Aim, Assignment, Goal
from advisor.planning.cloud_evaluation import Standing
from advisor.planning.migration_order import Change, Ordered, order
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)
SEARCHED = 0.9  # of the work, as it is told
PLACED = search_summary.AIMS["unplaced"]  # what is reached where not everybody finds a host


@dataclass(frozen=True, slots=True)
class PlanContext:
    """Who answers a request, when, how old the news of a host may be, and until when (by the monotonic clock)."""

    request: PlanRequest
    chosen: ActivePredictor
    now: datetime
    fresh_s: float
    until: float
    progress: Progress | None = None

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
        """From now on for as long as the request allows."""
        return cls(request, chosen, now, fresh_s, time.monotonic() + request.time_limit_s, progress)

    @property
    def left_s(self) -> float:
        """Seconds that are left, for a question of its own deadline's, too."""
        return min(self.until - time.monotonic(), deadline.left_s())

    def say(self, what: str, fraction: float) -> None:
        if self.progress:
            self.progress(what, fraction)

    def part(self, first: float, last: float) -> PlanContext:
        """The same as one part of the work: all that it says lies between these two fractions."""
        return replace(self, progress=lambda what, fraction: self.say(what, first + (last - first) * fraction))

    def assign(
        self, snapshot: ClusterSnapshot, aim: Aim, newcomers: Sequence[Instance] = (), *, at_most_s: float | None = None
    ) -> Assignment:
        """The solver's answer to one question within the time that is left, or `at_most_s` of it."""
        request = self.request
        limit = max(self.left_s, 0.01) if at_most_s is None else max(min(self.left_s, at_most_s), 0.01)
        there = {host.id for host in snapshot.hosts}
        goal = Goal(
            aim=aim,
            newcomers=tuple(replace(one, host=None) for one in newcomers),
            movable=None if request.movable is None else frozenset(request.movable),
            targets=None if request.hosts is None else frozenset(request.hosts) & there,
            emptied=frozenset(request.empty) & there,
            objective=request.objective,
            keep_ratio=request.keep_ratio,
            max_moves=request.max_moves,
            move_gain=request.move_gain,
            time_limit_s=limit,
            seed=request.seed,
        )
        alone = aim == request.kind  # the progress of one of many questions would begin anew with each
        return assign(
            snapshot,
            self.chosen,
            goal,
            now=self.now,
            fresh_s=self.fresh_s,
            progress=self._searching if alone else None,
        )

    def _searching(self, what: str, fraction: float) -> None:
        """What the solver says; when it is done, steps are still to be put in order."""
        if fraction < 1:
            self.say(what, SEARCHED * fraction)


@dataclass(frozen=True, slots=True)
class Solved:
    """A question carried out: in which order, who found no host and why, and how it was found. `former` are those who
    were there before, by id."""

    ordered: Ordered
    search: Search
    former: Mapping[str, Instance]
    refused: Mapping[str, tuple[Rejection, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def solve(asking: PlanContext, snapshot: ClusterSnapshot, aim: Aim, newcomers: Sequence[Instance] = ()) -> Solved:
    """Ask, and put what comes of it into steps.

    Who is to be placed and is there already is placed anew: where no host is better than its own, or none takes it, it
    stays.
    """
    former = {one.id: one for there in snapshot.residents for one in there}
    found = _assigned(asking, snapshot, aim, newcomers, former)
    asking.say("putting steps in order", SEARCHED)
    ordered = put_in_order(asking, snapshot, changes_of(found, former))
    refused = {name: _hosts_beside(asking, found, name) for name, host in found.where.items() if host is None}
    left = any(
        there and host.id in asking.request.empty
        for host, there in zip(found.after.hosts, found.after.residents, strict=True)
    )
    search = _of_those_who_can(asking, found, aim, ordered) if ordered.stuck else found.search
    search = replace(search, ended="in the way") if left and search.ended != "time" else search
    return Solved(ordered, search, former, refused, (*found.notes, *stays(ordered, former)))


def _assigned(
    asking: PlanContext,
    snapshot: ClusterSnapshot,
    aim: Aim,
    newcomers: Sequence[Instance],
    former: Mapping[str, Instance],
) -> Assignment:
    """The solver's answer in which nobody gets the room of who is there already, finds no host and so stays as it is.

    Who stays and asks for nothing but what it has counts as placed.
    """
    found = asking.assign(snapshot, aim, newcomers)
    staying = {one.id: one for one in newcomers if one.id in former and found.where[one.id] is None}
    if not staying:
        return found
    rest = [one for one in newcomers if one.id not in staying]
    again = _assigned(replace(asking, progress=None), snapshot, aim, rest, former)
    where = dict(again.where)
    notes = list(again.notes)
    for name, one in staying.items():
        host = former[name].host
        where[name] = host if replace(one, host=host) == former[name] else None
        if where[name] is None:
            notes.append(f"{name} stays as it is on {host}: no host takes it as it is asked for.")
    reasons = {**found.refused, **again.refused}
    return replace(
        again,
        where={one.id: where[one.id] for one in newcomers},
        refused={name: reasons[name] for name, host in where.items() if host is None},
        search=_of_both(found.search, again.search, where),
        notes=tuple(notes),
    )


def _of_both(first: Search, again: Search, where: Mapping[str, str | None]) -> Search:
    """How many were placed in the end; the bound is the first question's, where more was free."""
    placed = float(sum(host is not None for host in where.values()))
    bound = max(first.bound, placed)
    ended: PlanEnd = "in the way" if placed < len(where) else "search"
    ended = "time" if "time" in {first.ended, again.ended} else ended
    return Search(PLACED, placed, bound, (bound - placed) / (bound or 1.0), ended)


def stays(ordered: Ordered, former: Collection[str]) -> Iterator[str]:
    """Who cannot be where it should be, as no order of steps brings it there without breaking a limit."""
    between = {one.change.then.id: one.change.then.host for one in ordered.carried if one.between}
    for name, why in sorted(ordered.stuck.items()):
        stands = f"stays on {between[name]}" if name in between else "stays as it is"
        yield f"{name} {stands if name in former else 'is not placed'}: {why}."


def _of_those_who_can(asking: PlanContext, found: Assignment, aim: Aim, ordered: Ordered) -> Search:
    """What is reached where not all that was found can be carried out."""
    search, after = found.search, ordered.after
    if aim == "rebalance":
        below = Standing.of(after, asking.chosen.predictor).below(asking.request.keep_ratio)
        value, bound = float(len(below)), search.bound
    elif aim == "consolidate":
        value, bound = float(sum(bool(there) for there in after.residents)), search.bound
    else:
        missing = {name for name, host in found.where.items() if host is None} | ordered.stuck.keys()
        value = float(len(found.where) - len(missing))
        bound = search.bound if search.aim == PLACED else float(len(found.where))
        search = replace(search, aim=PLACED)
    return replace(search, value=value, bound=bound, gap=abs(value - bound) / (bound or 1.0), ended="in the way")


def _hosts_beside(asking: PlanContext, found: Assignment, name: str) -> tuple[Rejection, ...]:
    """Why nobody takes an instance, without the hosts that are to be emptied: of them nobody asks."""
    return tuple(one for one in found.refused.get(name, ()) if one.host not in asking.request.empty)


def changes_of(found: Assignment, former: Mapping[str, Instance]) -> list[Change]:
    """What an assignment changes, in its order."""
    placed = found.after.names.placed
    there = [(name, placed[name]) for name, host in found.where.items() if host is not None]
    return [Change(then, former.get(name), found.gains.get(name)) for name, then in there]


def put_in_order(asking: PlanContext, snapshot: ClusterSnapshot, changes: Sequence[Change]) -> Ordered:
    """Changes in stages, as the request wants them."""
    request = asking.request
    ages = zip((host.id for host in snapshot.hosts), snapshot.age_s.tolist(), strict=True)
    usable = {name for name, age_s in ages if age_s <= asking.fresh_s}
    if request.hosts is not None:
        usable &= set(request.hosts)
    return order(
        snapshot,
        changes,
        asking.chosen.predictor,
        keep_ratio=request.keep_ratio,
        at_once=request.at_once,
        between=usable - set(request.empty),
        most_moves=request.max_moves,
    )
