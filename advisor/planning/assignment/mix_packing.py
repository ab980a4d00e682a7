"""How many of a mix fit beside the residents: what each host holds, approximated from both sides, and a program on it.

What a host holds of K kinds is a set of vectors of counts. With a vector it is taken to hold every smaller one, because
removing an instance takes no instance below a limit. So the set lies between the vectors that were predicted to be
held, and a polyblock that every vector that is not held cuts smaller (Tuy, Monotonic optimization, SIAM J. Optim. 11,
2000). The best choice of one vector for each host is an integer program: over the polyblocks it gives a bound, over
what is held a plan. Only the corners that the bound rests on are examined, so that each step helps, and the time may
end at any step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor import work
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.packing_problem import SIZES, Kinds
from advisor.planning.assignment.search_state import SearchState, alike_hosts

Counts = tuple[int, ...]  # of each kind of the mix
TOLERANCE = 1e-6  # instances: numerical error of a program
RELAXED_SHARE = 0.6  # of the time for corners that the relaxed bound rests on; the rest for those of the integer one
NODES = 2_000  # of branch and bound in one program, which are the same on every machine
MOST_WALL_S = 30.0  # of one program
ROUNDS = 400  # of looking at corners: limits the work, so that the wall clock rarely decides the result


@dataclass(frozen=True, slots=True)
class MixPacking:
    """The movers that each host gets (H,), of so many of the mix in turn, and how many no plan surpasses.

    `in_time` is False where the time ended before both met.
    """

    movers: tuple[Kinds, ...]
    fit: int
    bound: int
    in_time: bool


@dataclass(slots=True)
class _Held:
    """What each of some alike hosts holds: `inner` are counts that it does, each count that it holds is below a corner.

    `open` are corners of which it is not known whether they are held.
    """

    hosts: tuple[int, ...]
    inner: set[Counts]
    corners: set[Counts]
    open: set[Counts] = field(default_factory=set)

    def cut(self, beyond: Counts) -> None:
        """Remove everything that is not below `beyond`, which is not held, from the blocks of all corners."""
        for corner in [corner for corner in self.corners if _below(beyond, corner)]:
            self.corners.discard(corner)
            self.open.discard(corner)
            for at, count in enumerate(beyond):
                smaller = (*corner[:at], count - 1, *corner[at + 1 :])
                if count and not any(_below(smaller, other) for other in self.corners):
                    self.corners.add(smaller)
                    self.open |= {smaller} if any(smaller) else set()


@dataclass(frozen=True, slots=True)
class _Choice:
    """The solution of a program: the total, a bound on it, and how often which hosts hold which counts."""

    total: float
    bound: float
    used: Sequence[tuple[int, Counts, float]]


def pack_mix(state: SearchState, mix: Sequence[int], most: int, clock: SearchClock) -> MixPacking:
    """Fill the hosts of an admission with `mix`, the kinds in turn, up to `most` in all."""
    packer = _MixPacker.of(state, mix, most, clock)
    return packer.packed()


@dataclass(slots=True)
class _MixPacker:
    """`kinds` are the distinct kinds of the mix, `position` (M,) the place among them of each of its members."""

    state: SearchState
    kinds: tuple[int, ...]
    position: tuple[int, ...]
    most: int
    clock: SearchClock
    held: list[_Held]

    @classmethod
    def of(cls, state: SearchState, mix: Sequence[int], most: int, clock: SearchClock) -> _MixPacker:
        kinds = tuple(dict.fromkeys(mix))
        nothing = (0,) * len(kinds)
        groups = []
        for hosts in alike_hosts(state.problem):
            corner = tuple(_most_by_size(state, hosts[0], kind, most) for kind in kinds)
            groups.append(_Held(hosts, {nothing}, {corner}, {corner} - {nothing}))
        return cls(state, kinds, tuple(kinds.index(kind) for kind in mix), most, clock, groups)

    def packed(self) -> MixPacking:
        """Approximate what hosts hold until plan and bound meet, or the time ends."""
        relaxed_until = self.clock.left_s * (1 - RELAXED_SHARE)
        for _ in range(ROUNDS):
            outer = self._choice(outer=True, integer=False)
            if self.clock.left_s <= relaxed_until or not self._look_at(outer):
                break
        bound = min(self.most, math.floor(outer.bound + TOLERANCE))
        for _ in range(ROUNDS):
            outer = self._choice(outer=True, integer=True)
            bound = min(bound, math.floor(outer.bound + TOLERANCE))
            if self.clock.over or not self._look_at(outer):
                break
        inner = self._choice(outer=False, integer=True)
        movers, fit = self._dealt(inner)
        return MixPacking(movers, fit, max(bound, fit), fit >= bound or not self.clock.over)

    def _look_at(self, choice: _Choice) -> bool:
        """Find out how much of the corners that a choice uses is held; False where all of them are known to be."""
        open_corners = [(number, corner) for number, corner, _ in choice.used if corner in self.held[number].open]
        chains = [_chain(corner) for _, corner in open_corners]
        low, high = [0] * len(open_corners), [len(chain) for chain in chains]
        while not self.clock.past_latest:
            going = [at for at in range(len(open_corners)) if high[at] - low[at] > 1]
            if not going:
                break
            middle = {at: min((low[at] + high[at]) // 2, 2 * low[at] + 1) for at in going}
            for at, is_held in zip(
                going, self._holds([(open_corners[at][0], chains[at][middle[at]]) for at in going]), strict=True
            ):
                if is_held:
                    low[at] = middle[at]
                else:
                    high[at] = middle[at]
        for (number, corner), chain, held, beyond in zip(open_corners, chains, low, high, strict=True):
            group = self.held[number]
            group.inner.add(chain[held])
            if beyond < len(chain):
                group.cut(chain[beyond])
            elif held == len(chain) - 1:
                group.open.discard(corner)
        return bool(open_corners)

    def _holds(self, wanted: Sequence[tuple[int, Counts]]) -> list[bool]:
        """Whether hosts hold these counts beside their residents, with all limits; predicted in one batch."""
        hosts = [(self.held[number].hosts[0], self._movers(counts)) for number, counts in wanted]
        fitting = [self.state.problem.fits(host, movers) for host, movers in hosts]
        self.state.evaluator.evaluate(state for state, fits in zip(hosts, fitting, strict=True) if fits)
        return [fits and self.state.feasible(*state) for state, fits in zip(hosts, fitting, strict=True)]

    def _movers(self, counts: Counts) -> Kinds:
        return tuple(sorted(kind for kind, count in zip(self.kinds, counts, strict=True) for _ in range(count)))

    def _choice(self, *, outer: bool, integer: bool) -> _Choice:
        """The most of the mix in turn, with one of the known counts for each host.

        How many there are of each member of the mix differs by one at most, and no later one is more often there.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import
        from scipy.sparse import coo_array

        columns = [
            (number, counts)
            for number, group in enumerate(self.held)
            for counts in sorted(group.corners if outer else _undominated(group.inner))
        ]
        members, choices, kinds, groups = len(self.position), len(columns), len(self.kinds), len(self.held)
        rows = np.array(list(self._entries(columns)), dtype=np.float64).reshape(-1, 3)
        shape = (kinds + groups + members + 1, choices + members)
        matrix = coo_array((rows[:, 2], (rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64))), shape=shape)
        lower = np.concatenate([np.zeros(kinds), np.full(groups, -np.inf), np.zeros(members - 1), [-1.0, -np.inf]])
        upper = np.full(shape[0], np.inf)
        upper[kinds : kinds + groups] = [len(group.hosts) for group in self.held]
        upper[-1] = self.most
        solution = milp(
            np.concatenate([np.zeros(choices), -np.ones(members)]),
            integrality=np.full(shape[1], int(integer)),
            bounds=Bounds(0, np.inf),
            constraints=LinearConstraint(matrix.tocsr(), lower, upper),
            options={"time_limit": max(min(work.wall_left_s(), MOST_WALL_S), 0.5), "node_limit": NODES},
        )
        work.add(shape[1] * (1 + int(solution.get("mip_node_count") or 0)))
        if solution.x is None:
            return _Choice(0.0, float(self.most), ())
        total = -float(solution.fun)
        dual = solution.get("mip_dual_bound") if integer else None
        used = [
            (*column, float(times)) for column, times in zip(columns, solution.x, strict=False) if times > TOLERANCE
        ]
        return _Choice(total, total if dual is None else max(total, -float(dual)), used)

    def _entries(self, columns: Sequence[tuple[int, Counts]]) -> Iterator[tuple[int, int, float]]:
        """The program as row, column and coefficient: of each kind enough is held, each host has one choice, members
        come in turn, and there are not more than `most`."""
        kinds, groups, members, choices = len(self.kinds), len(self.held), len(self.position), len(columns)
        for column, (number, counts) in enumerate(columns):
            yield from ((kind, column, float(count)) for kind, count in enumerate(counts) if count)
            yield kinds + number, column, 1.0
        for member, kind in enumerate(self.position):
            yield kind, choices + member, -1.0
            yield kinds + groups + members, choices + member, 1.0
        for member in range(members - 1):
            yield kinds + groups + member, choices + member, 1.0
            yield kinds + groups + member, choices + member + 1, -1.0
        if members > 1:
            yield kinds + groups + members - 1, choices + members - 1, 1.0
            yield kinds + groups + members - 1, choices, -1.0

    def _dealt(self, choice: _Choice) -> tuple[tuple[Kinds, ...], int]:
        """The movers of each host, without those that the mix in turn does not ask for; and how many there are."""
        counts = [[0] * len(self.kinds) for _ in range(self.state.problem.hosts)]
        queues = [list(group.hosts) for group in self.held]
        for number, held, times in choice.used:
            for _ in range(round(times)):
                counts[queues[number].pop(0)] = list(held)
        while True:
            fit = min(self.most, _in_turn([sum(several) for several in zip(*counts, strict=True)], self.position))
            surplus = [sum(several) for several in zip(*counts, strict=True)]
            surplus = [many - few for many, few in zip(surplus, _asked(fit, self.position, len(surplus)), strict=True)]
            for here in counts:
                for kind, count in enumerate(here):
                    removed = min(count, surplus[kind])
                    here[kind] -= removed
                    surplus[kind] -= removed
            movers = tuple(self._movers(tuple(here)) for here in counts)
            self.state.evaluator.evaluate(enumerate(movers))
            broken = [host for host, here in enumerate(movers) if not self.state.feasible(host, here)]
            if not broken:
                return movers, fit
            for host in broken:  # only where a model says that an instance is worse off because another one goes
                counts[host] = [0] * len(self.kinds)


def _in_turn(there: Sequence[int], position: Sequence[int]) -> int:
    """How many of the mix in turn there are in these counts."""
    rounds = min(there[kind] // position.count(kind) for kind in set(position))
    left = [count - rounds * position.count(kind) for kind, count in enumerate(there)]
    further = 0
    for kind in position:
        if not left[kind]:
            break
        left[kind] -= 1
        further += 1
    return rounds * len(position) + further


def _asked(number: int, position: Sequence[int], kinds: int) -> list[int]:
    """How many of each kind the first so many of the mix in turn are."""
    rounds, further = divmod(number, len(position))
    return [rounds * position.count(kind) + position[:further].count(kind) for kind in range(kinds)]


def _most_by_size(state: SearchState, host: int, kind: int, most: int) -> int:
    """How many of a kind a host has room for by size, at most `most`; 0 where no filter lets one in."""
    problem = state.problem
    if not problem.fits(host, (kind,)):
        return 0
    if kind in problem.exclusive_kinds:
        return 1
    most = min([most, *(some for _, some in problem.anti_affinity.get(kind, ()))])
    needs = problem.needs[kind, problem.class_of_host[host], SIZES]
    free = (np.array(problem.room_with_slack[host]) - problem.used(host, problem.fixed[host]))[list(SIZES)]
    times = np.divide(free, needs, out=np.full(len(needs), np.inf), where=needs > 0)
    return int(min(times.min(), most))


def _chain(corner: Counts) -> list[Counts]:
    """Counts from nothing to a corner, each above the one before."""
    steps = max(corner)
    return list(dict.fromkeys(tuple(count * step // steps for count in corner) for step in range(steps + 1)))


def _below(counts: Counts, other: Counts) -> bool:
    return all(mine <= theirs for mine, theirs in zip(counts, other, strict=True))


def _undominated(several: set[Counts]) -> list[Counts]:
    return [counts for counts in several if not any(counts != other and _below(counts, other) for other in several)]


def hosts_in_turn(movers: Sequence[Kinds], mix: Sequence[int], number: int) -> list[int]:
    """The host of each of the first so many of a mix in turn, where these movers are on each."""
    places: Mapping[int, list[int]] = {kind: [] for kind in mix}
    for host, here in enumerate(movers):
        for kind in here:
            places[kind].append(host)
    taken = dict.fromkeys(places, 0)
    hosts = []
    for at in range(number):
        kind = mix[at % len(mix)]
        hosts.append(places[kind][taken[kind]])
        taken[kind] += 1
    return hosts
