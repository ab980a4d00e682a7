"""Evaluates patterns with the full model: predicts every instance on a host of a class, each combination once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Host, Instance
from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.rounding import SLACK
from advisor.scheduling.scoring import harm, losses, more_short
from models.arrays import Floats, Ints
from models.data.scene import SCENE_FIELDS, SLOT_FIELDS, SceneBatch, build_batch
from models.prediction import Predictor
from profiler.observed import CpuKey

PatternKey = tuple[int, Kinds]  # host class, and every instance there
Losses = tuple[float, float, float]  # as expected, and at the better and the worse edge of the interval

AT_ONCE = 4096  # scenes in one prediction: larger batches take memory and save no time
RATIO_TOLERANCE = 1e-9  # ratios that differ by less are equal


@dataclass(frozen=True, slots=True)
class Pattern:
    """A host of a class with every instance on it: expected T/B of each of the sorted `kinds`.

    `below` lists those under their limit, with their T/B. Losses are fractions of the speed alone, negative for gains,
    and risk-averse by the ranking's CAUTION half widths: `max_loss` is the greatest loss, `total_loss` the sum, and
    `harm` the greatest plus a part of the others. `losses` are those of each without caution: as expected, and if
    every instance were at the better and at the worse edge of its interval.
    """

    kinds: Kinds
    ratios: tuple[float, ...] = ()
    below: tuple[tuple[int, float], ...] = ()
    max_loss: float = 0.0
    total_loss: float = 0.0
    harm: float = 0.0
    losses: tuple[Losses, ...] = ()

    @property
    def worst(self) -> float:
        """Expected T/B of the worst-off; 1 on an empty host."""
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
        below = present & (expected < problem.min_ratio[of_class[:, None], kind] - SLACK)
        if latency_limited.any():
            below |= latency_limited & (prediction.latency.expected > problem.max_latency[kind] + SLACK)
        below |= present & (prediction.time_short() > problem.max_short[kind] + SLACK)
        short = more_short(prediction.time_short(), np.zeros(present.shape), scenes.profiled)
        loss = np.where(present, losses(expected, half, more_short=short), 0.0)
        lost = loss.sum(axis=1)
        most = np.where(present.any(axis=1), np.where(present, loss, -np.inf).max(axis=1), 0.0)
        harmed = harm(most, lost)
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
