"""A simulated cloud whose pairs have a hidden effect, and a model that knows how uncertain it is about each of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np

from advisor.domain import ProbePair, WorkloadProfile
from advisor.snapshot import ClusterSnapshot
from models.data.scene import SceneBatch
from models.prediction import TARGETS, BandArrays, InterferencePrediction, Predictor
from models.probe_plan import Z90
from tests.advisor.core.core_clouds import ask, cloud, host, request, vm
from tests.models.synthetic import World

WORLD = World()
WORKLOADS = WORLD.workloads
ONE_CPU = {"kind": "lxc", "pcpus": 1, "cpu_overcommit": 8.0}


@dataclass(frozen=True)
class Model:
    """Predicts a made-up world: certain what a metric shows, uncertain by `spread` (of log T/B) what it does not.

    Each victim beside each neighbour has a hidden effect, drawn once; those of `measured` pairs are known. A row's
    effect is the sum over its neighbours over the root of their number.
    """

    seed: int
    spread: float = 0.25
    measured: frozenset[frozenset[str]] = frozenset()

    version = "made up"
    origin = "simulated"
    metrics = ()

    @property
    def truth(self) -> Model:
        everything = combinations_with_replacement(WORLD.names, 2)
        return Model(self.seed, self.spread, frozenset(frozenset(pair) for pair in everything))

    def knowing(self, pairs: frozenset[frozenset[str]]) -> Model:
        return Model(self.seed, self.spread, self.measured | pairs)

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        hidden = np.random.default_rng(1000 + self.seed).standard_normal((WORKLOADS, WORKLOADS))
        ends = np.full((3, *scenes.present.shape), np.nan)
        names = scenes.table.names
        for scene, slot in zip(*np.nonzero(scenes.present), strict=True):
            others = [names[scenes.profile[scene, at]] for at in np.flatnonzero(scenes.present[scene]) if at != slot]
            mine = names[scenes.profile[scene, slot]]
            counts = {name: others.count(name) for name in others}
            length = np.sqrt(sum(count**2 for count in counts.values())) or 1.0
            known = {name for name in counts if frozenset((mine, name)) in self.measured}
            effect = sum(counts[name] * hidden[int(mine[1:]), int(name[1:])] for name in known) / length
            left = np.sqrt(sum(counts[name] ** 2 for name in counts.keys() - known)) / length
            base = _visible(int(mine[1:]), tuple(sorted(int(name[1:]) for name in others)))
            ends[:, scene, slot] = base * np.exp(self.spread * (effect + np.array([0.0, -Z90 * left, Z90 * left])))
        band = BandArrays(*ends)
        return InterferencePrediction(band, band, band, outside=np.zeros(scenes.present.shape, dtype=bool))


@lru_cache
def _visible(victim: int, others: tuple[int, ...]) -> float:
    """What metrics show of T/B."""
    return WORLD.ratio(victim, others)


def made_cloud(seed: int, hosts: int = 5, new_vms: int = 3) -> ClusterSnapshot:
    """Hosts with one or two residents each, and instances that are on none, of six workloads."""
    draw = np.random.default_rng(seed)
    there = [
        vm(f"r{number}-{slot}", f"w{draw.integers(WORKLOADS)}", on=f"h{number}")
        for number in range(hosts)
        for slot in range(draw.integers(1, 3))
    ]
    return cloud(
        [host(f"h{number}", **ONE_CPU) for number in range(hosts)],
        [*there, *(vm(f"n{number}", f"w{draw.integers(WORKLOADS)}") for number in range(new_vms))],
        workloads=[WorkloadProfile(f"w{number}", {"cpu": 50.0 + number}) for number in range(WORKLOADS)],
    )


def scores(snapshot: ClusterSnapshot, instance: str, workload: str, predictor: Predictor) -> dict[str, float]:
    """The score of each host for an instance, best first."""
    answer = ask(snapshot, request(vm(instance, workload), explain=False), predictor)
    return {one.host: one.score for one in answer.candidates}


def regrets(snapshot: ClusterSnapshot, wanted: dict[str, str], models: Sequence[Model]) -> list[float]:
    """What each model's choices lose to the best ones, by the truth that all have in common; the mean over decisions
    {instance: workload}."""
    lost = []
    for instance, workload in wanted.items():
        true = scores(snapshot, instance, workload, models[0].truth)
        chosen = [next(iter(scores(snapshot, instance, workload, model))) for model in models]
        lost.append([max(true.values()) - true[host] for host in chosen])
    return [float(each) for each in np.mean(lost, axis=0)]


def measured(pairs: list[ProbePair]) -> frozenset[frozenset[str]]:
    return frozenset(frozenset((pair.first, pair.second)) for pair in pairs)
