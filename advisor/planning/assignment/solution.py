"""From seats back to names: who goes where, the cloud with that carried out, and why somebody has no host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from advisor.domain import Band, Instance, Rejection
from advisor.planning.assignment.allowed_hosts import request_of
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.move_value import Moved
from advisor.planning.assignment.search_state import SearchState, plus
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot

Where = dict[str, str | None]


def where(seats: SearchState) -> tuple[Where, dict[str, Moved]]:
    """The host of everybody who was to be placed, None = none, and of everybody who moves; and who moves as what.

    Of instances that are alike those stay that can, and those with the lowest ids go, to hosts in order.
    """
    ground = seats.ground
    seated: dict[int, Counter[int]] = {}  # by kind, how many on each host
    for at, movers in enumerate(seats.movers):
        for one in movers:
            seated.setdefault(one, Counter())[at] += 1
    found: Where = {}
    moves: dict[str, Moved] = {}
    for kind, ids in enumerate(ground.of_kind):
        free: dict[int, list[str]] = {}  # by the host that they leave, -1 = they were to be placed
        staying = seated.get(kind, Counter[int]())
        for name in ids:
            host = ground.where[name]
            at = -1 if host is None else ground.snapshot.names.positions[host]
            free.setdefault(at, []).append(name)
        leaving: list[tuple[int, str]] = []
        for at, names in sorted(free.items()):
            stay = 0 if at < 0 else min(staying[at], len(names))
            if at >= 0:
                staying[at] -= stay
            leaving += [(at, name) for name in names[: len(names) - stay]]
        targets = list(staying.elements())
        for (at, name), target in zip(leaving, targets, strict=False):
            found[name] = ground.snapshot.hosts[target].id
            if at >= 0:
                moves[name] = (kind, at, target)
        found.update({name: None for at, name in leaving[len(targets) :] if at < 0})
    order = {name: number for number, name in enumerate(ground.where)}
    return {name: found[name] for name in sorted(found, key=order.__getitem__)}, moves


def gains(moves: Mapping[str, Moved], by_move: Mapping[Moved, Band]) -> dict[str, Band]:
    """What each mover's move is worth."""
    return {name: by_move[move] for name, move in moves.items() if move in by_move}


def carried_out(snapshot: ClusterSnapshot, instances: Mapping[str, Instance], found: Where) -> ClusterSnapshot:
    """The same moment with everybody where they go; who has no host stays where it is, or away."""
    placed = {name: replace(instances[name], host=host) for name, host in found.items() if host is not None}
    return snapshot.changed(instances=placed, seen={}, pending=snapshot.names.coming, taken_at=snapshot.taken_at)


def refused(
    seats: SearchState, after: ClusterSnapshot, goal: Goal, found: Where, fresh_s: float
) -> dict[str, tuple[Rejection, ...]]:
    """Why each that has no host has none: what a filter says of the hosts as they are then, and whose limit would
    break on those that no filter refuses; the same for all of a kind. Hosts that would do, but that there was no time
    to look at, are left out."""
    ground = seats.ground
    told: dict[str, tuple[Rejection, ...]] = {}
    for kind, ids in enumerate(ground.of_kind):
        missing = [name for name in ids if name in found and found[name] is None]
        if missing:
            reasons = _reasons(seats, after, goal, kind, missing[0], fresh_s)
            told.update(dict.fromkeys(missing, reasons))
    return told


def _reasons(
    seats: SearchState, after: ClusterSnapshot, goal: Goal, kind: int, name: str, fresh_s: float
) -> tuple[Rejection, ...]:
    ground = seats.ground
    source = next((host.kind for host in after.hosts for at, _ in after.where(name) if after.hosts[at] is host), None)
    request = request_of(replace(ground.kinds[kind], id=name), goal, source)
    free, rejected = filters.apply(after, request, fresh_s=fresh_s)
    found = list(rejected)
    seats.effects.ask((host, plus(seats.movers[host], kind)) for host in free)
    found += [
        _limit(seats, after, host, kind)
        for host in free
        if seats.effects.at(host, plus(seats.movers[host], kind)).below
    ]
    return tuple(sorted(found, key=lambda one: one.host))


def _limit(seats: SearchState, after: ClusterSnapshot, host: int, kind: int) -> Rejection:
    """Whose limit breaks where there would be room."""
    below = seats.effects.at(host, plus(seats.movers[host], kind)).below
    other, ratio = next((one for one in below if one[0] == kind), below[0])
    who, code = ("it", "limit.newcomer") if other == kind else (_alike(seats, after, host, other), "limit.neighbour")
    kept = f"{who} would keep {ratio:.2f} of its speed alone, {_kept(seats, host, other)}"
    return Rejection(after.hosts[host].id, code, kept)


def _kept(seats: SearchState, host: int, kind: int) -> str:
    text = f"at least {seats.ground.limit[seats.ground.of_class[host], kind]:.2f} is to be kept"
    latency = seats.ground.kinds[kind].max_latency_ratio
    return text if latency is None else f"{text}, and at most {latency:g} times its latency alone"


def _alike(seats: SearchState, after: ClusterSnapshot, host: int, kind: int) -> str:
    """The name of one of a kind on a host; labels make nobody another kind."""
    one = seats.ground.kinds[kind]
    alike = (
        there.id for there in after.residents[host] if replace(there, id=one.id, host=None, labels=one.labels) == one
    )
    return next(alike, "another instance")
