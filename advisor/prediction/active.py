"""Caches predictions by everything that they depend on, so that nothing is predicted twice; bounded."""

from __future__ import annotations

import logging
import math
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor import deadline
from advisor.domain import Band, Candidate, CpuTime, Effect, EffectBasis
from advisor.errors import BrokenArtifact
from models.arrays import Bools, Floats
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, Basis, CpuPressure, InterferencePrediction, Predictor, correction_of

# A cache that drops the values that were not used for longest.

K = TypeVar("K")
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """At most `most` in all, by what each value counts; safe to share between threads."""

    def __init__(self, most: int, counts: Callable[[V], int] = lambda _: 1) -> None:
        self._lock = threading.Lock()
        self._most, self._counts = most, counts
        self._there = 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def find(self, key: K) -> V | None:
        """The value under a key, None where there is none."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        """Put a value under a key; it goes at once where it alone is too much."""
        with self._lock:
            former = self._values.pop(key, None)
            self._values[key] = value
            self._there += self._counts(value) - (0 if former is None else self._counts(former))
            while self._there > self._most:
                self._there -= self._counts(self._values.popitem(last=False)[1])

    def drop(self, is_over: Callable[[V], bool]) -> None:
        """Let go of values that are not asked for again."""
        with self._lock:
            for key in [key for key, value in self._values.items() if is_over(value)]:
                self._there -= self._counts(self._values.pop(key))

    def __len__(self) -> int:
        return len(self._values)


MOST_BYTES = 32 * 2**20  # with the new VM; 10,000 hosts with eight residents, no two alike, take 15 MB
KEY_BYTES = 200  # what a key of 48 bytes takes as an object, with its place in the table and the turn of its last use
MOST_SUMS = 1000  # arrays of 64 numbers
MOST_PARTS = 20_000  # parts of candidates as `_parts` counts them, of less than 1 KB each


class PredictionCache:
    """What a predictor said about host situations, before a new VM came and after, and in full of those that an
    answer has shown; one per predictor in use.

    Nothing in it goes stale: all that a prediction depends on is part of its key, so that what changed is not found
    any more, and dropped when there is no room, the longest unused first. Safe to share between threads. `candidates`
    are what was made of that, with their reasons.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self.after = _Blocks(self._lock, most_bytes)  # one for each host and question
        self.before = _Blocks(self._lock, most_bytes // 4)  # one for each host
        self.shown = _Blocks(self._lock, most_bytes // 4)  # some for each question
        self.sums: LRUCache[bytes, Floats] = LRUCache(MOST_SUMS)  # what new VMs add to the demand of hosts
        self.candidates: LRUCache[bytes, tuple[Candidate, ...]] = LRUCache(MOST_PARTS, _parts)

    def counts(self) -> tuple[int, int]:
        """How many keys were found and how many were not, of all that were ever looked for."""
        kinds = (self.before, self.after, self.shown)
        with self._lock:
            return sum(kind.found for kind in kinds), sum(kind.missed for kind in kinds)


def _parts(candidates: Sequence[Candidate]) -> int:
    """How much candidates hold: neighbours, reasons, commands, and steps of the ladder with the instances that they
    touch."""
    return sum(
        1
        + len(candidate.neighbours)
        + len(candidate.reasons)
        + len(candidate.commands)
        + len(candidate.changes)
        + sum(1 + len(rung.effects) + len(rung.changes) for rung in candidate.mitigation)
        for candidate in candidates
    )


class _Blocks:
    """Blocks of numbers by key, all of one shape; another shape starts anew.

    They lie in one array, as large as it may become, for as long as this is there. The system gives memory only where
    blocks are written, while arrays that grow and replace each other leave holes in the heap that nothing else fills.
    It is mapped by itself: the C library puts arrays of this size into its heaps once it has freed one (mallopt(3),
    M_MMAP_THRESHOLD), and each time that another predictor answers would leave holes there, too.
    """

    def __init__(self, lock: threading.Lock, most_bytes: int) -> None:
        self._lock = lock
        self._most_bytes = most_bytes
        self.found = self.missed = 0
        self._numbers = np.empty(0)
        self._empty(())

    def _empty(self, shape: tuple[int, ...]) -> None:
        self._row: dict[bytes, int] = {}
        size = math.prod(shape)
        self._most = self._most_bytes // (size * self._numbers.itemsize + KEY_BYTES) if shape else 0
        self._values = self._numbers[: self._most * size].reshape(self._most, *shape)
        self._used = np.zeros(self._most, dtype=np.int64)  # the turn in which each row was last asked for
        self._turn = 0

    def __len__(self) -> int:
        return len(self._row)

    def find(self, keys: Sequence[bytes], shape: tuple[int, ...]) -> tuple[Bools, Floats]:
        """Which of K keys are known, (K,), and their blocks (K, *shape), nan where nothing is known."""
        with self._lock:
            if shape != self._values.shape[1:] or not self._row:
                self.missed += len(keys)
                return np.zeros(len(keys), dtype=bool), np.full((len(keys), *shape), np.nan)
            rows = np.fromiter(map(self._row.get, keys, repeat(-1)), dtype=np.int64, count=len(keys))
            known = rows >= 0
            count = int(known.sum())
            self.found += count
            self.missed += len(keys) - count
            found = self._values[rows]  # whatever the last row holds where nothing is known
            found[~known] = np.nan
            self._turn += 1
            self._used[rows[known]] = self._turn
            return known, found

    def keep(self, keys: Sequence[bytes], blocks: Floats) -> None:
        """Keep blocks (K, ...) under K different keys, as many as there is room for; of a known key the last one."""
        with self._lock:
            if not len(self._numbers):
                size = self._most_bytes // self._numbers.itemsize * self._numbers.itemsize
                pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                self._numbers = np.frombuffer(pages)
            if blocks.shape[1:] != self._values.shape[1:]:
                self._empty(blocks.shape[1:])
            for number, key in enumerate(keys):
                if key in self._row:
                    self._values[self._row[key]] = blocks[number]
            new = [number for number, key in enumerate(keys) if key not in self._row][: self._most]
            rows = self._rows_for(len(new))
            self._values[rows] = blocks[new]
            self._turn += 1
            self._used[rows] = self._turn
            self._row.update(zip((keys[number] for number in new), rows.tolist(), strict=True))

    def _rows_for(self, count: int) -> NDArray[np.int64]:
        """Rows to write to: new ones while there is room, then those that were not asked for longest."""
        held = len(self._row)
        if held + count <= self._most:  # rows are taken one after the other, and given up only where none is left
            return np.arange(held, held + count)
        rows = np.argsort(self._used, kind="stable")[:count]
        lost = set(rows.tolist())
        self._row = {key: row for key, row in self._row.items() if row not in lost}
        return rows


# Which predictor answers and what happens when it fails; what a prediction says of one instance.

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
    from models.learning import artifact

    try:
        artifact.run(path)
    except artifact.SmokeTestError as error:
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
    """One element of the three arrays of a band; written out, for an answer has hundreds."""
    return Band(bands.expected.item(scene, slot), bands.lower.item(scene, slot), bands.upper.item(scene, slot))


def cpu_time(pressure: CpuPressure, scene: int, slot: int, short_before: float | None = None) -> CpuTime:
    """What one instance gets of the CPU time that it demands."""
    share, worst, short = (
        pressure.share.item(scene, slot), pressure.worst.item(scene, slot), pressure.short.item(scene, slot),
    )  # fmt: skip
    return CpuTime(share, worst, short, short_before, pressure.overloaded.item(scene, slot))


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
