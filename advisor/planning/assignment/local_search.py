"""Local search: moves, exchanges and ejection chains until none improves or time is up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor import deadline, work
from advisor.planning.assignment.packing_problem import VCPUS, Kinds
from advisor.planning.assignment.search_state import SearchState, better, minus, plus

SHORTLIST = 24  # hosts considered at a time for one instance in a large cloud, a third of them random
SMALL_CLOUD = 64  # hosts: up to this size all are considered, and instances are placed one at a time
MOVES_PER_ROUND = 96  # instances tried elsewhere in one round
SWAPS_PER_INSTANCE = 12  # swap partners tried for each of them
PATIENCE = 6  # rounds without improvement after which the search ends
ROUNDS_PER_HOST = 3  # limits the work, so that the wall clock rarely decides the result


@dataclass(frozen=True, slots=True)
class SearchClock:
    """When the search ends, and when steps already begun must end, by the work that was done (`advisor.work`).

    The wall clock, and a request's own deadline, stop it where the machine is too slow for that.
    """

    until: float
    latest: float

    @classmethod
    def of(cls, seconds: float) -> SearchClock:
        """A clock that ends in so many seconds and allows a tenth more for steps already begun."""
        now = work.now_s()
        return cls(now + seconds, now + 1.1 * seconds)

    @property
    def left_s(self) -> float:
        """Seconds left by the work done, at most 0 once the wall clock has stopped it."""
        left = self.until - work.now_s()
        return min(left, 0.0) if work.stopped() or deadline.left_s() <= 0 else left

    @property
    def over(self) -> bool:
        return self.left_s <= 0

    @property
    def past_latest(self) -> bool:
        return work.now_s() >= self.latest or work.stopped() or deadline.left_s() <= 0


def place_each(
    state: SearchState, waiting: Sequence[int], random: np.random.Generator, clock: SearchClock
) -> list[int]:
    """Place waiting instances in order, each on its best host now; returns those that no host takes.

    Up to SMALL_CLOUD hosts this is placement in turn. In a larger cloud several are placed at a time, each on a
    different host of a shortlist; before one is given up, all hosts are tried. Once the time is over, half as many
    instances as there are hosts are placed at a time.
    """
    hosts = state.problem.hosts
    queue, refused, hopeless = list(waiting), [], set[int]()
    while queue and not clock.past_latest:
        at_once = 1 if hosts <= SMALL_CLOUD or state.objective == "pack" else max(1, hosts // 16)
        at_once = max(1, hosts // 2) if clock.over else at_once
        batch, queue = queue[:at_once], queue[at_once:]
        retry = []
        offers = [(kind, candidate_hosts(state, kind, random)) for kind in batch if kind not in hopeless]
        refused += [kind for kind in batch if kind in hopeless]
        state.evaluator.evaluate((host, plus(state.movers[host], kind)) for kind, options in offers for host in options)
        taken: set[int] = set()
        for kind, options in offers:
            chosen = best_host(state, kind, [host for host in options if host not in taken])
            if chosen is None and taken:
                retry.append(kind)  # its host was taken in this round: try again
                continue
            if chosen is None and hosts > SMALL_CLOUD:
                all_hosts = distinct_hosts(state, kind)
                state.evaluator.evaluate((host, plus(state.movers[host], kind)) for host in all_hosts)
                chosen = best_host(state, kind, all_hosts)
            if chosen is None:
                refused.append(kind)
                hopeless.add(kind)
            else:
                state.place(chosen, plus(state.movers[chosen], kind))
                taken.add(chosen)
        queue = retry + queue
    return refused + queue


def candidate_hosts(state: SearchState, kind: int, random: np.random.Generator) -> list[int]:
    """Hosts to consider for one instance."""
    hosts = (
        distinct_hosts(state, kind)
        if state.problem.hosts <= SMALL_CLOUD
        else np.flatnonzero(state.hosts_with_room(kind)).tolist()
    )
    if state.problem.hosts <= SMALL_CLOUD or len(hosts) <= SHORTLIST:
        return hosts
    ranked = state.ranked_hosts(kind, np.array(hosts))[: SHORTLIST - SHORTLIST // 3].tolist()
    drawn = random.choice(len(hosts), SHORTLIST // 3, replace=False)
    return list(dict.fromkeys([*ranked, *(hosts[at] for at in drawn)]))[:SHORTLIST]


def distinct_hosts(state: SearchState, kind: int) -> list[int]:
    """The first host of each group of hosts with room that are alike in class and residents."""
    first_by_key: dict[tuple[object, ...], int] = {}
    for host in np.flatnonzero(state.hosts_with_room(kind)).tolist():
        free_vcpus = (state.problem.room[host] - state.used[host])[VCPUS] if state.objective == "pack" else 0.0
        first_by_key.setdefault((*state.evaluator.key(host, state.movers[host]), free_vcpus), host)
    return list(first_by_key.values())


def best_host(state: SearchState, kind: int, hosts: Sequence[int]) -> int | None:
    """The feasible host with the lowest cost for this kind; the first of equals, None where no host is feasible."""

    def key(host: int) -> tuple[float, ...]:
        before, after = state.pattern(host), state.evaluator.at(host, plus(state.movers[host], kind))
        if state.objective == "worst":
            return round(after.harm, 9), round(after.total_loss - before.total_loss, 9), host
        if state.objective == "pack":
            share = state.used[host, VCPUS] / max(state.problem.room[host, VCPUS], 1e-9)
            return float(not before.kinds), -round(share, 9), round(after.total_loss - before.total_loss, 9), host
        more = round(after.missed - before.missed, 9) if state.objective == "limits" else 0.0
        return more, round(after.total_loss - before.total_loss, 9), host

    feasible = [host for host in hosts if state.feasible(host, plus(state.movers[host], kind))]
    return min(feasible, key=key, default=None)


HostChanges = tuple[tuple[int, Kinds], tuple[int, Kinds]]  # two hosts, each with its movers afterwards


def improve(state: SearchState, random: np.random.Generator, clock: SearchClock) -> bool:
    """Move and swap movable instances while that lowers the cost; True if no improvement is left.

    Each round looks at the costliest hosts and at some random ones. Of the improvements of a round the best come first,
    and no host changes twice.
    """
    idle_rounds = 0
    for _ in range(PATIENCE + ROUNDS_PER_HOST * state.problem.hosts):
        if idle_rounds >= PATIENCE:
            return True
        if clock.over:
            return False
        changes = [change for change in _changes(state, random) if _possible(state, change)]
        state.evaluator.evaluate(side for change in changes for side in change)
        improvements = []
        for number, change in enumerate(changes):
            if all(state.feasible(*side) for side in change):
                before = state.cost(state.pattern(host) for host, _ in change)
                after = state.cost(state.evaluator.at(*side) for side in change)
                if better(after, before):
                    improvements.append((after[0] - before[0], after[1] - before[1], number))
        touched: set[int] = set()
        for _, _, number in sorted(improvements):
            if touched.isdisjoint(host for host, _ in changes[number]):
                for host, movers in changes[number]:
                    state.place(host, movers)
                    touched.add(host)
        idle_rounds = 0 if improvements else idle_rounds + 1
    return True


def _changes(state: SearchState, random: np.random.Generator) -> Iterator[HostChanges]:
    """Moves and swaps to evaluate."""
    sources = [host for host, there in enumerate(state.movers) if there]
    if not sources:
        return
    costs = np.array([state.cost([state.pattern(host)]) for host in sources])
    worst = np.lexsort((-costs[:, 1], -costs[:, 0])) if state.objective != "pack" else np.argsort(-costs[:, 1])
    costliest = [sources[at] for at in worst[: MOVES_PER_ROUND // 4].tolist()]
    drawn = [sources[at] for at in random.permutation(len(sources))[: MOVES_PER_ROUND // 4].tolist()]
    tried = 0
    for source in dict.fromkeys([*costliest, *drawn]):
        for kind in dict.fromkeys(state.movers[source]):
            without = minus(state.movers[source], kind)
            for target in candidate_hosts(state, kind, random)[: SHORTLIST // 2]:
                if target != source:
                    yield (source, without), (target, plus(state.movers[target], kind))
            yield from _swaps(state, source, kind, random)
            tried += 1
            if tried >= MOVES_PER_ROUND:
                return


def _swaps(state: SearchState, source: int, kind: int, random: np.random.Generator) -> Iterator[HostChanges]:
    others = [host for host, movers in enumerate(state.movers) if movers and host != source]
    for at in random.integers(0, max(len(others), 1), SWAPS_PER_INSTANCE if others else 0).tolist():
        movers = state.movers[others[at]]
        other = movers[int(random.integers(len(movers)))]
        if other != kind:
            yield (
                (source, plus(minus(state.movers[source], kind), other)),
                (others[at], plus(minus(movers, other), kind)),
            )


def _possible(state: SearchState, change: HostChanges) -> bool:
    return all(state.problem.fits(host, movers) for host, movers in change)


# Neighborhoods of a host: moves off it, swaps with another host, and series of moves that restore its limits.

SWAP_HOSTS = 6  # hosts considered for a swap
# In a cloud above SMALL_CLOUD hosts: of a host so many instances, those that want the most CPUs, and for each so many
# hosts. All others are considered again when these have moved.
MOVERS, MOVE_HOSTS = 12, 8


def moves_off(state: SearchState, source: int) -> Iterator[tuple[int, HostChanges]]:
    """Every move off a host, in a large cloud the most promising ones, with its number of moves (1)."""
    kinds, targets = list(dict.fromkeys(state.movers[source])), None
    if state.problem.hosts > SMALL_CLOUD:
        wanted = state.problem.cpus[:, state.problem.class_of_host[source]]
        kinds, targets = sorted(kinds, key=lambda kind: -wanted[kind])[:MOVERS], MOVE_HOSTS
    for kind in kinds:
        for target in target_hosts(state, kind)[:targets]:
            if target != source:
                yield 1, ((source, minus(state.movers[source], kind)), (target, plus(state.movers[target], kind)))


def swaps(state: SearchState, source: int) -> Iterator[tuple[int, HostChanges]]:
    """Swaps that may bring an instance on a host back within its limit, with their number of moves (2)."""
    if not state.pattern(source).below:
        return
    for kind in dict.fromkeys(state.movers[source]):
        allowed = np.flatnonzero(state.problem.allowed[kind])
        for target in state.ranked_hosts(kind, allowed)[:SWAP_HOSTS].tolist():
            for other in dict.fromkeys(state.movers[target]):
                if target == source or other == kind:
                    continue
                sides = (
                    (source, plus(minus(state.movers[source], kind), other)),
                    (target, plus(minus(state.movers[target], other), kind)),
                )
                if all(state.problem.fits(*side) for side in sides):
                    yield 2, sides


def target_hosts(state: SearchState, kind: int) -> list[int]:
    """Hosts to consider for a mover; nothing is random, so the same cloud is always judged alike."""
    if state.problem.hosts <= SMALL_CLOUD:
        return distinct_hosts(state, kind)
    return [int(host) for host in state.ranked_hosts(kind, np.flatnonzero(state.hosts_with_room(kind)))[:SHORTLIST]]


def relieve(state: SearchState, source: int, max_moves: int | None) -> None:
    """Move instances off a host until no instance there is below a limit, none can leave or `most` moves were made.

    The instance whose leaving helps most goes first, to the host where it does least harm and breaks no limit.
    """
    moves = 0
    while state.pattern(source).below and (max_moves is None or moves < max_moves):
        movers = state.movers[source]
        state.evaluator.evaluate((source, minus(movers, kind)) for kind in movers)

        def helps(kind: int) -> tuple[int, float, float, int]:
            pattern = state.evaluator.at(source, minus(state.movers[source], kind))
            return len(pattern.below), -round(pattern.worst, 9), round(pattern.total_loss, 9), kind

        for kind in sorted(dict.fromkeys(movers), key=helps):
            target = _gentlest(state, kind, source)
            if target is not None:
                state.place(source, minus(movers, kind))
                state.place(target, plus(state.movers[target], kind))
                moves += 1
                break
        else:
            return


def _gentlest(state: SearchState, kind: int, source: int) -> int | None:
    """The host where one more instance does least harm and no more instances are below a limit than before."""
    options = [host for host in target_hosts(state, kind) if host != source]
    state.evaluator.evaluate((host, plus(state.movers[host], kind)) for host in options)

    def harm(host: int) -> tuple[float, int]:
        return round(state.evaluator.at(host, plus(state.movers[host], kind)).harm, 9), host

    feasible = [
        host
        for host in options
        if state.feasible(host, plus(state.movers[host], kind))
        and len(state.evaluator.at(host, plus(state.movers[host], kind)).below) <= len(state.pattern(host).below)
    ]
    return min(feasible, key=harm, default=None)


# Ejection chains of length one: makes room for an unplaced instance by moving one other instance.

Ejection = tuple[int, int, Kinds]  # host, ejected kind, movers of the host afterwards


def insert_by_ejection(
    state: SearchState, waiting: Sequence[int], random: np.random.Generator, clock: SearchClock
) -> list[int]:
    """Place instances by moving one other instance each; returns those that remain unplaced."""
    refused: list[int] = []
    hopeless: set[int] = set()
    for kind in waiting:
        if kind in hopeless or clock.over or not _inserted(state, kind, random):
            hopeless.add(kind)
            refused.append(kind)
    return refused


def _inserted(state: SearchState, kind: int, random: np.random.Generator) -> bool:
    """Carry out the cheapest ejection that makes room for a kind; False where there is none."""
    ejections = [ejection for host in _hosts(state, kind) for ejection in _ejections(state, host, kind)]
    state.evaluator.evaluate((host, movers) for host, _, movers in ejections)
    feasible = [ejection for ejection in ejections if state.feasible(ejection[0], ejection[2])]
    feasible.sort(key=lambda ejection: (state.cost([state.evaluator.at(ejection[0], ejection[2])]), ejection))
    for host, ejected, movers in feasible[: 4 * SHORTLIST]:
        before = state.movers[host]
        state.place(host, movers)
        targets = [target for target in candidate_hosts(state, ejected, random) if target != host]
        state.evaluator.evaluate((target, plus(state.movers[target], ejected)) for target in targets)
        best = best_host(state, ejected, targets)
        if best is not None:
            state.place(best, plus(state.movers[best], ejected))
            return True
        state.place(host, before)
    return False


def _hosts(state: SearchState, kind: int) -> list[int]:
    """Hosts that the filters allow; in a large cloud the SHORTLIST that workload pairs favour."""
    allowed = np.flatnonzero(state.problem.allowed[kind])
    if len(allowed) <= SMALL_CLOUD:
        return [int(host) for host in allowed]
    return [int(host) for host in state.ranked_hosts(kind, allowed)[:SHORTLIST]]


def _ejections(state: SearchState, host: int, kind: int) -> list[Ejection]:
    movers = state.movers[host]
    ejections = [
        (host, ejected, plus(minus(movers, ejected), kind)) for ejected in dict.fromkeys(movers) if ejected != kind
    ]
    return [ejection for ejection in ejections if state.problem.fits(host, ejection[2])]
