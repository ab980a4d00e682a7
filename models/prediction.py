"""InterferencePrediction and the Predictor protocol, which every model implements, learned or not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import SceneBatch

TARGETS = ("throughput", "latency", "jitter")


@dataclass(frozen=True, slots=True)
class BandArrays:
    """Expected value with its 90 % interval; three arrays of shape (scenes, slots), nan in empty slots."""

    expected: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class CpuPressure:
    """Of instances, (S, N): `share` the part of the CPU time it demands that it gets, run / (run + wait); `worst` the
    same in the worst twentieth of the time; `short` the part of the time, 0-1, in which it gets less than it demands;
    `overloaded` whether more work arrives at its busy times than it is served then: no finite latency is reported. Of
    hosts, (S,): `crowded` is the part of the time with more vCPUs ready than CPUs."""

    share: Floats
    worst: Floats
    short: Floats
    overloaded: Bools
    crowded: Floats


@dataclass(frozen=True, slots=True)
class DevicePressure:
    """Of instances and each device, (S, N, 3) in the order of models.data.scene.DEVICES, or (S, N) of one device:
    `share` of what it would move at full speed, `worst` the same in the worst twentieth of the time, and `short` the
    part of the time, 0-1, in which it is held back."""

    share: Floats
    worst: Floats
    short: Floats


@dataclass(frozen=True, slots=True)
class Basis:
    """What a learned answer rests on, (S, N) each: `support` how much of what was learned applies, 0-1; `correction`
    the logarithm of expected over analytic T/B; `similar` how many measured co-locations are like this one, on how many
    `machines`; `measured` how many outcomes there are of exactly these instances."""

    support: Floats
    correction: Floats
    similar: Floats
    machines: Floats
    measured: Floats


@dataclass(frozen=True, slots=True)
class InterferencePrediction:
    """What co-location does to every instance of every scene.

    `throughput` is T/B (1.0 = as alone), `latency` is co-located over solo mean latency (1.0 = as alone), `jitter`
    the same of the standard deviation of latency, `outside` marks questions of which nothing that was learned applies,
    or nothing is known, whose intervals are wide on purpose. All of shape (scenes, slots); latency and jitter are nan
    where not requested. `pressure` and `devices` are what the physics says of CPUs and devices over time, None = not
    known; `basis` is what a learned answer rests on, None = it is the analytic model's. `solved` is the PriorResult
    (models.physics.prior) of these scenes where the analytic model has just made the prediction of it.
    """

    throughput: BandArrays
    latency: BandArrays
    jitter: BandArrays
    outside: Bools
    pressure: CpuPressure | None = None
    devices: DevicePressure | None = None
    basis: Basis | None = None
    solved: object = None

    def time_short(self) -> Floats:
        """The part of the time in which each instance is short of CPU, 0-1, nan = not known; (S, N)."""
        return np.full(self.outside.shape, np.nan) if self.pressure is None else self.pressure.short

    def take(self, rows: Ints | slice) -> InterferencePrediction:
        """The prediction of some of its scenes."""
        return InterferencePrediction(
            rows_of(self.throughput, rows),
            rows_of(self.latency, rows),
            rows_of(self.jitter, rows),
            self.outside[rows],
            None if self.pressure is None else rows_of(self.pressure, rows),
            None if self.devices is None else rows_of(self.devices, rows),
            None if self.basis is None else rows_of(self.basis, rows),
        )


Arrays = TypeVar("Arrays")


def rows_of(arrays: Arrays, rows: Ints | slice) -> Arrays:
    """The part of a dataclass of arrays that is about some of its scenes."""
    return type(arrays)(*(getattr(arrays, one.name)[rows] for one in fields(arrays)))  # type: ignore[arg-type]


def joined(parts: Sequence[tuple[Ints, InterferencePrediction]], shape: tuple[int, int]) -> InterferencePrediction:
    """Predictions of parts of S scenes, each with the numbers of its scenes, as one of all in this shape (S, N).

    A part may have fewer slots: those that it lacks are empty. What one part does not know is not known.
    """
    found: InterferencePrediction = _joined([(rows, part) for rows, part in parts], shape)
    return found


def _joined(parts: Sequence[tuple[Ints, Any]], shape: tuple[int, int]) -> Any:
    first = parts[0][1]
    if any(part is None for _, part in parts):
        return None
    if not isinstance(first, np.ndarray):
        names = [one.name for one in fields(first)]
        return type(first)(*(_joined([(rows, getattr(part, name)) for rows, part in parts], shape) for name in names))
    empty = False if first.dtype == np.bool_ else np.nan
    whole = np.full((*shape[: first.ndim], *first.shape[2:]), empty, dtype=first.dtype)
    for rows, values in parts:
        if values.ndim == 1:
            whole[rows] = values
        else:
            whole[rows, : values.shape[1]] = values
    return whole


def unasked(present: Bools) -> BandArrays:
    """The band of a ratio that was not requested: nan, in the shape of `present`."""
    nothing = np.full(present.shape, np.nan)
    return BandArrays(nothing, nothing, nothing)


def correction_of(predictor: Predictor) -> tuple[float, float] | None:
    """Between which values the logarithm of predicted over analytic T/B lies, whatever the scene; None = not known.
    Such a predictor never expects a T/B above 1."""
    if predictor.origin == "analytic":
        return 0.0, 0.0
    found: tuple[float, float] | None = getattr(predictor, "correction", None)
    return found


class Predictor(Protocol):
    """Turns scenes into predictions; `version` names it, `origin` says where its training data came from, `metrics` are
    the keys of profiles that it was made for.

    Throughput is always predicted, latency and jitter only if they are among `targets`: each costs as much again.
    """

    @property
    def version(self) -> str: ...

    @property
    def origin(self) -> str: ...

    @property
    def metrics(self) -> Sequence[str]: ...

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction: ...
