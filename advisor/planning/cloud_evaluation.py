"""The predicted state of a cloud: effects on every instance, limit violations, and sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import NO_SCORES, Band, Effect, PlanSums, ScoreSummary
from advisor.planning.host_costs import price, watts
from advisor.planning.required_ratios import required_ratios
from advisor.prediction.effects import band, effect
from advisor.rounding import SLACK
from advisor.scheduling import vm_scores
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.host_arrays import HostArrays
from models.arrays import Bools
from models.prediction import InterferencePrediction, Predictor

EffectsByHost = Mapping[str, tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class CloudEvaluation:
    """A cloud with one model's prediction for every instance; None where no instance is there."""

    snapshot: ClusterSnapshot
    prediction: InterferencePrediction | None

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, predictor: Predictor) -> CloudEvaluation:
        """Predict all hosts in one batch."""
        return cls(snapshot, predictor.predict(snapshot.scenes) if snapshot.scenes.present.any() else None)

    def effects(self, before: EffectsByHost | None = None) -> EffectsByHost:
        """The effects on every instance of every host; `before` are those of the cloud as it was."""
        known = {was.instance: was for effects in (before or {}).values() for was in effects}
        prediction = self.prediction
        if prediction is None:
            return {host.id: () for host in self.snapshot.hosts}
        return {
            host.id: tuple(
                _since(effect(resident.id, prediction, scene, slot), known.get(resident.id))
                for slot, resident in sorted(enumerate(self.snapshot.residents[scene]), key=lambda pair: pair[1].id)
            )
            for scene, host in enumerate(self.snapshot.hosts)
        }

    def ratios(self) -> Mapping[str, Band]:
        """T/B of every instance, by id."""
        if self.prediction is None:
            return {}
        return {
            resident.id: band(self.prediction.throughput, scene, slot)
            for scene, residents in enumerate(self.snapshot.residents)
            for slot, resident in enumerate(residents)
        }

    def below(self, keep_ratio: float) -> frozenset[str]:
        """Ids of instances that violate a limit: too low a throughput or too high a latency.

        Without a limit of its own an instance must keep `keep_ratio` of what its own settings allow it alone.
        """
        if self.prediction is None:
            return frozenset()
        violated = beyond_limits(self.snapshot, self.prediction, keep_ratio)
        return frozenset(
            self.snapshot.residents[scene][slot].id for scene, slot in zip(*np.nonzero(violated), strict=True)
        )

    def sums(self, keep_ratio: float) -> PlanSums:
        """Summary figures of the cloud."""
        present = self.snapshot.scenes.present
        expected = np.ones(0) if self.prediction is None else self.prediction.throughput.expected[present]
        scores = self.scores()
        return PlanSums(
            hosts=len(self.snapshot.hosts),
            hosts_used=int(present.any(axis=1).sum()) if present.size else 0,
            instances=len(expected),
            below=len(self.below(keep_ratio)),
            worst=float(expected.min()) if len(expected) else 1.0,
            mean=float(expected.mean()) if len(expected) else 1.0,
            total=float(expected.sum()),
            watts=watts(self.snapshot),
            price=price(self.snapshot),
            score=scores.mean,
            score_lowest=scores.lowest,
            scores=scores.counts if scores.instances else (),
        )

    def scores(self) -> ScoreSummary:
        """Predicted scores of all instances; before and after a plan alike, as nothing is measured of the latter."""
        prediction, present = self.prediction, self.snapshot.scenes.present
        if prediction is None:
            return NO_SCORES
        unknown = np.full(int(present.sum()), np.nan)
        delivered = unknown if prediction.pressure is None else prediction.pressure.share[present]
        found = vm_scores.factors(prediction.throughput.expected[present], delivered, unknown, unknown)
        return vm_scores.summary(found.scores, np.zeros(len(unknown), dtype=bool))


def _since(now: Effect, former: Effect | None) -> Effect:
    """The same with what was predicted of this instance before."""
    if former is None:
        return now
    cpu = now.cpu
    if cpu is not None and former.cpu is not None:
        cpu = replace(cpu, short_before=former.cpu.short)
    return replace(now, before=former.throughput_ratio, cpu=cpu)


def beyond_limits(rows: HostArrays, prediction: InterferencePrediction, keep_ratio: float) -> Bools:
    """Which instances violate a limit by expectation, as in `CloudEvaluation.below`; (H, N)."""
    required = required_ratios(rows.scenes, rows.min_ratio, keep_ratio)
    too_slow = np.nan_to_num(prediction.latency.expected, nan=1.0) > np.nan_to_num(rows.max_latency, nan=np.inf) + SLACK
    too_short = prediction.time_short() > np.nan_to_num(rows.max_short, nan=np.inf) + SLACK
    lost = prediction.throughput.expected < required - SLACK
    return np.asarray(rows.scenes.present & (lost | too_slow | too_short))
