"""What a dataset measured about pairs, and a predictor that never answers about a pair it was trained on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from models.dataset import Dataset, load_dataset
from models.examples import measured
from models.prediction import Band, InterferencePrediction, Predictor
from models.scene import SceneBatch
from models.training import fit_predictor
from profiler.observed import Colocation, Instance, IsolationSettings

FOLDS = 10


@dataclass(frozen=True)
class Seat:
    """A workload on a pinning."""

    workload: str
    pinning: str

    def __lt__(self, other: Seat) -> bool:
        return (self.workload, self.pinning) < (other.workload, other.pinning)


@dataclass(frozen=True)
class Pairs:
    """Measured pairs at full load without caps, weights or disk limits, from one dataset."""

    dataset: Dataset

    @cached_property
    def scores(self) -> Mapping[tuple[Seat, Seat], tuple[float, float]]:
        """Combined score of each pair of seats (sorted): mean over repeats, and its standard error."""
        found: dict[tuple[Seat, Seat], list[float]] = defaultdict(list)
        for colocation in self.dataset.colocations:
            seats = seats_of(colocation)
            ratios = measured(colocation, "throughput")
            if seats and len(ratios) == 2:
                found[seats].append(sum(ratios.values()))
        return {
            seats: (float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))
            for seats, values in found.items()
            if len(values) > 1
        }

    @property
    def workloads(self) -> list[str]:
        """Every workload that was measured in pairs."""
        return sorted({seat.workload for pair in self.scores for seat in pair})

    def modes(self) -> dict[str, tuple[str, str]]:
        """Pinnings of the two instances by name: `same` CPU, `different` CPUs, `shared` CPUs."""
        found: dict[str, tuple[str, str]] = {}
        for one, other in self.scores:
            pins = tuple(sorted((one.pinning, other.pinning)))
            name = "different" if pins[0] != pins[1] else "shared" if "-" in pins[0] or "," in pins[0] else "same"
            found[name] = (pins[0], pins[1])
        return found

    def score(self, one: str, other: str, pins: tuple[str, str]) -> tuple[float, float] | None:
        """Combined score of two workloads, the mean over who sits where when both ways were measured."""
        ways = [
            self.scores[key]
            for a, b in ((one, other), (other, one))
            if (key := tuple(sorted((Seat(a, pins[0]), Seat(b, pins[1]))))) in self.scores
        ]
        if not ways:
            return None
        return float(np.mean([way[0] for way in ways])), float(np.mean([way[1] for way in ways]))


def seats_of(colocation: Colocation) -> tuple[Seat, Seat] | None:
    """The two seats of a plain pair, sorted; None for anything else."""
    instances = {outcome.instance.id: outcome.instance for outcome in colocation.outcomes}
    if len(instances) != 2 or not all(_plain(instance) for instance in instances.values()):
        return None
    one, other = sorted(Seat(each.workload or "", str(each.settings.pinning or "")) for each in instances.values())
    return one, other


def _plain(instance: Instance) -> bool:
    network = instance.settings.network
    own_link = network is None or network.mode != "shared"
    return (
        own_link
        and instance.load >= 1
        and replace(instance.settings, pinning=None, network=None) == IsolationSettings()
    )


class CrossFitted:
    """A Predictor made of FOLDS models; a scene is answered by the model whose training lacked its workloads' pair."""

    version = "cross-fitted"

    def __init__(self, dataset: Dataset) -> None:
        pairs = sorted({pair_of(c) for c in dataset.colocations})
        order = np.random.default_rng(0).permutation(len(pairs))
        self._fold = {pairs[pair]: number % FOLDS for number, pair in enumerate(order)}
        self.origin = dataset.origin
        # One calibration for all, so that widths do not differ between the models; it is out-of-fold by its making.
        whole = fit_predictor([dataset])
        self._models: list[Predictor] = []
        for fold in range(FOLDS):
            kept = tuple(c for c in dataset.colocations if self._fold[pair_of(c)] != fold)
            model = fit_predictor([replace(dataset, colocations=kept)])
            throughput = replace(model.throughput, calibration=whole.throughput.calibration)
            self._models.append(replace(model, throughput=throughput))

    def predict(self, scenes: SceneBatch) -> InterferencePrediction:
        """Each scene by the model that did not see its pair; single instances by the first model."""
        answers = [model.predict(scenes) for model in self._models]
        names = scenes.table.names
        fold = np.array(
            [
                self._fold.get(_pair([names[row] for row in scenes.profile[at][scenes.present[at]]]), 0)
                for at in range(len(scenes))
            ],
            dtype=np.int64,
        )
        rows = np.arange(len(scenes))

        def pick(kind: str, field: str) -> np.ndarray:
            return np.stack([getattr(getattr(answer, kind), field) for answer in answers])[fold, rows]

        bands = [
            Band(*(pick(kind, field) for field in ("expected", "lower", "upper")))
            for kind in ("throughput", "latency", "jitter")
        ]
        outside = np.stack([answer.outside for answer in answers])[fold, rows]
        return InterferencePrediction(bands[0], bands[1], bands[2], outside)


def throughput_only(dataset: Dataset) -> Dataset:
    """The dataset without latencies, which no benchmark here asks for and which take half of the training."""
    return replace(
        dataset,
        colocations=tuple(
            replace(one, outcomes=tuple(outcome for outcome in one.outcomes if outcome.outcome == "throughput"))
            for one in dataset.colocations
        ),
    )


def without_pairs(path: Path, pairs: frozenset[str]) -> Predictor:
    """A predictor trained on a dataset without any run of these pairs of workloads (`a+b`, sorted)."""
    dataset = throughput_only(load_dataset(path))
    return fit_predictor(
        [replace(dataset, colocations=tuple(one for one in dataset.colocations if pair_of(one) not in pairs))]
    )


def pair_of(colocation: Colocation) -> str:
    """The workloads of a run, sorted and joined."""
    return _pair(_workloads(colocation))


def _pair(workloads: Sequence[str]) -> str:
    return "+".join(sorted(workloads))


def _workloads(colocation: Colocation) -> list[str]:
    """The workload of every instance, each once though it may have several outcomes."""
    return list({outcome.instance.id: outcome.instance.workload or "" for outcome in colocation.outcomes}.values())
