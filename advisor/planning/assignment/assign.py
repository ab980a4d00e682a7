"""assign: the one question to the solver of plans, from a goal to who goes where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from advisor.domain.plans import PlanEnd, Search
from advisor.planning.assignment import solution
from advisor.planning.assignment.advised_start import in_turn
from advisor.planning.assignment.goal import Assignment, Goal
from advisor.planning.assignment.local_search import Clock
from advisor.planning.assignment.objectives import less, levels
from advisor.planning.assignment.packing_problem import survey, without
from advisor.planning.assignment.pattern_evaluator import PatternEvaluator
from advisor.planning.assignment.search_state import SearchState
from advisor.planning.assignment.search_summary import AIMS, hindrances
from advisor.planning.assignment.strategies import FEW_QUESTIONS, Reached, reach
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot
from models.prediction import Predictor

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)
FOR_SEARCH = 0.75  # of the time: what is begun may take a tenth of that more, the rest is for telling what was found


def assign(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    goal: Goal,
    *,
    now: datetime,
    fresh_s: float,
    progress: Progress | None = None,
) -> Assignment:
    """Find who goes where so that the goal is reached as well as can be.

    Limits and `keep_ratio` are judged by expected values, as a placement judges them, and nobody falls below one who
    was not below it before; what is made as good as can be is risk-averse, by the ranking's CAUTION half widths. Every
    host that is looked at was predicted by the full model; pairs of workloads only say which hosts of a large cloud
    are looked at. Small clouds are solved by CP-SAT over all that a host can hold, others by local search.

    Where newcomers are few they are also placed one after another, with the settings that a placement advises, and the
    search goes on from there: the better of both is answered, so that a plan is no worse than placement in turn. A
    bound is one of plans with everybody's settings as they are.

    The same question has the same answer for a seed, unless `time_limit_s` of the wall clock ends the search: all else
    is bounded by work. `Search.ended` is `time` then.
    """
    return active.ask(
        chosen,
        lambda answering: _Asked(snapshot, answering.predictor, goal, now, fresh_s, progress).answer(answering.notes),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """One goal on one cloud, asked of one predictor."""

    snapshot: ClusterSnapshot
    predictor: Predictor
    goal: Goal
    now: datetime
    fresh_s: float
    progress: Progress | None

    def answer(self, notes: Sequence[str]) -> Assignment:
        """The assignment, with what the choice of the predictor has to say."""
        goal, clock = self.goal, Clock.of(FOR_SEARCH * self.goal.time_limit_s)
        if not self.snapshot.hosts:
            return self._nowhere(notes)
        self._say("looking at the cloud", 0.0)
        anew = [one.id for one in goal.newcomers if one.id in self.snapshot.names.placed]
        base = without(self.snapshot, anew) if anew else self.snapshot
        goal = replace(goal, newcomers=tuple(replace(one, host=None) for one in goal.newcomers))
        self._say("searching", 0.1)
        found = self._reached(base, goal, clock)
        if goal.aim == "admit" and len(self.snapshot.hosts) * len(goal.newcomers) <= FEW_QUESTIONS:
            self._say("placing one after another", 0.6)
            advised, whole = in_turn(
                base, ActivePredictor(self.predictor), goal, now=self.now, fresh_s=self.fresh_s, clock=clock
            )
            there = tuple(advised.get(one.id, one) for one in goal.newcomers)
            other = self._reached(base, replace(goal, newcomers=there), clock)
            found = other if less(other.values, found.values) else found
            if not whole and found.search.ended == "search":
                found = replace(found, search=replace(found.search, ended="time"))
        self._say("telling who goes where", 0.9)
        return self._named(base, found, notes)

    def _reached(self, base: ClusterSnapshot, goal: Goal, clock: Clock) -> Reached:
        ground = survey(base, goal, self.fresh_s)
        seats = SearchState.of(
            PatternEvaluator.of(ground, self.predictor), "pack" if goal.aim == "consolidate" else goal.objective
        )
        return reach(seats, goal, clock)

    def _named(self, base: ClusterSnapshot, found: Reached, notes: Sequence[str]) -> Assignment:
        seats = found.seats
        where, moves = solution.where(seats)
        had = {one.id: one for one in (*self.goal.newcomers, *(one for there in base.residents for one in there))}
        has = {**had, **{one.id: one for one in found.goal.newcomers}}
        after = solution.carried_out(base, has, where)
        refused = solution.refused(seats, after, found.goal, where, self.fresh_s)
        self._say("done", 1.0)
        return Assignment(
            where=where,
            refused=refused,
            gains=solution.gains(moves, found.gains),
            settings={name: has[name].settings for name in where if has[name].settings != had[name].settings},
            after=after,
            search=found.search,
            notes=(*notes, *hindrances(seats, found.goal, refused, found.search.ended)),
        )

    def _nowhere(self, notes: Sequence[str]) -> Assignment:
        wanted = self.goal.newcomers
        ended: PlanEnd = "in the way" if wanted else "already fine"
        return Assignment(
            where=dict.fromkeys((one.id for one in wanted), None),
            refused={one.id: () for one in wanted},
            gains={},
            settings={},
            after=self.snapshot,
            search=Search(AIMS[levels(self.goal)[0]], 0.0, 0.0, 0.0, ended),
            notes=(*notes, "The cloud has no hosts."),
        )

    def _say(self, what: str, share: float) -> None:
        if self.progress:
            self.progress(what, share)
