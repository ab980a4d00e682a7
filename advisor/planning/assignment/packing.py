"""Packing onto few hosts: by classes of demand, by size, and hosts emptied one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Instance
from advisor.planning.assignment.local_search import SearchClock, best_host
from advisor.planning.assignment.objectives import arrivals
from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.planning.assignment.search_state import SearchState, dominant_share, hosts_in_use, minus, plus
from models.arrays import Bools, Floats, Ints

# Demand classes: instances with the same workload, settings and limits, which differ only in load and size.
#
# Which kinds of vCPUs they have is none of that: dedicated ones share no CPU.


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Kinds sorted by load, and the number of instances of each."""

    kinds: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.count)


def class_key(instance: Instance) -> tuple[object, ...]:
    """What instances of one demand class have in common."""
    return (
        instance.workload,
        instance.settings,
        instance.service,
        instance.min_throughput_ratio,
        instance.max_latency_ratio,
        instance.max_time_short,
        instance.demand_key,
        bool(instance.dedicated_vcpus),
        bool(instance.shared_vcpus),
    )


def demand_classes(problem: PackingProblem, counts: Counter[int]) -> list[DemandClass]:
    """Group the instances by demand class."""
    kinds_by_key: dict[tuple[object, ...], list[int]] = {}
    for kind in sorted(counts, key=lambda kind: (problem.kinds[kind].load, kind)):
        kinds_by_key.setdefault(class_key(problem.kinds[kind]), []).append(kind)
    return [DemandClass(tuple(kinds), tuple(counts[kind] for kind in kinds)) for kinds in kinds_by_key.values()]


# Consolidation: empties whole hosts, several at a time in a large cloud; the model checks every receiving host.

OFFERS = 8  # hosts predicted at a time for one instance
PER_EMPTIED = 32  # hosts in use per host emptied at the same time


@dataclass(frozen=True, slots=True)
class Refusals:
    """Remembers which hosts refused which instances because a limit would break.

    `sort` (K,) numbers the kinds that differ only in load and memory, `load` (K,) is each kind's load, and `least` (S,
    H) the lowest load of a sort that a host refused, inf = none. Hosts only fill up while others are emptied, so a
    refused kind and heavier ones are not tried again. This only orders and saves predictions; it decides nothing.
    """

    sort: Ints
    load: Floats
    least: Floats

    @classmethod
    def none(cls, problem: PackingProblem) -> Refusals:
        number: dict[tuple[object, ...], int] = {}
        sort = [
            number.setdefault((kind.vcpus, kind.dedicated_vcpus, class_key(kind)), len(number))
            for kind in problem.kinds
        ]
        return cls(
            sort=np.array(sort, dtype=np.int64),
            load=np.array([kind.load for kind in problem.kinds]),
            least=np.full((len(number), problem.hosts), np.inf),
        )

    def open(self, kind: int) -> Bools:
        """Hosts that have not refused this kind, (H,)."""
        return np.asarray(self.load[kind] < self.least[self.sort[kind]])

    def add(self, kind: int, host: int) -> None:
        """Record a refusal."""
        self.least[self.sort[kind], host] = min(self.least[self.sort[kind], host], self.load[kind])


def empty_hosts(state: SearchState, clock: SearchClock, most_moves: int | None, least: int) -> bool:
    """Empty hosts that hold no fixed instance, those with fewest instances first, until `least` are in use.

    A host is emptied completely, with every instance on another host in use and no limit broken, or left as it was. In
    a large cloud several hosts are emptied at a time, so that one prediction covers many candidates; a receiving host
    takes instances from one of them only. Hosts that failed because of this are tried again with half the batch size.
    Returns True if the search ended before the clock did.
    """
    refusals = Refusals.none(state.problem)
    queue = [host for host, there in enumerate(state.movers) if there and not state.problem.fixed[host]]
    in_use = hosts_in_use(state)
    max_batch = max(1, in_use // PER_EMPTIED)
    while queue and in_use > least:
        if clock.over:
            return False
        queue.sort(key=lambda host: (len(state.movers[host]), *state.used[host].tolist(), host))
        batch_size = min(max_batch, max(1, in_use // PER_EMPTIED), in_use - least)
        batch = _Batch.of(state, refusals, queue[:batch_size], most_moves)
        batch.empty(clock)
        queue = [*batch.again, *queue[batch_size:]]
        in_use -= batch.emptied
        if batch.again and not batch.emptied:
            max_batch = max(1, batch_size // 2)
    return True


@dataclass(slots=True)
class _Leaving:
    """A host being emptied: its original movers, and for each receiving host its former movers and refusals."""

    were: Kinds
    taking: dict[int, tuple[Kinds, Floats]] = field(default_factory=dict)


@dataclass(slots=True)
class _Batch:
    """Hosts emptied at the same time.

    `free` (H,) marks hosts that may receive from any of them, `moves` how many moves are left. `emptied` counts the
    hosts emptied; `again` lists those blocked only by others of the batch.
    """

    state: SearchState
    refusals: Refusals
    going: dict[int, _Leaving]
    free: Bools
    moves: float
    emptied: int = 0
    again: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, state: SearchState, refusals: Refusals, hosts: Sequence[int], most_moves: int | None) -> _Batch:
        free = np.array(state.workload_counts.any(axis=1))
        free[list(hosts)] = False
        left = np.inf if most_moves is None else most_moves - _came(state, range(state.problem.hosts))
        return cls(state, refusals, {host: _Leaving(state.movers[host]) for host in hosts}, free, left)

    def empty(self, clock: SearchClock) -> None:
        """Move one instance of each host at a time until all are empty or restored."""
        alone = len(self.going) == 1
        while self.going:
            offers = []
            offered = np.zeros_like(self.free)
            for host, leaving in list(self.going.items()):
                usable = self.free.copy()
                usable[list(leaving.taking)] = True
                kind, open_hosts = _hardest(self.state, self.refusals, host, usable)
                if clock.over or not open_hosts.any():
                    self._back(host)
                    any_in_use = np.asarray(self.state.workload_counts.any(axis=1))
                    if not alone and _hardest(self.state, self.refusals, host, any_in_use)[1].any():
                        self.again.append(host)
                    continue
                offered_here = self.state.ranked_hosts(kind, np.flatnonzero(open_hosts & ~offered))[:OFFERS].tolist()
                offered[offered_here] = True
                offers.append((host, kind, offered_here))
            self.state.evaluator.evaluate(
                (target, plus(self.state.movers[target], kind))
                for _, kind, offered_here in offers
                for target in offered_here
            )
            for host, kind, offered_here in offers:
                self._take(host, kind, offered_here)

    def _take(self, host: int, kind: int, targets: Sequence[int]) -> None:
        """Place one instance of a kind on the best offered host that breaks no limit."""
        state = self.state
        for target in targets:
            if not state.feasible(target, plus(state.movers[target], kind)):
                self.refusals.add(kind, target)
        best = best_host(state, kind, targets)
        if best is None:
            return
        self.going[host].taking.setdefault(best, (state.movers[best], self.refusals.least[:, best].copy()))
        self.free[best] = False
        state.place(best, plus(state.movers[best], kind))
        state.place(host, minus(state.movers[host], kind))
        if not state.movers[host]:
            self._emptied(host)

    def _emptied(self, host: int) -> None:
        """Keep the result unless it takes too many moves."""
        leaving, problem = self.going[host], self.state.problem
        before = arrivals(problem, host, leaving.were)
        before += sum(arrivals(problem, target, were) for target, (were, _) in leaving.taking.items())
        extra_moves = _came(self.state, leaving.taking) - before
        if extra_moves > self.moves:
            self._back(host)
            return
        self.moves -= extra_moves
        self.emptied += 1
        self.free[list(leaving.taking)] = True
        del self.going[host]

    def _back(self, host: int) -> None:
        """Restore a host and all hosts that received from it."""
        leaving = self.going.pop(host)
        for target, (were, refused) in leaving.taking.items():
            self.state.place(target, were)
            self.refusals.least[:, target] = refused
        self.state.place(host, leaving.were)
        self.free[list(leaving.taking)] = True


def _came(state: SearchState, hosts: Iterable[int]) -> int:
    return sum(arrivals(state.problem, host, state.movers[host]) for host in hosts)


def _hardest(state: SearchState, refusals: Refusals, host: int, free: Bools) -> tuple[int, Bools]:
    """The kind on a host with the fewest open hosts, the larger of equals, and those hosts, (H,)."""
    options = []
    for kind in dict.fromkeys(state.movers[host]):
        open_hosts = free & refusals.open(kind) & state.hosts_with_room(kind)
        open_hosts[host] = False
        options.append((int(open_hosts.sum()), -dominant_share(state, kind), kind, open_hosts))
    _, _, kind, open_hosts = min(options, key=lambda option: option[:3])
    return kind, open_hosts


AHEAD = 16  # instances tried on a host in one prediction, one more in each scene
COPIES = (1, 2, 4, 8, 16, 32, 64)  # copies of one member, to estimate how many hosts a demand class needs


def repack(state: SearchState, clock: SearchClock, most_moves: int | None, least: int) -> bool:
    """Pack all movable instances onto a cloud without them, then empty hosts until `least` are in use.

    The former state is restored unless fewer hosts are in use. Returns True if it ended before the clock did.
    """
    before, hosts_before = list(state.movers), hosts_in_use(state)
    state.place_all([()] * len(before))
    state.evaluator.evaluate((host, ()) for host in range(state.problem.hosts))
    unplaced = pack(state, [kind for movers in before for kind in movers], clock)
    ended = empty_hosts(state, clock, None, least) and not unplaced
    if unplaced or hosts_in_use(state) >= hosts_before or not _few(state, most_moves):
        state.place_all(before)
    return ended


def pack(state: SearchState, waiting: Sequence[int], clock: SearchClock) -> list[int]:
    """Place waiting instances beside those in place; returns those without a host.

    Demand classes that need most hosts come first, and of each class the heaviest instances. A host takes as many of
    the next instances as its limits allow. Instances of similar load thus share a host, because the heaviest on a host
    is the first to fall below its limit.
    """
    counts, unplaced = Counter(waiting), list[int]()
    classes = demand_classes(state.problem, counts)
    host_needs = []
    for demand_class in classes:
        if clock.over:
            return list(waiting)
        host_needs.append(_need(state, demand_class))
    for number in sorted(range(len(classes)), key=lambda number: (-host_needs[number], number)):
        unplaced += _seated(
            state, [kind for kind in reversed(classes[number].kinds) for _ in range(counts[kind])], clock
        )
    return unplaced


def _need(state: SearchState, demand_class: DemandClass) -> float:
    """Estimates how many hosts a demand class needs.

    It evaluates copies of the median member on the most common class of hosts.
    """
    middle = demand_class.kinds[int(np.searchsorted(np.cumsum(demand_class.count), demand_class.total / 2))]
    common = int(np.bincount(state.problem.class_of_host).argmax())
    state.evaluator.evaluate_keys((common, (middle,) * copies) for copies in COPIES)
    feasible_counts = [copies for copies in COPIES if not state.evaluator.known(common, (middle,) * copies).below]
    return demand_class.total / max(feasible_counts, default=1)


def _seated(state: SearchState, queue: Sequence[int], clock: SearchClock) -> Sequence[int]:
    """Place these in order, on hosts in use first and then on the largest; returns those that no host took."""
    room = state.problem.room
    order = sorted(
        range(state.problem.hosts), key=lambda host: (not state.workload_counts[host].any(), *(-room[host]), host)
    )
    for host in order:
        if not queue or clock.over:
            break
        taken = -1
        while queue and taken and not clock.over:
            movers = _next(state, host, queue)
            taken = len(movers) - len(state.movers[host])
            state.place(host, movers)
            queue = queue[taken:]
    return queue


def _next(state: SearchState, host: int, queue: Sequence[int]) -> Kinds:
    """The movers of a host with as many of the next instances, at most AHEAD, as its limits allow."""
    movers = state.movers[host]
    candidates = []
    for count in range(1, min(AHEAD, len(queue)) + 1):
        candidate = tuple(sorted((*movers, *queue[:count])))
        if not state.problem.fits(host, candidate):
            break
        candidates.append(candidate)
    state.evaluator.evaluate((host, candidate) for candidate in candidates)
    for candidate in candidates:
        if not state.feasible(host, candidate):
            break
        movers = candidate
    return movers


def _few(state: SearchState, most_moves: int | None) -> bool:
    if most_moves is None:
        return True
    return sum(arrivals(state.problem, host, there) for host, there in enumerate(state.movers)) <= most_moves
