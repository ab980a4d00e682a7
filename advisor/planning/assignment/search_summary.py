"""The summary of a search: value, bound, gap, and sentences about what limits the result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from advisor.domain import Instance, Rejection
from advisor.domain.plans import PlanEnd, Search
from advisor.domain.rules import parted, violations
from advisor.planning.assignment.bounds import relaxation_bound
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.move_value import moves_made
from advisor.planning.assignment.objectives import Level, levels
from advisor.planning.assignment.packing_problem import SIZES, PackingProblem
from advisor.planning.assignment.pattern_evaluator import RATIO_TOLERANCE
from advisor.planning.assignment.search_state import SearchState
from advisor.planning.assignment.solver import UNITS_PER_RATIO, SolverResult
from advisor.rounding import with_slack

MAX_NAMED = 3  # hosts named in a note

LEVEL_NAMES: Mapping[Level, str] = {
    "unplaced": "instances placed",
    "below": "instances below a limit",
    "used": "hosts in use",
    "greatest": "lowest T/B, cautiously",
    "lost": "sum of T/B, cautiously",
}


def summarize(
    goal: Goal,
    state: SearchState,
    values: Sequence[float],
    ended: PlanEnd,
    solved: SolverResult | None,
    bound: float | None = None,
) -> Search:
    """The deciding level's value and bound: the first level, or the second where every instance was placed.

    The bound is the solver's where it ran, else the relaxation's; `bound` is one that is known already.
    """
    problem, names = state.problem, levels(goal)
    index = 1 if names[0] == "unplaced" and values[0] == 0 else 0
    level, value = names[index], values[index]
    unplaced = round(values[0]) if names[0] == "unplaced" else 0
    best_possible = relaxation_bound(level, state, unplaced) if bound is None else bound
    if solved is not None and math.isfinite(solved.bounds[index]):
        best_possible = max(best_possible, solved.bounds[index]) if level == "unplaced" else solved.bounds[index]
    if abs(best_possible - value) < (problem.hosts + 1) / UNITS_PER_RATIO:  # the precision of the solver
        best_possible = value
    best_possible = min(best_possible, value)
    if level == "unplaced":
        value, best_possible = len(problem.waiting) - value, len(problem.waiting) - best_possible
    elif level == "lost":
        count = sum(len(pattern.kinds) for pattern in map(state.pattern, range(problem.hosts)))
        value, best_possible = count - value, count - best_possible
    elif level == "greatest":
        value, best_possible = 1 - value, 1 - best_possible
    gap = abs(value - best_possible) / (abs(best_possible) if abs(best_possible) > RATIO_TOLERANCE else 1.0)
    return Search(LEVEL_NAMES[level], float(value), float(best_possible), float(gap), ended)


def obstacles(
    state: SearchState, goal: Goal, refused: Mapping[str, tuple[Rejection, ...]], ended: PlanEnd
) -> tuple[str, ...]:
    """Sentences about what limits the result: unplaced instances, immovable ones, and those below a limit."""
    problem = state.problem
    notes = [*_of_refused(goal, refused, [host.id for host in problem.snapshot.hosts])]
    notes += _of_staying(problem, goal)
    if goal.aim == "rebalance":
        notes += [*_of_below(state, goal, ended), *overcommitted(state)]
    if goal.aim == "consolidate":
        notes += [*_of_pinned(state, ended), *_of_left_below(state)]
    return tuple(notes)


def _of_staying(problem: PackingProblem, goal: Goal) -> Iterator[str]:
    """Instances that stay on hosts that are to be emptied, with the reason for the first."""
    for host, residents in zip(problem.snapshot.hosts, problem.snapshot.residents, strict=True):
        staying = [one for one in residents if one.id not in problem.current_host] if host.id in goal.emptied else []
        if staying:
            first = staying[0]
            more = f" and {len(staying) - 1} more" if len(staying) > 1 else ""
            stay = "stay" if more else "stays"
            yield f"{host.id} is not emptied: {first.id}{more} {stay} there ({_why_staying(first, problem)})."


def _why_staying(instance: Instance, problem: PackingProblem) -> str:
    if instance.never_moves:
        return "the label never_move"
    if instance.id not in problem.snapshot.names.placed:
        return "it is only coming"
    return f"its affinity group {instance.affinity_group}" if instance.affinity_group else "it is not named as movable"


def _of_refused(goal: Goal, refused: Mapping[str, tuple[Rejection, ...]], hosts: Sequence[str]) -> Iterator[str]:
    """Unplaced instances, grouped by the most frequent reason; hosts that are being emptied are not mentioned.

    A host without a reason would do but was not tried in time; then the sentence does not say that no host takes it.
    """
    usable = {host for host in hosts if goal.targets is None or host in goal.targets} - goal.emptied
    relevant = {
        name: [rejection for rejection in rejections if rejection.host not in goal.emptied]
        for name, rejections in refused.items()
    }
    by_code: dict[str, list[str]] = {}
    for name, rejections in relevant.items():
        codes = Counter(rejection.code for rejection in rejections)
        by_code.setdefault(max(sorted(codes), key=codes.__getitem__, default=""), []).append(name)
    for code, names in sorted(by_code.items(), key=lambda entry: -len(entry[1])):
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        same_reason = [rejection for rejection in relevant[names[0]] if rejection.code == code]
        if not same_reason:
            why_not = "the time limit was reached" if usable else "none may be used"
        elif len(same_reason) == 1:
            why_not = f"on {same_reason[0].host}: {same_reason[0].reason}"
        else:
            why_not = f"on {len(same_reason)} hosts as on {same_reason[0].host}: {same_reason[0].reason}"
        all_refuse = usable <= {rejection.host for rejection in relevant[names[0]]}
        yield f"{'No host takes' if all_refuse else 'No host was found for'} {names[0]}{others}; {why_not}."


def _of_below(state: SearchState, goal: Goal, ended: PlanEnd) -> Iterator[str]:
    """Instances that stay below a limit after a rebalance, grouped by cause."""
    problem = state.problem
    below = [(ratio, host, kind) for host in range(problem.hosts) for kind, ratio in state.pattern(host).below]
    state.evaluator.evaluate_keys((int(problem.class_of_host[host]), (kind,)) for _, host, kind in below)
    by_cause: dict[str, list[tuple[float, int]]] = {}
    moves_used_up = goal.max_moves is not None and len(moves_made(state)) >= goal.max_moves
    for ratio, host, kind in below:
        if state.evaluator.known(int(problem.class_of_host[host]), (kind,)).below:
            cause = "also alone there, because the host or the instance's settings do not allow its limit"
        elif not state.movers[host]:
            cause = "no instance there may be moved (a pinned instance moves only if it is named as movable)"
        elif ended == "time":
            cause = "the time limit was reached before all moves were examined"
        elif moves_used_up:
            cause = f"no more than {_count(goal.max_moves or 0, 'move')} may be made"
        else:
            cause = "no move whose gain exceeds its cost and uncertainty restores more of them"
        by_cause.setdefault(cause, []).append((ratio, host))
    for cause, members in by_cause.items():
        ratio, host = min(members)
        stay = "stays" if len(members) == 1 else "stay"
        worst = problem.snapshot.hosts[host].id
        lowest = f"the lowest on {worst} at {100 * ratio:.0f} %"
        yield f"{_count(len(members), 'instance')} {stay} below a limit, {lowest}: {cause}."


def overcommitted(state: SearchState) -> tuple[str, ...]:
    """Hosts with more promised than allowed, shared hosts that an instance requires for itself, hosts with several
    instances of one anti-affinity group, and other rules that do not hold. A rebalance makes no move for any of them.
    """
    problem, texts = state.problem, []
    for host, movers in enumerate(state.movers):
        name, all_kinds = problem.snapshot.hosts[host].id, (*problem.fixed[host], *movers)
        for what, used, room in zip(("vCPUs", "MB of memory", "GB of disk", "dedicated CPUs"),
                                    state.used[host, SIZES], problem.room[host, SIZES], strict=True):  # fmt: skip
            if used > with_slack(room):
                texts.append(f"{name} promises {used:,.0f} of {room:,.0f} {what}")
        if state.holds_exclusive[host] and len(all_kinds) > 1:
            texts.append(f"{name} hosts an instance that requires the host for itself, and others")
        texts += [
            f"{name} hosts {count} instances of the anti-affinity group {group}"
            for group, count in sorted(state.groups_on(host).items())
            if count > min(most for each in problem.anti_affinity.values() for other, most in each if other == group)
        ]
    for at, residents in enumerate(problem.snapshot.residents):  # no plan breaks such a rule, so that they are those
        found = violations(problem.snapshot.hosts[at], residents)
        texts += [violation.text for violation in found if not violation.what.startswith("apart ")]
    texts += [violation.text for violation in parted(problem.snapshot.hosts, problem.snapshot.residents)]
    if not texts:
        return ()
    more = f"; and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return (
        f"Rebalancing restores limits of throughput and latency, not capacity or rules: {'; '.join(texts[:MAX_NAMED])}"
        f"{more}. A plan of the kind repair does.",
    )


def _of_pinned(state: SearchState, ended: PlanEnd) -> Iterator[str]:
    staying = [len(kinds) for kinds in state.problem.fixed if kinds]
    if ended == "in the way" and staying:
        yield (
            f"{_count(sum(staying), 'instance')} on {_count(len(staying), 'host')} may not be moved: a pinned "
            "instance moves only if it is named as movable."
        )


def _of_left_below(state: SearchState) -> Iterator[str]:
    below = sum(len(state.pattern(host).below) for host in range(state.problem.hosts))
    if below:
        stay = "stays" if below == 1 else "stay"
        yield f"{_count(below, 'instance')} {stay} below a limit: only a rebalance moves instances for that."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
