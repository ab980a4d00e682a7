"""What a migration costs, and what it brings: residents are moved where it pays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.domain import Band
from advisor.planning.assignment.packing_problem import Goal, Kinds, PackingProblem
from advisor.planning.assignment.search_state import Losses, Pattern, SearchState, minus, plus
from advisor.planning.migration_time import MB_PER_MBIT, PAUSE_S, copy_time, network_of
from advisor.scheduling.scoring import harm
from models.arrays import Floats, Ints

# What a migration costs, in the unit of what a move gains: harm, on average over the time in which it must pay.

# A VM loses about a tenth of its CPU while its memory is copied (Beloglazov and Buyya, Concurrency and Computation 24,
# 2012, after the measurements of Voorsluys et al., CloudCom 2009).
SLOWED = 0.1
# CPUs that copying takes on each of both hosts: vSphere sets 30 % of a core apart for vMotion over 1 Gbit/s, and a
# whole core over 10 Gbit/s (VMware, vSphere vMotion Architecture, Performance and Best Practices, 2011).
CPUS_AT_1_GBIT, CPUS_AT_10_GBIT = 0.3, 1.0
ASSUMED_MBIT = 1000.0  # of a host whose network is not known
RESTART_S = 30.0  # a container is stopped and started anew: without service for so long; assumed
UNPAYABLE = Band(math.inf, math.inf, math.inf)  # its memory is written faster than it is copied


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """The costs of moves in one problem, each spread over `pays_within_s` seconds.

    `host_mbit` is the most that moves may use of a host's network, None = as the host says.
    """

    problem: PackingProblem
    pays_within_s: float
    host_mbit: float | None = None

    def of(self, kind: int, source: int, target: int, residents: tuple[Kinds, Kinds]) -> Band:
        """The cost of a move; `residents` are those of both hosts before it.

        While its memory is copied the instance is slowed, at the end it pauses, and others lose what copying takes of
        CPUs that they want. The range is that of the copy's duration; nothing pays for one that never ends.
        """
        ends = [self.problem.snapshot.hosts[at] for at in (source, target)]
        if any(host.kind == "lxc" for host in ends):
            return Band(*(3 * (RESTART_S / self.pays_within_s,)))
        mbit = min(network_of(host, self.host_mbit) or ASSUMED_MBIT for host in ends)
        seconds = copy_time(self.problem.kinds[kind], mbit * MB_PER_MBIT)
        if seconds is None:
            return UNPAYABLE
        others = sum(self._lost(at, there, mbit, kind) for at, there in zip((source, target), residents, strict=True))

        def cost(copied_s: float) -> float:
            own = SLOWED * copied_s + min(PAUSE_S, copied_s)
            return float(harm(own, own + others * copied_s)) / self.pays_within_s

        return Band(cost(seconds.expected), cost(seconds.lower), cost(seconds.upper))

    def _lost(self, host: int, residents: Kinds, mbit: float, mover: int) -> float:
        """What all residents but the mover lose together of their speed while a host copies, per second.

        What copying takes of busy CPUs is missing from all that demand them, in proportion to the demand of each.
        """
        demands = [float(self.problem.cpus[kind, self.problem.class_of_host[host]]) for kind in residents]
        takes, pcpus = copying_cpus(mbit), self.problem.snapshot.hosts[host].pcpus
        asked = sum(demands) + takes
        missing = min(max(asked - pcpus, 0.0), takes)
        others = sum(cpus > 0 for cpus in demands) - (mover in residents)
        return max(others, 0) * missing / asked


def copying_cpus(mbit: float) -> float:
    """CPUs that a host uses to send or receive memory at so many Mbit/s."""
    gbit = mbit / 1000
    if gbit <= 1:
        return CPUS_AT_1_GBIT * gbit
    return CPUS_AT_1_GBIT + (CPUS_AT_10_GBIT - CPUS_AT_1_GBIT) * (gbit - 1) / 9


def less(gain: Band, costs: Sequence[Band]) -> Band:
    """A gain without what it costs, at the edges of both that are worse together."""
    if not costs:
        return gain
    return Band(
        gain.expected - sum(cost.expected for cost in costs),
        gain.lower - sum(cost.upper for cost in costs),
        gain.upper - sum(cost.lower for cost in costs),
    )


KindMove = tuple[int, int, int]  # kind, source host, target host
NOTICEABLE_CHANGE = 0.01  # of a loss: an instance that changes by less is not the most affected of a move
EXPECTED, BETTER, WORSE = range(3)  # of `Losses`

_Outcome = tuple[int, Losses, bool]  # host, losses, whether it is below a limit


def moves_made(state: SearchState) -> list[KindMove]:
    """All moves of the current state, by kind; of one kind the lowest hosts are paired."""
    sources_by_kind: dict[int, list[int]] = {}
    targets_by_kind: dict[int, list[int]] = {}
    for host, movers in enumerate(state.movers):
        current, before = Counter(movers), Counter(state.problem.initial[host])
        for kind in (before - current).elements():
            sources_by_kind.setdefault(kind, []).append(host)
        for kind in (current - before).elements():
            targets_by_kind.setdefault(kind, []).append(host)
    return [
        (kind, source, target)
        for kind in sorted(targets_by_kind)
        for source, target in zip(sources_by_kind.get(kind, []), targets_by_kind[kind], strict=False)
    ]


def gain(state: SearchState, move: KindMove, costs: MoveCosts) -> Band:
    """The gain of a move, less its cost, compared with its two hosts without it.

    Where the move cannot be undone alone because its place is taken, all moves linked to it are undone together.
    """
    _, source, target = move
    undone, moves = without(state, move), [move]
    if not state.problem.fits(*undone[0]):
        hosts = linked_hosts(state, move)
        undone = tuple((host, state.problem.initial[host]) for host in hosts)
        moves = [other for other in moves_made(state) if other[1] in hosts]
    else:
        hosts = [source, target]
    state.evaluator.evaluate(undone)
    gained = gain_between([state.evaluator.at(*side) for side in undone], [state.pattern(host) for host in hosts])
    return less(gained, [cost_at_start(state, costs, other) for other in moves])


def cost_at_start(state: SearchState, costs: MoveCosts, move: KindMove) -> Band:
    """The cost of a move between hosts as they are at the start."""
    problem, (kind, source, target) = state.problem, move
    here, there = (tuple(sorted((*problem.fixed[at], *problem.initial[at]))) for at in (source, target))
    return costs.of(kind, source, target, (here, there))


def cost_of(state: SearchState, costs: MoveCosts, sides: Sequence[tuple[int, Kinds]]) -> list[Band]:
    """The costs of a change of two hosts; an instance that comes back to a host where it was at the start costs
    nothing."""
    (first, _), (second, _) = sides
    moves = []
    for (target, after), source in zip(sides, (second, first), strict=True):
        there = Counter(state.movers[target]) | Counter(state.problem.initial[target])
        moves += [(kind, source, target) for kind in (Counter(after) - there).elements()]
    return [cost_at_start(state, costs, move) for move in moves]


def without(state: SearchState, move: KindMove) -> tuple[tuple[int, Kinds], ...]:
    """The two hosts of a move as they would be without it."""
    kind, source, target = move
    return (source, plus(state.movers[source], kind)), (target, minus(state.movers[target], kind))


def linked_hosts(state: SearchState, move: KindMove) -> list[int]:
    """The hosts of a move and of all moves that share a host with it, directly or not; these can be undone together."""
    hosts = {move[1], move[2]}
    pairs = [{source, target} for _, source, target in moves_made(state)]
    changed = True
    while changed:
        changed = False
        for pair in pairs:
            if pair & hosts and not pair <= hosts:
                hosts |= pair
                changed = True
    return sorted(hosts)


def gain_between(before: Sequence[Pattern], after: Sequence[Pattern]) -> Band:
    """The gain of some hosts with the same instances between two states, with its 90 % interval.

    It is by how much the harm falls that a ranking counts (`scoring.harm`): what the most affected loses of its speed
    alone and of its time, and a part of what all others lose. The most affected is one of those that are affected.
    Where fewer instances are below a limit afterwards, it may also be the largest gain of an instance brought back
    within its limit; the surer of both is taken.

    What is not known of a host and its instances is the same before and after, so the uncertainty is not that of two
    independent states. For one host after another, every instance that is there before or after is taken at the same
    edge of its interval in both states. What is not known of different hosts is taken as independent.
    """
    pairs = list(_pairs(before, after))
    was = np.array([pair[0][1] for pair in pairs]).reshape(-1, 3)
    now = np.array([pair[1][1] for pair in pairs]).reshape(-1, 3)
    hosts = np.array([(pair[0][0], pair[1][0]) for pair in pairs], dtype=np.int64).reshape(-1, 2)
    bands = [_less_harm(was, now, hosts, len(before))]
    if sum(len(item.below) for item in after) < sum(len(item.below) for item in before):
        relieved = [at for at, pair in enumerate(pairs) if pair[0][2] and not pair[1][2]]
        bands += [_less_harm(was[[at]], now[[at]], hosts[[at]], len(before)) for at in relieved]
    return max(bands, key=lambda item: (item.lower, item.expected))


def is_worth_it(gain_band: Band, goal: Goal) -> bool:
    """Whether a gain beyond the cost exceeds the goal's `move_gain` and its own uncertainty."""
    return gain_band.expected > goal.move_gain and round(gain_band.lower, 9) > 0


def undo_unworthy(state: SearchState, goal: Goal, costs: MoveCosts) -> bool:
    """Undo moves that are not worth it beside the others; True if there was one.

    A move is undone alone where no limit breaks by that, else with all linked moves.
    """
    undone_any = False
    while True:
        unworthy = next((move for move in moves_made(state) if not is_worth_it(gain(state, move, costs), goal)), None)
        if unworthy is None:
            return undone_any
        undone_any = True
        sides = without(state, unworthy)
        state.evaluator.evaluate(sides)
        if not state.problem.fits(*sides[0]) or not all(state.feasible(*side) for side in sides):
            sides = tuple((host, state.problem.initial[host]) for host in linked_hosts(state, unworthy))
        for side in sides:
            state.place(*side)


def _less_harm(was: Floats, now: Floats, hosts: Ints, count: int) -> Band:
    """By how much the harm falls; `was` and `now` (n, 3) are the losses of n instances, `hosts` (n, 2) where they are
    before and after, as numbers below `count`."""
    affected = np.abs(was[:, EXPECTED] - now[:, EXPECTED]) > NOTICEABLE_CHANGE

    def fall(before: Floats, after: Floats) -> float:
        most = before[affected].max(initial=0.0) - after[affected].max(initial=0.0)
        return float(harm(most, before.sum() - after.sum()))

    expected = fall(was[:, EXPECTED], now[:, EXPECTED])
    down = up = 0.0
    for host in range(count):
        there = (hosts == host).any(axis=1)
        gained = [
            fall(*(np.where(there, loss[:, edge], loss[:, EXPECTED]) for loss in (was, now)))
            for edge in (BETTER, WORSE)
        ]
        down = math.hypot(down, max(expected - min(gained), 0.0))
        up = math.hypot(up, max(max(gained) - expected, 0.0))
    return Band(expected, expected - down, expected + up)


def _pairs(before: Sequence[Pattern], after: Sequence[Pattern]) -> Iterator[tuple[_Outcome, _Outcome]]:
    """Each instance before and after; instances of a kind that a host has both times count as staying."""
    left_by_kind: dict[int, list[_Outcome]] = {}
    came_by_kind: dict[int, list[_Outcome]] = {}
    for host, (was, now) in enumerate(zip(before, after, strict=True)):
        outcomes_before, outcomes_after = _outcomes_by_kind(host, was), _outcomes_by_kind(host, now)
        for kind in outcomes_before.keys() | outcomes_after.keys():
            before_here, after_here = outcomes_before.get(kind, []), outcomes_after.get(kind, [])
            common = min(len(before_here), len(after_here))
            yield from zip(before_here[:common], after_here[:common], strict=True)
            left_by_kind.setdefault(kind, []).extend(before_here[common:])
            came_by_kind.setdefault(kind, []).extend(after_here[common:])
    for kind, departed in left_by_kind.items():
        yield from zip(departed, came_by_kind[kind], strict=True)


def _outcomes_by_kind(host: int, pattern: Pattern) -> dict[int, list[_Outcome]]:
    """The instances of a host by kind."""
    below = set(pattern.below)
    outcomes: dict[int, list[_Outcome]] = {}
    for kind, ratio, losses in zip(pattern.kinds, pattern.ratios, pattern.losses, strict=True):
        outcomes.setdefault(kind, []).append((host, losses, (kind, ratio) in below))
    return outcomes
