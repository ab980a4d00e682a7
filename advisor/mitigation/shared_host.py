"""Everybody on one host, the newcomer last, under settings that are tried: scenes, predictions, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.domain import Host, Instance, IsolationSettings
from advisor.rounding import SLACK
from models.arrays import Bools, Floats
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.prediction import BandArrays, InterferencePrediction, Predictor


@dataclass(frozen=True, slots=True)
class Trial:
    """Something to try. `changes` are the whole settings of those that would run under other ones than now, by id;
    `driver_cpus` where the driver domain would run, None = as it does; `says` what is done, without a full stop."""

    says: str = ""
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    driver_cpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SharedHost:
    """A host and who would share it: residents by id, so that their order does not matter, and the newcomer last.

    `row` is the newcomer's row of `table` where it brings a profile of its own, None = by its workload's name.
    """

    host: Host
    parties: tuple[Instance, ...]
    table: ProfileTable
    row: int | None
    predictor: Predictor

    def scenes(self, trials: Sequence[Trial], without: str = "") -> SceneBatch:
        """One scene for each trial, one slot for each party, less the one with the id `without`."""
        batch = build_batch([self._scene(trial, without) for trial in trials], self.table)
        newcomer = self.parties[-1].id
        if self.row is None or without == newcomer:
            return batch
        return batch.with_last(profile=self.row)

    def _scene(self, trial: Trial, without: str) -> tuple[Host, list[Instance]]:
        host = self.host if trial.driver_cpus is None else replace(self.host, driver_cpus=trial.driver_cpus)
        return host, [
            replace(one, settings=trial.changes.get(one.id, one.settings)) for one in self.parties if one.id != without
        ]

    def predict(self, trials: Sequence[Trial]) -> InterferencePrediction:
        """What every trial does to everybody, in one call; (trials, parties)."""
        return self.predictor.predict(self.scenes(trials))

    def limits(self) -> Floats:
        """The least that each party accepts of what `kept` gives; (N, 2), nan = anything."""
        return np.array(
            [
                [
                    np.nan if one.min_throughput_ratio is None else one.min_throughput_ratio,
                    np.nan if one.max_latency_ratio is None else 1 / one.max_latency_ratio,
                ]
                for one in self.parties
            ]
        )

    def held(self) -> Bools:
        """Which limits a placement can break: the newcomer's, and those that residents keep without it; (N, 2)."""
        found = np.ones((len(self.parties), 2), dtype=bool)
        if len(self.parties) > 1:
            before = self.predictor.predict(self.scenes([Trial()], without=self.parties[-1].id))
            found[:-1] = ~(kept(before)[0] < self.limits()[:-1] - SLACK)
        return found


def kept(prediction: InterferencePrediction) -> Floats:
    """What is left of each one's throughput and of its latency: T/B, and solo over shared latency; (S, N, 2)."""
    return np.stack([prediction.throughput.expected, 1 / prediction.latency.expected], axis=2)


def part(prediction: InterferencePrediction, first: int, end: int) -> InterferencePrediction:
    """The prediction of the scenes from `first` up to before `end`."""
    at = slice(first, end)
    bands = (prediction.throughput, prediction.latency, prediction.jitter)
    throughput, latency, jitter = (BandArrays(one.expected[at], one.lower[at], one.upper[at]) for one in bands)
    return InterferencePrediction(throughput, latency, jitter, prediction.outside[at])
