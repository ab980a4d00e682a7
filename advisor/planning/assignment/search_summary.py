"""How a search ended, in figures and in sentences: value, bound, gap, and what is in the way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from advisor.domain import Rejection
from advisor.domain.plans import PlanEnd, Search
from advisor.planning.assignment.bounds import relaxed
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.local_search import Clock
from advisor.planning.assignment.move_value import moved
from advisor.planning.assignment.objectives import Level, levels
from advisor.planning.assignment.pattern_evaluator import SAME
from advisor.planning.assignment.search_state import SearchState
from advisor.planning.assignment.solver import FINE, Solved
from advisor.rounding import with_slack

TOLD = 3  # hosts that a note names

AIMS: Mapping[Level, str] = {
    "unplaced": "instances placed",
    "below": "instances below a limit",
    "used": "hosts in use",
    "greatest": "lowest T/B, cautiously",
    "lost": "sum of T/B, cautiously",
}


def told(
    goal: Goal,
    seats: SearchState,
    values: Sequence[float],
    ended: PlanEnd,
    solved: Solved | None,
    clock: Clock,
    bound: float | None = None,
) -> Search:
    """What was reached of the level that decides: the first one, or the second where everybody was placed.

    The bound is the solver's where it was asked, else that of the relaxation; `bound` is one that is known already.
    """
    ground, names = seats.ground, levels(goal)
    at = 1 if names[0] == "unplaced" and values[0] == 0 else 0
    level, value = names[at], values[at]
    least = relaxed(level, seats, round(values[0]) if names[0] == "unplaced" else 0, clock) if bound is None else bound
    if solved is not None and math.isfinite(solved.bounds[at]):
        least = max(least, solved.bounds[at]) if level == "unplaced" else solved.bounds[at]
    if abs(least - value) < (ground.hosts + 1) / FINE:  # as exactly as the solver counts
        least = value
    least = min(least, value)
    if level == "unplaced":
        value, least = len(ground.waiting) - value, len(ground.waiting) - least
    elif level == "lost":
        count = sum(len(column.kinds) for column in map(seats.column, range(ground.hosts)))
        value, least = count - value, count - least
    elif level == "greatest":
        value, least = 1 - value, 1 - least
    gap = abs(value - least) / (abs(least) if abs(least) > SAME else 1.0)
    return Search(AIMS[level], float(value), float(least), float(gap), ended)


def hindrances(
    seats: SearchState, goal: Goal, refused: Mapping[str, tuple[Rejection, ...]], ended: PlanEnd
) -> tuple[str, ...]:
    """What is in the way, in sentences: of whom nobody takes, who may not leave, and who stays below a limit."""
    ground = seats.ground
    notes = [*_of_refused(goal, refused, [host.id for host in ground.snapshot.hosts])]
    for host, there in zip(ground.snapshot.hosts, ground.fixed, strict=True):
        if host.id in goal.emptied and there:
            notes.append(f"{_count(len(there), 'instance')} on {host.id} may not be moved, so it is not emptied.")
    if goal.aim == "rebalance":
        notes += [*_of_below(seats, goal, ended), *overfull(seats)]
    if goal.aim == "consolidate":
        notes += [*_of_pinned(seats, ended), *_of_left_below(seats)]
    return tuple(notes)


def _of_refused(goal: Goal, refused: Mapping[str, tuple[Rejection, ...]], hosts: Sequence[str]) -> Iterator[str]:
    """Whom nobody takes, by the reason that most hosts give; of hosts that are to be emptied nobody asks. A host
    that gives none would do, but was not found in time: then it is not said that none takes it."""
    usable = {host for host in hosts if goal.targets is None or host in goal.targets} - goal.emptied
    asked = {name: [one for one in why if one.host not in goal.emptied] for name, why in refused.items()}
    by_code: dict[str, list[str]] = {}
    for name, why in asked.items():
        codes = Counter(one.code for one in why)
        by_code.setdefault(max(sorted(codes), key=codes.__getitem__, default=""), []).append(name)
    for code, who in sorted(by_code.items(), key=lambda one: -len(one[1])):
        others = f" and {len(who) - 1} more" if len(who) > 1 else ""
        first = [one for one in asked[who[0]] if one.code == code]
        if not first:
            why_not = "the time was over" if usable else "none may be used"
        elif len(first) == 1:
            why_not = f"on {first[0].host}: {first[0].reason}"
        else:
            why_not = f"on {len(first)} hosts as on {first[0].host}: {first[0].reason}"
        every = usable <= {one.host for one in asked[who[0]]}
        yield f"{'No host takes' if every else 'No host was found for'} {who[0]}{others}; {why_not}."


def _of_below(seats: SearchState, goal: Goal, ended: PlanEnd) -> Iterator[str]:
    """Who stays below a limit after a rebalance, by what keeps it there."""
    ground = seats.ground
    there = [(ratio, host, kind) for host in range(ground.hosts) for kind, ratio in seats.column(host).below]
    seats.effects.ask_keys((int(ground.of_class[host]), (kind,)) for _, host, kind in there)
    by_cause: dict[str, list[tuple[float, int]]] = {}
    few = goal.max_moves is not None and len(moved(seats)) >= goal.max_moves
    for ratio, host, kind in there:
        if seats.effects.known(int(ground.of_class[host]), (kind,)).below:
            cause = "also alone there, so that the host or the settings of the instance are not enough for its limit"
        elif not seats.movers[host]:
            cause = "nobody there may be moved (who is pinned moves only where it is named as movable)"
        elif ended == "time":
            cause = "the time was over before all moves were looked at"
        elif few:
            cause = f"no more than {_count(goal.max_moves or 0, 'move')} may be made"
        else:
            cause = "no move that is worth its cost and beyond uncertainty brings more of them within it"
        by_cause.setdefault(cause, []).append((ratio, host))
    for cause, who in by_cause.items():
        ratio, host = min(who)
        stay = "stays" if len(who) == 1 else "stay"
        worst = ground.snapshot.hosts[host].id
        yield f"{_count(len(who), 'instance')} {stay} below a limit, the worst on {worst} at {ratio:.2f}: {cause}."


def overfull(seats: SearchState) -> tuple[str, ...]:
    """Hosts of which more is promised than may be, and those shared by who shares with nobody: no move of a rebalance
    is made for that."""
    ground, found = seats.ground, []
    for host, movers in enumerate(seats.movers):
        name, everybody = ground.snapshot.hosts[host].id, (*ground.fixed[host], *movers)
        for what, used, room in zip(("vCPUs", "MB of memory", "GB of disk"), seats.used[host], ground.room[host],
                                    strict=False):  # fmt: skip
            if used > with_slack(room):
                found.append(f"{name} promises {used:,.0f} of {room:,.0f} {what}")
        if seats.alone[host] and len(everybody) > 1:
            found.append(f"{name} holds somebody who shares its host with nobody, and others")
    if not found:
        return ()
    more = f"; and {len(found) - TOLD} more" if len(found) > TOLD else ""
    return (f"Rebalancing mends limits of speed and latency, not sizes: {'; '.join(found[:TOLD])}{more}.",)


def _of_pinned(seats: SearchState, ended: PlanEnd) -> Iterator[str]:
    staying = [len(there) for there in seats.ground.fixed if there]
    if ended == "in the way" and staying:
        yield (
            f"{_count(sum(staying), 'instance')} on {_count(len(staying), 'host')} may not be moved: who is pinned "
            "moves only where it is named as movable."
        )


def _of_left_below(seats: SearchState) -> Iterator[str]:
    below = sum(len(seats.column(host).below) for host in range(seats.ground.hosts))
    if below:
        stay = "stays" if below == 1 else "stay"
        yield f"{_count(below, 'instance')} {stay} below a limit: only a rebalance moves somebody for that."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
