"""What a search found: moves, hosts, gaps to the bounds, and the assignment read back into the cloud."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.domain import Band, Instance, Rejection, speed, time_part
from advisor.domain.plans import PlanEnd, Search
from advisor.domain.rules import parted, violations
from advisor.planning.assignment.move_value import KindMove, moves_made
from advisor.planning.assignment.objectives import Level, levels, relaxation_bound
from advisor.planning.assignment.packing_problem import SIZES, Goal, PackingProblem, request_of
from advisor.planning.assignment.search_state import RATIO_TOLERANCE, SearchState, plus
from advisor.planning.assignment.solver import UNITS_PER_RATIO, SolverResult
from advisor.rounding import with_slack
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot

MAX_NAMED = 3  # hosts named in a note

LEVEL_NAMES: Mapping[Level, str] = {
    "unplaced": "instances placed",
    "below": "instances below a limit",
    "used": "hosts in use",
    "greatest": "lowest T/B, cautiously",
    "missed": "instances expected below a limit",
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
    notes = [*refused_sentences(goal, refused, [host.id for host in problem.snapshot.hosts])]
    notes += _of_staying(problem, goal)
    if goal.aim == "rebalance":
        notes += [*below_sentences(left_below(state, goal, ended)), *overcommitted(state)]
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


def refused_sentences(goal: Goal, refused: Mapping[str, tuple[Rejection, ...]], hosts: Sequence[str]) -> Iterator[str]:
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


LeftBelow = Mapping[str, tuple[int, float, str]]  # by cause: how many instances, the lowest ratio, and its host


def left_below(state: SearchState, goal: Goal, ended: PlanEnd) -> LeftBelow:
    """Instances that stay below a limit after a rebalance, by cause; empty for other aims."""
    problem = state.problem
    if goal.aim != "rebalance":
        return {}
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
    lowest = {cause: min(members) for cause, members in by_cause.items()}
    return {
        cause: (len(by_cause[cause]), ratio, problem.snapshot.hosts[host].id) for cause, (ratio, host) in lowest.items()
    }


def below_sentences(left: LeftBelow) -> Iterator[str]:
    """The same as sentences."""
    for cause, (count, ratio, worst) in left.items():
        stay = f"{_count(count, 'instance')} {'stays' if count == 1 else 'stay'} below a limit"
        yield f"{stay}, the lowest on {worst} at {100 * ratio:.0f} %: {cause}."


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


# Translates a search state back to instances: where each goes, the resulting cloud, and reasons for refusals.

HostByInstance = dict[str, str | None]


def final_hosts(state: SearchState) -> tuple[HostByInstance, dict[str, KindMove]]:
    """The host of every placed or moved instance, None = unplaced; and the moves by id.

    Of identical instances those that can stay do, and those with the lowest ids go to hosts in order.
    """
    problem = state.problem
    hosts_by_kind: dict[int, Counter[int]] = {}  # by kind, how many on each host
    for at, movers in enumerate(state.movers):
        for kind_number in movers:
            hosts_by_kind.setdefault(kind_number, Counter())[at] += 1
    host_of: HostByInstance = {}
    moves: dict[str, KindMove] = {}
    for kind, ids in enumerate(problem.ids_of_kind):
        free: dict[int, list[str]] = {}  # by the host that they leave, -1 = they were to be placed
        staying = hosts_by_kind.get(kind, Counter[int]())
        for name in ids:
            host = problem.current_host[name]
            at = -1 if host is None else problem.snapshot.names.positions[host]
            free.setdefault(at, []).append(name)
        leaving: list[tuple[int, str]] = []
        for at, names in sorted(free.items()):
            stay = 0 if at < 0 else min(staying[at], len(names))
            if at >= 0:
                staying[at] -= stay
            leaving += [(at, name) for name in names[: len(names) - stay]]
        targets = list(staying.elements())
        for (at, name), target in zip(leaving, targets, strict=False):
            host_of[name] = problem.snapshot.hosts[target].id
            if at >= 0:
                moves[name] = (kind, at, target)
        host_of.update({name: None for at, name in leaving[len(targets) :] if at < 0})
    order = {name: number for number, name in enumerate(problem.current_host)}
    return {name: host_of[name] for name in sorted(host_of, key=order.__getitem__)}, moves


def gains_by_name(moves: Mapping[str, KindMove], by_move: Mapping[KindMove, Band]) -> dict[str, Band]:
    """The gain of each moved instance."""
    return {name: by_move[move] for name, move in moves.items() if move in by_move}


def apply_assignment(
    snapshot: ClusterSnapshot, instances: Mapping[str, Instance], hosts_by_name: HostByInstance
) -> ClusterSnapshot:
    """The cloud after the assignment; instances without a host stay where they are, or absent."""
    placed = {name: replace(instances[name], host=host) for name, host in hosts_by_name.items() if host is not None}
    return snapshot.changed(instances=placed, seen={}, pending=snapshot.names.coming, taken_at=snapshot.taken_at)


def rejections(
    state: SearchState, after: ClusterSnapshot, goal: Goal, hosts_by_name: HostByInstance, fresh_s: float
) -> dict[str, tuple[Rejection, ...]]:
    """Why each unplaced instance has no host: filter reasons, and broken limits where no filter refuses.

    The reasons are the same for all instances of a kind. Hosts that would do but were not tried in time are left out.
    """
    problem = state.problem
    by_name: dict[str, tuple[Rejection, ...]] = {}
    for kind, ids in enumerate(problem.ids_of_kind):
        missing = [name for name in ids if name in hosts_by_name and hosts_by_name[name] is None]
        if missing:
            reasons = _reasons(state, after, goal, kind, missing[0], fresh_s)
            by_name.update(dict.fromkeys(missing, reasons))
    return by_name


def _reasons(
    state: SearchState, after: ClusterSnapshot, goal: Goal, kind: int, name: str, fresh_s: float
) -> tuple[Rejection, ...]:
    problem = state.problem
    source = next((host.kind for host in after.hosts for at, _ in after.where(name) if after.hosts[at] is host), None)
    request = request_of(replace(problem.kinds[kind], id=name), goal, source)
    unfiltered, rejected = filters.apply(after, request, fresh_s=fresh_s)
    reasons = list(rejected)
    state.evaluator.evaluate((host, plus(state.movers[host], kind)) for host in unfiltered)
    reasons += [
        _limit(state, after, host, kind)
        for host in unfiltered
        if state.evaluator.at(host, plus(state.movers[host], kind)).below
    ]
    return tuple(sorted(reasons, key=lambda rejection: rejection.host))


def _limit(state: SearchState, after: ClusterSnapshot, host: int, kind: int) -> Rejection:
    """The limit that would break on a host with room."""
    below = state.evaluator.at(host, plus(state.movers[host], kind)).below
    victim, ratio = next((entry for entry in below if entry[0] == kind), below[0])
    who, code = ("it", "limit.new_vm") if victim == kind else (_alike(state, after, host, victim), "limit.neighbour")
    reaches = f"{who} would run at {speed(ratio)}; {_limits(state, host, victim)}"
    return Rejection(after.hosts[host].id, code, reaches)


def _limits(state: SearchState, host: int, kind: int) -> str:
    limited = state.problem.kinds[kind]
    texts = [f"at least {100 * state.problem.min_ratio[state.problem.class_of_host[host], kind]:.4g} % is required"]
    if limited.max_latency_ratio is not None:
        texts.append(f"at most {limited.max_latency_ratio:g} times its latency alone")
    if limited.max_time_short is not None:
        texts.append(f"contended at most {time_part(limited.max_time_short)} of the time")
    return ", and ".join(texts)


def _alike(state: SearchState, after: ClusterSnapshot, host: int, kind: int) -> str:
    """The id of a resident of this kind; labels do not distinguish kinds."""
    example = state.problem.kinds[kind]
    alike = (
        resident.id
        for resident in after.residents[host]
        if replace(resident, id=example.id, host=None, labels=example.labels) == example
    )
    return next(alike, "another instance")
