"""Local search for clouds of any size: places instances one after another, then improves by moves and swaps."""

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
        return round(after.total_loss - before.total_loss, 9), host

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
