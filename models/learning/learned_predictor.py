"""LearnedPredictor: a trained model as a Predictor. It turns scenes into feature rows, and predictions into scenes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch
from models.data.topology import given_own_cpus
from models.features.feature_matrix import REPORTER, FeatureMatrix, build_matrix
from models.learning.fitted_target import FittedTarget, TargetEstimate
from models.learning.memory import Recalled
from models.physics.demands import guessed
from models.physics.prior import METRICS, answer
from models.prediction import TARGETS, BandArrays, Basis, InterferencePrediction, joined, unasked

MOST_CELLS = 400_000  # scenes x slots x slots that are predicted at a time: about 100 MB
SAME_PROFILE = 0.25  # median |log(value / value in training)| up to which a name means the same workload
NOTHING = 0.05  # of what was learned applies: below it an answer counts as the analytic model's alone


@dataclass(frozen=True, slots=True)
class _PreparedTable:
    """What is derived from a profile table alone: the `given` table, and the `table` completed from training data.

    `same` caches whether a row looks like the workload of that name in training.
    """

    given: ProfileTable
    table: ProfileTable
    same: dict[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LearnedPredictor:
    """Analytic model plus learned residual. `reference` holds the training profiles by workload name.

    A workload is known by name if its name was in training and its profile is similar: another operator's `db` may be
    another program. `further` are metrics of profiles that only the training data have, `platforms` further numbers of
    the training platforms. `share` was learned from windows, and answers beside `throughput` for the throughput of
    every instance whose demand for CPUs is known over time.
    """

    version: str
    origin: str
    further: tuple[str, ...]
    throughput: FittedTarget
    latency: FittedTarget | None
    jitter: FittedTarget | None
    reference: Mapping[str, Sequence[Mapping[str, float]]]
    platforms: Mapping[str, Mapping[str, float]]
    share: FittedTarget | None = None
    _prepared: list[_PreparedTable] = field(default_factory=list, init=False, repr=False, compare=False)  # the last one

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of profiles that it reads."""
        return (*METRICS, *self.further)

    @property
    def targets(self) -> dict[str, FittedTarget]:
        """The fitted targets by name."""
        fitted = {name: getattr(self, name) for name in ("throughput", "latency", "jitter", "share")}
        return {name: target for name, target in fitted.items() if target is not None}

    @property
    def of_windows(self) -> bool:
        """Whether windows of hosts taught it the share that instances get of their demand."""
        return self.share is not None

    @property
    def hosts_of_windows(self) -> int | None:
        """How many hosts had the windows that were left out to calibrate that share; None = none, or not known."""
        return None if self.share is None else self.share.figures.get("unseen_host", {}).get("hosts")

    @property
    def correction(self) -> tuple[float, float]:
        """At least and at most the correction of log T/B that it ever says."""
        targets = [one for one in (self.throughput, self.share) if one is not None]
        return min(0.0, *(one.least for one in targets)), max(0.0, *(one.most for one in targets))

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """Predict every instance of every scene; nan in empty slots. Every instance is looked at beside every other:
        only so many scenes at a time as MOST_CELLS allow."""
        if len(scenes) * scenes.slots**2 <= MOST_CELLS:
            return self._predict(scenes, targets)
        used = np.where(scenes.present, np.arange(1, scenes.slots + 1), 0).max(axis=1, initial=0)
        waiting, parts = np.argsort(-used, kind="stable"), []
        while len(waiting):
            most = max(int(used[waiting[0]]), 1)
            rows, waiting = np.split(waiting, [max(MOST_CELLS // most**2, 1)])
            parts.append((rows, self._predict(scenes.take(rows).trimmed(), targets)))
        return joined(parts, (len(scenes), scenes.slots))

    def _predict(self, scenes: SceneBatch, targets: Collection[str]) -> InterferencePrediction:
        prepared, scenes = self._of_table(scenes.table), given_own_cpus(scenes)
        scenes = scenes if prepared.table is scenes.table else replace(scenes, table=prepared.table)
        analytic, result, doubts = answer(scenes, targets)
        matrix = build_matrix(scenes, self.further, result)
        if not len(matrix.x):
            return analytic
        known = self._same_as_seen(scenes, prepared.same)
        estimate = self._estimate(self.throughput, scenes, matrix, known, analytic.throughput, doubts)
        if self.share is not None:
            estimate = self._with_share(self.share, scenes, matrix, known, analytic.throughput, doubts, estimate)
        bands = {"throughput": _band(estimate, scenes, matrix)}
        for name in ("latency", "jitter"):
            band, target = getattr(analytic, name), self.targets.get(name)
            if name in targets and target is not None:
                band = _band(self._estimate(target, scenes, matrix, known, band, doubts), scenes, matrix)
            bands[name] = band if name in targets else unasked(scenes.present)
        basis = _basis(estimate, scenes, matrix)
        nothing = (analytic.outside & guessed(scenes)) | ~(basis.support >= NOTHING)
        return InterferencePrediction(
            bands["throughput"],
            bands["latency"],
            bands["jitter"],
            scenes.present & nothing,
            result.cpu,
            analytic.devices,
            basis,
        )

    def _estimate(
        self, target: FittedTarget, scenes: SceneBatch, matrix: FeatureMatrix, known: Bools, own: BandArrays,
        doubts: tuple[Floats, Floats],
    ) -> TargetEstimate:  # fmt: skip
        scene, slot = matrix.scene, matrix.slot
        base = matrix.prior_of(target.target)
        remembered = target.memory.of_scenes(scenes, known)
        recalled = Recalled(
            *(one[scene, slot] for one in (remembered.effect, remembered.familiar, remembered.measured))
        )
        here = target.memory.on(scenes)[scene]
        size = scenes.present.sum(axis=1)[scene]
        widths = _widths(own, base, scene, slot)
        # What is in doubt of the demands is in doubt whatever was learned.
        doubt = [np.minimum(one[scene, slot], width) for one, width in zip(doubts, widths, strict=True)]
        certain = widths[0] - doubt[0], widths[1] - doubt[1]
        found = target.estimate(matrix.x, base, certain, recalled, here, size, matrix.known)
        return replace(
            found,
            lower=found.lower * np.exp(-doubt[0]),
            upper=np.maximum(np.minimum(found.upper * np.exp(doubt[1]), target.ceiling), found.expected),
        )

    def _with_share(
        self,
        share: FittedTarget,
        scenes: SceneBatch,
        matrix: FeatureMatrix,
        known: Bools,
        own: BandArrays,
        doubts: tuple[Floats, Floats],
        estimate: TargetEstimate,
    ) -> TargetEstimate:
        """The estimate with what windows say of those whose demand for CPUs is known over time, as far as they do."""
        there = ~np.isnan(scenes.cpu_demand[matrix.scene, matrix.slot, 0])
        if not there.any():
            return estimate
        of_shares = self._estimate(share, scenes, matrix, known, own, doubts)
        part = np.where(there, of_shares.support, 0.0)
        base = {name: matrix.prior_of(name) for name in ("share", "throughput")}

        def mixed(edge: str) -> Floats:
            of_share = getattr(of_shares, edge) / base["share"] * base["throughput"]
            return np.asarray(np.exp(part * np.log(of_share) + (1 - part) * np.log(getattr(estimate, edge))))

        expected = np.minimum(mixed("expected"), 1.0)
        return TargetEstimate(
            expected,
            np.minimum(mixed("lower"), expected),
            np.maximum(mixed("upper"), expected),
            np.maximum(estimate.support, part),
            np.maximum(np.where(part > 0, of_shares.similar, 0.0), estimate.similar),
            np.maximum(np.where(part > 0, of_shares.machines, 0.0), estimate.machines),
            estimate.measured,
        )

    def _of_table(self, table: ProfileTable) -> _PreparedTable:
        """Prepared once per table: all questions about one cloud share their table."""
        for prepared in self._prepared:
            if prepared.given is table:
                return prepared
        new = _PreparedTable(table, self._with_what_training_knew(table))
        self._prepared[:] = [new]  # another thread may put its own at any time
        return new

    def _with_what_training_knew(self, table: ProfileTable) -> ProfileTable:
        """The table, completed with the training data's platforms and sweep reporter where it has none."""
        for metrics in self.reference.get(REPORTER, ())[:1]:
            if REPORTER not in table.names:
                table = table.with_profile(WorkloadProfile(REPORTER, metrics))
        if self.platforms and not table.platforms:
            table = replace(table, platforms=self.platforms)
        return table

    def _same_as_seen(self, scenes: SceneBatch, before: dict[int, bool]) -> Bools:
        """Which rows of the profile table look like the workload of that name in training; (rows,).

        Rows that no instance uses are False. `before` caches the results of this table's rows.
        """
        table, found = scenes.table, np.zeros(len(scenes.table.values), dtype=bool)
        for row in np.unique(scenes.profile[scenes.present]).tolist():
            if row not in before:
                several = self.reference.get(table.names[row], ())
                before[row] = any(_same(table.columns, table.values[row], seen) for seen in several)
            found[row] = before[row]
        return found


def _widths(own: BandArrays, base: Floats, scene: Ints, slot: Ints) -> tuple[Floats, Floats]:
    """Half widths of the analytic model's range around its result on the log scale, (R,) down and up."""
    lower, upper = own.lower[scene, slot], own.upper[scene, slot]
    middle = np.clip(base, lower, upper)
    return np.log(middle / np.maximum(lower, 1e-6)), np.log(np.maximum(upper, 1e-6) / middle)


def _band(estimate: TargetEstimate, scenes: SceneBatch, matrix: FeatureMatrix) -> BandArrays:
    return BandArrays(*(_grid(one, scenes, matrix) for one in (estimate.expected, estimate.lower, estimate.upper)))


def _basis(estimate: TargetEstimate, scenes: SceneBatch, matrix: FeatureMatrix) -> Basis:
    correction = np.log(estimate.expected / np.minimum(matrix.prior_of("throughput"), 1.0))
    parts = (estimate.support, correction, estimate.similar, estimate.machines, estimate.measured)
    return Basis(*(_grid(one, scenes, matrix) for one in parts))


def _grid(values: Floats, scenes: SceneBatch, matrix: FeatureMatrix) -> Floats:
    grid = np.full(scenes.present.shape, np.nan)
    grid[matrix.scene, matrix.slot] = values
    return grid


def _same(columns: Sequence[str], values: Floats, seen: Mapping[str, float]) -> bool:
    both = [at for at, key in enumerate(columns) if key in seen and np.isfinite(values[at])]
    gaps = np.log((values[both] + 1e-6) / (np.array([seen[columns[at]] for at in both]) + 1e-6))
    return bool(both) and float(np.median(np.abs(gaps))) <= SAME_PROFILE
