"""All instances on one host, the new VM last, under trial settings: scenes, predictions, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.domain import Host, Instance, IsolationSettings
from advisor.rounding import SLACK
from models.arrays import Bools, Floats
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.prediction import InterferencePrediction, Predictor

# Kinds of limits, in the order of `limits` and `kept`.
THROUGHPUT, LATENCY, TIME_SHORT = range(3)


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings to try.

    `changes` are the whole settings of instances that would run under different ones, by id; `driver_cpus` the CPUs of
    the driver domain, None = unchanged; `says` the action in words, without a full stop.
    """

    says: str = ""
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    driver_cpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SharedHost:
    """A host and its instances: residents sorted by id, so that their order does not matter, and the new VM last.

    `row` is the new VM's row of `table` if it has a profile of its own, None = by its workload's name.
    """

    host: Host
    parties: tuple[Instance, ...]
    table: ProfileTable
    row: int | None
    predictor: Predictor

    def scenes(self, trials: Sequence[Trial], without: str = "") -> SceneBatch:
        """One scene for each trial, one slot for each party except the one with the id `without`."""
        batch = build_batch([self._scene(trial, without) for trial in trials], self.table)
        new_vm = self.parties[-1].id
        if self.row is None or without == new_vm:
            return batch
        return batch.with_last(profile=self.row)

    def _scene(self, trial: Trial, without: str) -> tuple[Host, list[Instance]]:
        host = self.host if trial.driver_cpus is None else replace(self.host, driver_cpus=trial.driver_cpus)
        return host, [
            replace(party, settings=trial.changes.get(party.id, party.settings))
            for party in self.parties
            if party.id != without
        ]

    def predict(self, trials: Sequence[Trial]) -> InterferencePrediction:
        """The effect of every trial on every instance, in one call; (trials, parties)."""
        return self.predictor.predict(self.scenes(trials))

    def limits(self) -> Floats:
        """The lowest accepted values of `kept` for each party; (N, 3), nan = any."""
        return np.array(
            [
                [
                    np.nan if party.min_throughput_ratio is None else party.min_throughput_ratio,
                    np.nan if party.max_latency_ratio is None else 1 / party.max_latency_ratio,
                    np.nan if party.max_time_short is None else 1 - party.max_time_short,
                ]
                for party in self.parties
            ]
        )

    def held(self) -> Bools:
        """Which limits a placement can violate: the new VM's, and those that residents keep without it; (N, 3)."""
        held = np.ones((len(self.parties), 3), dtype=bool)
        if len(self.parties) > 1:
            before = self.predictor.predict(self.scenes([Trial()], without=self.parties[-1].id))
            held[:-1] = ~(kept(before)[0] < self.limits()[:-1] - SLACK)
        return held


def kept(prediction: InterferencePrediction) -> Floats:
    """What remains: T/B, solo over shared latency, and the part of the time not short of CPU; (S, N, 3)."""
    return np.stack(
        [prediction.throughput.expected, 1 / prediction.latency.expected, 1 - prediction.time_short()], axis=2
    )
