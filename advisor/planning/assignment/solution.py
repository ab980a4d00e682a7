"""Translates a search state back to instances: who goes where, the resulting cloud, and reasons for refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from advisor.domain import Band, Instance, Rejection, speed, time_part
from advisor.planning.assignment.allowed_hosts import request_of
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.move_value import KindMove
from advisor.planning.assignment.search_state import SearchState, plus
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot

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
