"""The state of a search: where each instance is, what each host costs, and sets of patterns that were found good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Host, Instance, Objective
from advisor.planning.assignment.packing_problem import ASKED, NO_LIMIT, SIZES, VCPUS, Kinds, PackingProblem
from advisor.rounding import SLACK, with_slack
from advisor.scheduling.scoring import chance_below, harm, losses, more_short
from models.arrays import Bools, Floats, Ints
from models.data.scene import SCENE_FIELDS, SLOT_FIELDS, SceneBatch, build_batch
from models.prediction import Predictor
from profiler.observed import CpuKey

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
        """The cost of some hosts together: by greatest loss for `worst`, by sums for the others."""
        patterns = list(patterns)
        if self.objective == "worst":
            return max((pattern.max_loss for pattern in patterns), default=0.0), sum(
                pattern.harm for pattern in patterns
            )
        first = 0.0
        if self.objective == "pack":
            first = float(sum(bool(pattern.kinds) for pattern in patterns))
        elif self.objective == "limits":
            first = sum(pattern.missed for pattern in patterns)
        return first, sum(pattern.total_loss for pattern in patterns)

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


# Evaluates patterns with the full model: predicts every instance on a host of a class, each combination once.

PatternKey = tuple[int, Kinds]  # host class, and every instance there
Losses = tuple[float, float, float]  # as expected, and at the better and the worse edge of the interval

AT_ONCE = 4096  # scenes in one prediction: larger batches take memory and save no time
RATIO_TOLERANCE = 1e-9  # ratios that differ by less are equal


@dataclass(frozen=True, slots=True)
class Pattern:
    """A host of a class with every instance on it: expected T/B of each of the sorted `kinds`.

    `below` lists those under their limit, with their T/B. Losses are fractions of the speed alone, negative for gains,
    and risk-averse by the ranking's CAUTION half widths: `max_loss` is the greatest loss, `total_loss` the sum, and
    `harm` the greatest plus a part of the others. `missed` is how many are expected below their limits (see
    `scoring`). `losses` are those of each without caution: as expected, and if every instance were at the better and at
    the worse edge of its interval.
    """

    kinds: Kinds
    ratios: tuple[float, ...] = ()
    below: tuple[tuple[int, float], ...] = ()
    max_loss: float = 0.0
    total_loss: float = 0.0
    harm: float = 0.0
    missed: float = 0.0
    losses: tuple[Losses, ...] = ()

    @property
    def worst(self) -> float:
        """Expected T/B of the most affected; 1 on an empty host."""
        return min(self.ratios, default=1.0)


@dataclass(frozen=True, slots=True)
class PatternEvaluator:
    """Patterns of one problem by one predictor; latency is predicted only where an instance limits it."""

    problem: PackingProblem
    predictor: Predictor
    _scenes: tuple[SceneBatch, SceneBatch, dict[tuple[CpuKey, str], int]]
    _known: dict[PatternKey, Pattern] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: PackingProblem, predictor: Predictor) -> PatternEvaluator:
        """An evaluator that has predicted nothing yet; the problem has at least one host."""
        evaluator = cls(problem, predictor, _one_slot_scenes(problem))
        evaluator._known.update({(number, ()): Pattern(()) for number in range(len(problem.classes))})
        return evaluator

    def at(self, host: int, movers: Kinds) -> Pattern:
        """The pattern of a host with these movers beside its fixed instances; it must have been evaluated."""
        return self._known[self.key(host, movers)]

    def key(self, host: int, movers: Kinds) -> PatternKey:
        """The key of a host with these movers beside its fixed instances."""
        return int(self.problem.class_of_host[host]), tuple(sorted((*self.problem.fixed[host], *movers)))

    def evaluate(self, asked: Iterable[tuple[int, Kinds]]) -> None:
        """Predict hosts with these movers in one batch; known patterns are skipped."""
        self.evaluate_keys(self.key(host, movers) for host, movers in asked)

    def pairs(self, workload_of: Ints, workloads: int) -> Floats:
        """The loss of each pair of workloads on the most common class of hosts, (F, F).

        One kind stands for each workload. The result only orders the hosts to consider.
        """
        if not workloads:
            return np.zeros((1, 1))
        example_kind = [int(np.flatnonzero(workload_of == number)[0]) for number in range(workloads)]
        common = int(np.bincount(self.problem.class_of_host).argmax())
        keys = {
            (a, b): (common, tuple(sorted((example_kind[a], example_kind[b]))))
            for a in range(workloads)
            for b in range(a + 1)
        }
        self.evaluate_keys(keys.values())
        losses = np.zeros((workloads, workloads))
        for (a, b), key in keys.items():
            losses[a, b] = losses[b, a] = self.known(*key).total_loss
        return losses

    def known(self, of_class: int, kinds: Kinds) -> Pattern:
        """An evaluated pattern of a class of hosts with exactly these kinds."""
        return self._known[of_class, kinds]

    def evaluate_keys(self, keys: Iterable[PatternKey]) -> None:
        """Predict these patterns in one batch; known ones are skipped."""
        new = dict.fromkeys(key for key in keys if key not in self._known)
        by_size = sorted(new, key=lambda key: len(key[1]))  # empty slots cost time, so similar sizes share a batch
        for first in range(0, len(by_size), AT_ONCE):
            self._predict(by_size[first : first + AT_ONCE])

    def _predict(self, asked: Sequence[PatternKey]) -> None:
        scenes, kind, of_class = self._laid_out(asked)
        problem, present = self.problem, scenes.present
        latency_limited = np.isfinite(problem.max_latency[kind]) & present
        prediction = self.predictor.predict(
            scenes, ("throughput", "latency") if latency_limited.any() else ("throughput",)
        )
        expected = np.where(present, prediction.throughput.expected, 1.0)
        half = np.where(present, expected - prediction.throughput.lower, 0.0)
        least = problem.min_ratio[of_class[:, None], kind]
        below = present & (expected < least - SLACK)
        if latency_limited.any():
            below |= latency_limited & (prediction.latency.expected > problem.max_latency[kind] + SLACK)
        below |= present & (prediction.time_short() > problem.max_short[kind] + SLACK)
        short = more_short(prediction.time_short(), np.zeros(present.shape), scenes.profiled)
        loss = np.where(present, losses(expected, half, more_short=short), 0.0)
        lost = loss.sum(axis=1)
        most = np.where(present.any(axis=1), np.where(present, loss, -np.inf).max(axis=1), 0.0)
        harmed = harm(most, lost)
        limits = np.where(least > NO_LIMIT, least, np.nan)
        missed = np.where(present, chance_below(expected, half, limits), 0.0).sum(axis=1)
        upper = np.where(present, prediction.throughput.upper, 1.0)
        edges = [np.minimum(edge, 1.0) for edge in (expected, upper, expected - half)]
        each = np.stack([losses(edge, np.zeros(edge.shape), more_short=short) for edge in edges], axis=2)
        for row, key in enumerate(asked):
            count = len(key[1])
            under = np.flatnonzero(below[row, :count]) if below[row].any() else ()
            self._known[key] = Pattern(
                kinds=key[1],
                ratios=tuple(expected[row, :count].tolist()),
                below=tuple((key[1][slot], float(expected[row, slot])) for slot in under),
                max_loss=float(most[row]),
                total_loss=float(lost[row]),
                harm=float(harmed[row]),
                missed=float(missed[row]),
                losses=tuple(map(tuple, each[row, :count].tolist())),
            )

    def _laid_out(self, asked: Sequence[PatternKey]) -> tuple[SceneBatch, Ints, Ints]:
        """Scenes of these patterns, the kind in each slot (-1 = empty), and the class of each pattern's host."""
        empty, slots, places = self._scenes
        problem = self.problem
        width = max(len(kinds) for _, kinds in asked)
        kind = np.array([(*kinds, *(-1,) * (width - len(kinds))) for _, kinds in asked], dtype=np.int64)
        of_class = np.array([number for number, _ in asked], dtype=np.int64)
        place = np.array([places[host.cpu_key, host.platform] for host in problem.classes], dtype=np.int64)
        empty_slot = len(slots) - 2
        scene = np.where(kind >= 0, place[of_class][:, None] * len(problem.kinds) + kind, empty_slot)
        return (
            SceneBatch(
                table=problem.table,
                **{name: getattr(empty, name)[of_class] for name in SCENE_FIELDS},
                **{name: getattr(slots, name)[scene, 0] for name in SLOT_FIELDS},
            ),
            kind,
            of_class,
        )


def _one_slot_scenes(problem: PackingProblem) -> tuple[SceneBatch, SceneBatch, dict[tuple[CpuKey, str], int]]:
    """Building blocks of scenes: empty hosts, (C,), kinds alone on hosts, (Q * K + 1,), and place numbers.

    There is one place q for each combination of pCPUs and platform; the last scene of the second batch is empty. A kind
    that is pinned to a pCPU that a host lacks has an empty scene, because no filter allows it there.
    """
    places: dict[tuple[CpuKey, str], int] = {}
    for host in problem.classes:
        places.setdefault((host.cpu_key, host.platform), len(places))
    width = max(host.pcpus for host in problem.classes)
    wide = Host("wide", "lxc", pcpus=width, memory_mb=1.0)
    scenes: list[tuple[Host, tuple[Instance, ...]]] = []
    for (pcpus, cpu_ids, isolated, dedicated), platform in places:
        there = Host(
            "any", "kvm", pcpus, memory_mb=1.0, platform=platform, cpu_ids=cpu_ids, isolated_cpus=isolated,
            dedicated_cpus=dedicated,
        )  # fmt: skip
        for instance in problem.kinds:
            pinning = instance.settings.pinning
            absent = there.lacks(pinning.named) if pinning else ()
            scenes.append((there, () if absent else (instance,)))
    slots = build_batch([*scenes, (wide, ()), (wide, (Instance("any"),))], problem.table)
    empty = build_batch([*((host, ()) for host in problem.classes), (wide, (Instance("any"),))], problem.table)
    return empty, slots, places
