"""How everybody of a cloud stands: what is predicted for each instance, who is below a limit, and the sums of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Band, Effect, PlanSums
from advisor.planning.required_ratios import least
from advisor.rounding import SLACK
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.rows import Rows
from models.arrays import Bools
from models.prediction import BandArrays as Bands
from models.prediction import InterferencePrediction, Predictor

Effects = Mapping[str, tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class Standing:
    """A cloud with what one model predicts for everybody; None where nobody is there."""

    snapshot: ClusterSnapshot
    told: InterferencePrediction | None

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, predictor: Predictor) -> Standing:
        """Ask once about all hosts."""
        return cls(snapshot, predictor.predict(snapshot.scenes) if snapshot.scenes.present.any() else None)

    def effects(self, before: Mapping[str, Band] | None = None) -> Effects:
        """What is predicted for every instance of every host; `before` is what it had, where it was there."""
        known = before or {}
        told = self.told
        if told is None:
            return {host.id: () for host in self.snapshot.hosts}
        return {
            host.id: tuple(
                Effect(
                    instance=resident.id,
                    throughput_ratio=band(told.throughput, scene, slot),
                    latency_ratio=band(told.latency, scene, slot),
                    jitter_ratio=band(told.jitter, scene, slot),
                    before=known.get(resident.id),
                    outside_training=bool(told.outside[scene, slot]),
                )
                for slot, resident in sorted(enumerate(self.snapshot.residents[scene]), key=lambda pair: pair[1].id)
            )
            for scene, host in enumerate(self.snapshot.hosts)
        }

    def ratios(self) -> Mapping[str, Band]:
        """T/B of everybody, by id."""
        if self.told is None:
            return {}
        return {
            resident.id: band(self.told.throughput, scene, slot)
            for scene, there in enumerate(self.snapshot.residents)
            for slot, resident in enumerate(there)
        }

    def below(self, keep_ratio: float) -> frozenset[str]:
        """Who is under its limit of throughput or over that of latency, or where it has none under `keep_ratio`
        of what its own settings allow it alone."""
        if self.told is None:
            return frozenset()
        found = under(self.snapshot, self.told, keep_ratio)
        return frozenset(
            self.snapshot.residents[scene][slot].id for scene, slot in zip(*np.nonzero(found), strict=True)
        )

    def sums(self, keep_ratio: float) -> PlanSums:
        """The cloud in figures."""
        present = self.snapshot.scenes.present
        expected = np.ones(0) if self.told is None else self.told.throughput.expected[present]
        return PlanSums(
            hosts=len(self.snapshot.hosts),
            hosts_used=int(present.any(axis=1).sum()) if present.size else 0,
            instances=len(expected),
            below=len(self.below(keep_ratio)),
            worst=float(expected.min()) if len(expected) else 1.0,
            mean=float(expected.mean()) if len(expected) else 1.0,
            total=float(expected.sum()),
        )


def under(rows: Rows, told: InterferencePrediction, keep_ratio: float) -> Bools:
    """Who is beyond a limit by expectation, as in `Standing.below`; (H, N)."""
    lowest = least(rows.scenes, rows.min_ratio, keep_ratio)
    late = np.nan_to_num(told.latency.expected, nan=1.0) > np.nan_to_num(rows.max_latency, nan=np.inf) + SLACK
    return np.asarray(rows.scenes.present & ((told.throughput.expected < lowest - SLACK) | late))


def band(bands: Bands, scene: int, slot: int) -> Band:
    """One place of three arrays."""
    return Band(*(float(part[scene, slot]) for part in (bands.expected, bands.lower, bands.upper)))
