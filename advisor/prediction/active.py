"""Which predictor answers and what happens when it fails; what a prediction says of one instance."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import numpy as np

from advisor import deadline
from advisor.domain import Band, CpuTime, Effect, EffectBasis
from advisor.errors import BrokenArtifact
from advisor.prediction.cache import PredictionCache
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, Basis, CpuPressure, InterferencePrediction, Predictor, correction_of

T = TypeVar("T")
Notes = tuple[str, ...]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActivePredictor:
    """The predictor in use; `degraded` when it stands in for one that could not be read, with a note that says why.
    `remembered` is what it was asked before."""

    predictor: Predictor
    degraded: bool = False
    notes: Notes = ()
    remembered: PredictionCache = field(default_factory=PredictionCache, compare=False)


class PredictorFailedError(Exception):
    """A predictor raised, or gave numbers that are none."""


@dataclass(frozen=True, slots=True)
class PredictorProxy:
    """Delegates to another predictor under its version; subclasses override `predict`."""

    predictor: Predictor

    @property
    def version(self) -> str:
        return self.predictor.version

    @property
    def origin(self) -> str:
        return self.predictor.origin

    @property
    def metrics(self) -> Sequence[str]:
        return self.predictor.metrics

    @property
    def of_windows(self) -> bool:
        """Whether windows of hosts taught it the share that instances get of their demand."""
        return bool(getattr(self.predictor, "of_windows", False))

    @property
    def correction(self) -> tuple[float, float] | None:
        """As `models.prediction.correction_of`."""
        return correction_of(self.predictor)

    @property
    def hosts_of_windows(self) -> int | None:
        """How many hosts had the windows that its ranges were held against; None = none, or not known."""
        hosts: int | None = getattr(self.predictor, "hosts_of_windows", None)
        return hosts

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        return self.predictor.predict(scenes, targets)


@dataclass(frozen=True, slots=True)
class ValidatingPredictor(PredictorProxy):
    """A predictor whose every failure is a `failure`, so that it is distinguished from a failing filter (rule 1).

    Nothing is predicted for a question whose time is up: predicting is the long step of all of them.
    """

    failure: Callable[[str], Exception] = PredictorFailedError

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        deadline.check()
        try:
            prediction = self.predictor.predict(scenes, targets)
        except Exception as error:
            raise self.failure(f"{type(error).__name__}: {error}") from error
        here = scenes.present
        for target in TARGETS:
            band: BandArrays = getattr(prediction, target)
            if target == "throughput" or target in targets:
                for edge in (band.expected, band.lower, band.upper):
                    if edge.shape != here.shape or not np.isfinite(edge[here]).all():
                        raise self.failure(f"it gave no finite {target} for some instance")
        return prediction


def ask(active: ActivePredictor, question: Callable[[ActivePredictor], T]) -> T:
    """Put a question to the active predictor, and to the prior when that one fails.

    A question within a question leaves it to the outer one to fall back, so that one answer is of one predictor.
    """
    if _is_guarded(active.predictor):
        return question(active)
    guarded = replace(active, predictor=ValidatingPredictor(active.predictor))
    if isinstance(active.predictor, PriorPredictor):
        return question(guarded)
    try:
        return question(guarded)
    except PredictorFailedError as error:
        version = active.predictor.version
        log.exception("model %s failed", version)
        note = f"Model {version} failed ({error}); the analytic model answered instead."
        prior = ValidatingPredictor(PriorPredictor())
        return question(replace(active, predictor=prior, degraded=True, notes=(*active.notes, note)))


def _is_guarded(predictor: Predictor) -> bool:
    """Whether who asks first sees to failures, however the predictor was wrapped since."""
    if isinstance(predictor, ValidatingPredictor):
        return True
    return isinstance(predictor, PredictorProxy) and _is_guarded(predictor.predictor)


def by_name(chosen: ActivePredictor) -> ActivePredictor:
    """A model that was asked for by its name: none stands in for it, and where it fails that is a BrokenArtifact."""
    version = chosen.predictor.version
    return replace(
        chosen,
        predictor=ValidatingPredictor(chosen.predictor, lambda what: BrokenArtifact(f"model {version} failed: {what}")),
    )


def load(path: Path) -> Predictor:
    """Read an artifact directory; BrokenArtifact when it is missing, foreign or fails its checksum."""
    from models.learning import artifact

    try:
        return artifact.load(path)
    except (ValueError, OSError) as error:
        raise BrokenArtifact(f"model {path.name} cannot be used: {error}") from error


def load_tried(path: Path) -> Predictor:
    """The same, after its first prediction in another process; BrokenArtifact when that died, hung or was none."""
    try_out(path)
    return load(path)


def try_out(path: Path) -> None:
    """Let another process read an artifact and predict with it; BrokenArtifact when that died, hung or was none."""
    from models.learning import smoke_test

    try:
        smoke_test.run(path)
    except smoke_test.SmokeTestError as error:
        raise BrokenArtifact(f"model {path.name} cannot be used: {error}") from error


def load_or_prior(path: Path) -> ActivePredictor:
    """Read the artifact that should answer; the prior, degraded, when it is broken."""
    try:
        return ActivePredictor(load(path))
    except BrokenArtifact as error:
        log.error("%s", error)  # noqa: TRY400 - the sentence says it all
        note = f"{error.message}; the analytic model answered instead."
        return ActivePredictor(PriorPredictor(), degraded=True, notes=(note,))


def newest(model_dir: Path) -> ActivePredictor:
    """The intact artifact that was trained last and that the gate did not refuse, the prior where there is none; the
    answer's model says which."""
    if not model_dir.is_dir():
        return ActivePredictor(PriorPredictor())
    from models.learning import artifact  # with LightGBM: only who has models waits for it

    path = artifact.newest(model_dir)
    return ActivePredictor(PriorPredictor()) if path is None else load_or_prior(path)


# What a prediction says of one instance, as a value of the answer.


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


# What every question needs, whatever it asks.


@dataclass(frozen=True, slots=True)
class QuestionContext:
    """Who answers, when it is asked, and for how many seconds the data of a host count as fresh."""

    active: ActivePredictor
    now: datetime
    fresh_s: float
