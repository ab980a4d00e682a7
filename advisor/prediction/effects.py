"""What a prediction says of one instance, as a value of the answer."""

from __future__ import annotations

import numpy as np

from advisor.domain import Band, CpuTime, Effect, EffectBasis
from models.prediction import BandArrays, Basis, CpuPressure, InterferencePrediction


def effect(
    name: str, prediction: InterferencePrediction, scene: int, slot: int, before: InterferencePrediction | None = None
) -> Effect:
    """What happens to one instance; `before` is what was predicted of the same slot without the new VM."""
    pressure = prediction.pressure
    return Effect(
        instance=name,
        throughput_ratio=band(prediction.throughput, scene, slot),
        latency_ratio=band(prediction.latency, scene, slot),
        jitter_ratio=band(prediction.jitter, scene, slot),
        before=None if before is None else band(before.throughput, scene, slot),
        outside_training=bool(prediction.outside[scene, slot]),
        cpu=None if pressure is None else cpu_time(pressure, scene, slot, _short(before, scene, slot)),
        basis=None if prediction.basis is None else basis(prediction.basis, scene, slot),
    )


def basis(known: Basis, scene: int, slot: int) -> EffectBasis:
    """What the answer about one instance rests on."""
    correction = float(np.expm1(known.correction[scene, slot]))
    parts = (known.support, known.similar, known.machines, known.measured)
    support, *counts = (part.item(scene, slot) for part in parts)
    return EffectBasis(support, correction, *counts)


def band(bands: BandArrays, scene: int, slot: int) -> Band:
    """One element of the three arrays of a band."""
    return Band(*(part.item(scene, slot) for part in (bands.expected, bands.lower, bands.upper)))


def cpu_time(pressure: CpuPressure, scene: int, slot: int, short_before: float | None = None) -> CpuTime:
    """What one instance gets of the CPU time that it wants."""
    share, worst, short = (part.item(scene, slot) for part in (pressure.share, pressure.worst, pressure.short))
    return CpuTime(share, worst, short, short_before, bool(pressure.overloaded[scene, slot]))


def _short(before: InterferencePrediction | None, scene: int, slot: int) -> float | None:
    return None if before is None or before.pressure is None else before.pressure.short.item(scene, slot)


def crowded(prediction: InterferencePrediction, scene: int) -> float | None:
    """The part of the time in which more vCPUs are ready to run on a host than it has CPUs, 0-1; None = not known."""
    return None if prediction.pressure is None else float(prediction.pressure.crowded[scene])
