"""The state of a search: who is where, what each host costs, and sets of patterns that were found good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Objective
from advisor.planning.assignment.packing_problem import ASKED, SIZES, VCPUS, Kinds, PackingProblem
from advisor.planning.assignment.pattern_evaluator import RATIO_TOLERANCE, Pattern, PatternEvaluator
from advisor.rounding import with_slack
from models.arrays import Bools, Floats, Ints

Cost = tuple[float, float]  # primary and secondary cost; lower is better

MAX_WORKLOADS = 400  # whose pairs are all predicted: 80,000 pairs


@dataclass(slots=True)
class SearchState:
    """`movers` (H,) are the movable instances of each host; at first as in the cloud.

    A host state is feasible if it adds no limit violation and worsens none that existed initially.
    """

    evaluator: PatternEvaluator
    objective: Objective
    movers: list[Kinds]
    used: Floats
    workload_of: Ints
    pair_loss: Floats
    workload_counts: Floats  # (H, F) instances of each workload
    holds_exclusive: Bools  # (H,) whether an instance there requires the host for itself
    busy: Floats  # (H,) CPUs that the instances of each host want on average, of its pCPUs
    _tolerated: tuple[Mapping[int, tuple[float, int]], ...] = field(default=())

    @classmethod
    def of(cls, evaluator: PatternEvaluator, objective: Objective) -> SearchState:
        """The initial state; predicts its hosts and, up to MAX_WORKLOADS workloads, every pair of workloads."""
        problem = evaluator.problem
        hosts = range(problem.hosts)
        evaluator.evaluate((host, problem.initial[host]) for host in hosts)
        tolerated = []
        for host in hosts:
            below = evaluator.at(host, problem.initial[host]).below
            counts = Counter(kind for kind, _ in below)
            tolerated.append({kind: (ratio, counts[kind]) for kind, ratio in sorted(below, reverse=True)})
        names: dict[str, int] = {}
        workload_of = np.array(
            [names.setdefault(instance.workload or "", len(names)) for instance in problem.kinds], dtype=np.int64
        )
        workload_counts = np.zeros((problem.hosts, max(len(names), 1)))
        all_kinds = [(*problem.fixed[host], *problem.initial[host]) for host in hosts]
        for host, kinds in enumerate(all_kinds):
            np.add.at(workload_counts[host], workload_of[list(kinds)], 1)
        used = np.array([problem.used(host, kinds) for host, kinds in enumerate(all_kinds)]).reshape(-1, 5)
        pair_loss = evaluator.pairs(workload_of, len(names)) if len(names) <= MAX_WORKLOADS else np.ones((1, 1))
        holds_exclusive = np.array([not problem.exclusive_kinds.isdisjoint(kinds) for kinds in all_kinds], dtype=bool)
        return cls(
            evaluator,
            objective,
            list(problem.initial),
            used,
            workload_of,
            pair_loss,
            workload_counts,
            holds_exclusive,
            np.array([_busy(problem, host, kinds) for host, kinds in enumerate(all_kinds)]),
            tuple(tolerated),
        )

    @property
    def problem(self) -> PackingProblem:
        return self.evaluator.problem

    @property
    def tolerated(self) -> Counter[int]:
        """How many instances of each kind were below a limit initially."""
        counts: Counter[int] = Counter()
        for by_kind in self._tolerated:
            counts.update({kind: count for kind, (_, count) in by_kind.items()})
        return counts

    def pattern(self, host: int) -> Pattern:
        """The pattern of a host now."""
        return self.evaluator.at(host, self.movers[host])

    def feasible(self, host: int, movers: Kinds) -> bool:
        """Whether these movers on a host add and worsen no limit violation; the pattern must have been evaluated."""
        below = self.evaluator.at(host, movers).below
        if not below:
            return True
        if movers == self.problem.initial[host]:
            return True
        tolerated, counts = self._tolerated[host], Counter(kind for kind, _ in below)
        return all(
            kind in tolerated and ratio >= tolerated[kind][0] - RATIO_TOLERANCE and counts[kind] <= tolerated[kind][1]
            for kind, ratio in below
        )

    def cost(self, patterns: Iterable[Pattern]) -> Cost:
        """The cost of some hosts together: by greatest loss for `worst`, by sums for `total` and `pack`."""
        patterns = list(patterns)
        if self.objective == "worst":
            return max((pattern.max_loss for pattern in patterns), default=0.0), sum(
                pattern.harm for pattern in patterns
            )
        used = sum(bool(pattern.kinds) for pattern in patterns) if self.objective == "pack" else 0
        return float(used), sum(pattern.total_loss for pattern in patterns)

    def hosts_with_room(self, kind: int) -> Bools:
        """Hosts with room for one more of a kind, (H,), whatever it does to the others."""
        problem = self.problem
        needs = problem.needs[kind][problem.class_of_host]
        over = self.used + needs > with_slack(problem.room)
        over[:, ASKED] &= needs[:, ASKED] > 0
        has_room = problem.allowed[kind] & ~over.any(axis=1)
        if problem.exclusive_kinds:
            has_room &= ~self.holds_exclusive
        if kind in problem.exclusive_kinds:
            has_room &= ~self.workload_counts.any(axis=1)
        for group, most in problem.anti_affinity.get(kind, ()):
            counts = [self.groups_on(host)[group] for host in range(problem.hosts)]
            has_room &= np.array(counts) < most
        if kind in problem.counted_needs:
            for host in np.flatnonzero(has_room).tolist():
                has_room[host] = problem.has_counted(host, (*problem.fixed[host], *self.movers[host], kind), (kind,))
        return np.asarray(has_room)

    def groups_on(self, host: int) -> Counter[str]:
        """How many instances of each anti-affinity group are on a host."""
        groups, there = self.problem.anti_affinity, (*self.problem.fixed[host], *self.movers[host])
        return Counter(group for kind in there for group, _ in groups.get(kind, ()))

    def ranked_hosts(self, kind: int, hosts: Ints) -> Ints:
        """Hosts in the order in which they are worth predicting: by the pairwise losses of workloads, and where there
        are no several workloads with pairs, by the CPUs that are wanted there; to pack, the fullest first."""
        pressure = self.busy[hosts]
        if len(self.pair_loss) > 1:
            pressure = self.workload_counts[hosts] @ self.pair_loss[self.workload_of[kind]]
        if self.objective == "pack":
            share = self.used[hosts, VCPUS] / np.maximum(self.problem.room[hosts, VCPUS], 1e-9)
            return hosts[np.lexsort((pressure, -share, self.workload_counts[hosts].sum(axis=1) == 0))]
        return hosts[np.argsort(pressure, kind="stable")]

    def place(self, host: int, movers: Kinds) -> None:
        """Replace the movers of a host."""
        self.movers[host] = movers
        all_kinds = (*self.problem.fixed[host], *movers)
        self.used[host] = self.problem.used(host, all_kinds)
        self.workload_counts[host] = 0
        np.add.at(self.workload_counts[host], self.workload_of[list(all_kinds)], 1)
        self.holds_exclusive[host] = not self.problem.exclusive_kinds.isdisjoint(all_kinds)
        self.busy[host] = _busy(self.problem, host, all_kinds)

    def place_all(self, movers: Sequence[Kinds]) -> None:
        """Replace the movers of all hosts, one entry per host."""
        for host, host_movers in enumerate(movers):
            if host_movers != self.movers[host]:
                self.place(host, host_movers)


def _busy(problem: PackingProblem, host: int, kinds: Kinds) -> float:
    of_class = int(problem.class_of_host[host])
    return float(problem.cpus[list(kinds), of_class].sum()) / problem.classes[of_class].pcpus


def hosts_in_use(state: SearchState) -> int:
    """The number of hosts with at least one instance."""
    return int(state.workload_counts.any(axis=1).sum())


def dominant_share(state: SearchState, kind: int) -> float:
    """The largest share of the cloud's total room that a kind takes of any resource."""
    problem = state.problem
    room = problem.room[:, SIZES].sum(axis=0)
    needs = problem.needs[kind, 0, SIZES]
    return float(np.divide(needs, room, out=np.zeros_like(needs), where=np.isfinite(room) & (room > 0)).max())


def better(first: Cost, second: Cost) -> bool:
    """Whether the first costs less, by more than rounding."""
    if abs(first[0] - second[0]) > RATIO_TOLERANCE:
        return first[0] < second[0]
    return first[1] < second[1] - RATIO_TOLERANCE


def plus(kinds: Kinds, kind: int) -> Kinds:
    """One more of a kind."""
    return tuple(sorted((*kinds, kind)))


def minus(kinds: Kinds, kind: int) -> Kinds:
    """One less of a kind that is there."""
    at = kinds.index(kind)
    return kinds[:at] + kinds[at + 1 :]


# Patterns for the solver: groups of identical hosts, and all patterns of each group where these are few enough.

MAX_PATTERNS = 20_000  # patterns of all groups: some seconds of prediction, and what the solver can handle
TRIES_PER_PATTERN = 5  # multisets tried per allowed pattern before the enumeration gives up
MAX_SHARE_FACTOR = 4  # times its fair share that one group may have


@dataclass(frozen=True, slots=True)
class PatternSet:
    """G groups of hosts alike in class, room, filters and residents, and J patterns that their hosts may have.

    `hosts` (G,) are the host positions of each group; `group` (J,) is a pattern's group, `movers` (J,) its movable
    instances, `patterns` (J,) its evaluation, `arrivals` (J,) how many of its movers are new. `supply` counts the
    instances of each kind, of which those in `optional` may stay unplaced.
    """

    hosts: tuple[tuple[int, ...], ...]
    group: Ints
    movers: tuple[Kinds, ...]
    patterns: tuple[Pattern, ...]
    arrivals: Ints
    supply: Counter[int]
    optional: Counter[int]


def enumerate_patterns(state: SearchState, start: Sequence[Kinds]) -> PatternSet | None:
    """All feasible patterns that fit, those of `start` included; None where there are more than MAX_PATTERNS."""
    problem = state.problem
    supply = Counter(problem.waiting)
    for movers_here in problem.initial:
        supply.update(movers_here)
    groups = alike_hosts(problem)
    wanted: list[tuple[int, Kinds]] = []
    for hosts in groups:
        fair = MAX_SHARE_FACTOR * MAX_PATTERNS // len(groups)  # gives up early where many groups have many patterns
        movers_of_group = _possible(problem, hosts[0], supply, min(fair, MAX_PATTERNS - len(wanted)))
        if movers_of_group is None:
            return None
        wanted += [(hosts[0], movers) for movers in movers_of_group]
    state.evaluator.evaluate(wanted)
    number = {hosts[0]: at for at, hosts in enumerate(groups)}
    kept = [(host, movers) for host, movers in wanted if state.feasible(host, movers)]
    known = set(kept)
    for hosts in groups:
        kept += [(hosts[0], movers_here) for movers_here in dict.fromkeys(start[host] for host in hosts)
                 if (hosts[0], movers_here) not in known]  # fmt: skip
    return PatternSet(
        hosts=groups,
        group=np.array([number[host] for host, _ in kept], dtype=np.int64),
        movers=tuple(movers for _, movers in kept),
        patterns=tuple(state.evaluator.at(host, movers) for host, movers in kept),
        arrivals=np.array([(Counter(movers) - Counter(problem.initial[host])).total() for host, movers in kept]),
        supply=supply,
        optional=Counter(problem.waiting),
    )


def alike_hosts(problem: PackingProblem) -> tuple[tuple[int, ...], ...]:
    """Positions of hosts that are alike in class, room, filters and residents, group by group."""
    hosts_by_key: dict[tuple[object, ...], list[int]] = {}
    for host in range(problem.hosts):
        key = (
            int(problem.class_of_host[host]), problem.room[host].tobytes(), problem.allowed[:, host].tobytes(),
            problem.fixed[host], problem.initial[host],
            tuple(sorted(problem.counted_room[host].items())) if problem.counted_needs else (),
        )  # fmt: skip
        hosts_by_key.setdefault(key, []).append(host)
    return tuple(tuple(hosts) for hosts in hosts_by_key.values())


def _possible(problem: PackingProblem, host: int, supply: Counter[int], most: int) -> list[Kinds] | None:
    """Every multiset of movers that fits on a host, the empty one first; None where there are more than `most`.

    If a multiset does not fit, none that contains it fits, because room only shrinks.
    """
    kinds = sorted(supply)
    fitting: list[Kinds] = [()]
    open_sets: list[Kinds] = [()]
    tried = 0
    while open_sets:
        movers = open_sets.pop()
        for kind in kinds:
            if (movers and kind < movers[-1]) or movers.count(kind) == supply[kind]:
                continue
            extended = (*movers, kind)
            tried += 1
            if tried > TRIES_PER_PATTERN * most:  # with many kinds and little room most multisets do not fit
                return None
            if problem.fits(host, extended):
                fitting.append(extended)
                open_sets.append(extended)
                if len(fitting) > most:
                    return None
    return fitting if len(fitting) <= most else None
