"""LearnedPredictor: a trained artifact as a Predictor; maps scenes to rows and rows back to scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.effects import Effects
from models.features import FeatureMatrix, build_matrix, cpu_overlap
from models.fitted import Estimate, FittedTarget
from models.prediction import Band, InterferencePrediction
from models.prior import band, prior_spread
from models.scene import ProfileTable, SceneBatch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SAME_PROFILE = 0.25  # median |log(value / value in training)| up to which a name means the same workload


@dataclass(frozen=True, slots=True)
class LearnedPredictor:
    """Prior and learned residual together. `reference` holds, by name, the profiles that training saw.

    A workload counts as known when its name was in training and its profile looks the same: another operator's `db` is
    not ours.
    """

    version: str
    origin: str
    metrics: tuple[str, ...]
    throughput: FittedTarget
    latency: FittedTarget | None
    reference: Mapping[str, Sequence[Mapping[str, float]]]

    def predict(self, scenes: SceneBatch) -> InterferencePrediction:
        """Predict every instance of every scene; nan where nobody sits."""
        matrix = build_matrix(scenes, self.metrics)
        same = self._same_as_seen(scenes.table)
        size = scenes.present.sum(axis=1)[matrix.scene]
        blank = (scenes.profile == 0)[matrix.scene, matrix.slot] | self._nothing_in_common(matrix)
        throughput = self._estimate(self.throughput, matrix, scenes, same, size)
        outside = throughput.outside | blank
        bands = [self._band(throughput, matrix, scenes, blank)]
        if self.latency is not None:
            latency = self._estimate(self.latency, matrix, scenes, same, size)
            bands.append(self._band(latency, matrix, scenes, blank))
        else:
            spread = prior_spread(1 / matrix.prior.latency, scenes.profile == 0)
            raw = band(matrix.prior.latency, spread)
            bands.append(
                Band(*(np.where(scenes.present, value, np.nan) for value in (raw.expected, raw.lower, raw.upper)))
            )
        marks = np.zeros(scenes.present.shape, dtype=bool)
        marks[matrix.scene, matrix.slot] = outside
        return InterferencePrediction(throughput=bands[0], latency=bands[1], outside=marks)

    def _same_as_seen(self, table: ProfileTable) -> Bools:
        """Which rows of a profile table look like the workload of that name in the training data; (rows,)."""
        return np.array(
            [
                any(_same(table.columns, values, seen) for seen in self.reference.get(name, ()))
                for name, values in zip(table.names, table.values, strict=True)
            ],
            dtype=bool,
        )

    def _nothing_in_common(self, matrix: FeatureMatrix) -> Bools:
        """Rows of which no metric that training knew is known."""
        return np.asarray(~np.isfinite(matrix.x[:, : len(self.metrics)]).any(axis=1))

    def _estimate(
        self,
        target: FittedTarget,
        matrix: FeatureMatrix,
        scenes: SceneBatch,
        same: Bools,
        size: Ints,
    ) -> Estimate:
        """`same` (rows of the table,); known to one target is not known to the other, which may have fewer examples."""
        known_rows = same & np.array([name in target.model.known for name in scenes.table.names], dtype=bool)
        known = _scene_known(scenes, known_rows)[matrix.scene, matrix.slot]
        effect_rows = np.where(known_rows, np.arange(len(known_rows)), 0)
        source = matrix.prior.throughput if target.target == "throughput" else matrix.prior.latency
        base = source[matrix.scene, matrix.slot]
        return target.estimate(matrix.x, base, _correction(target, matrix, scenes, effect_rows, known), known, size)

    def _band(self, estimate: Estimate, matrix: FeatureMatrix, scenes: SceneBatch, blank: Bools) -> Band:
        """Spread rows over scenes; of rows without any known metric only the prior's wide interval is given."""
        wide = np.where(blank, np.exp(prior_spread(np.full(len(blank), 0.5), np.ones(len(blank), dtype=bool))), 1.0)
        out = []
        for values in (estimate.expected, estimate.lower / wide, np.maximum(estimate.upper, estimate.expected)):
            grid = np.full(scenes.present.shape, np.nan)
            grid[matrix.scene, matrix.slot] = values
            out.append(grid)
        return Band(*out)


def _correction(
    target: FittedTarget, matrix: FeatureMatrix, scenes: SceneBatch, effect_rows: Ints, known: Bools
) -> Floats:
    model = target.model
    if model.booster is None or not len(matrix.x):
        return np.zeros(len(matrix.x))
    threads = 1 if len(matrix.x) < 2000 else 0
    learned = np.asarray(model.booster.predict(matrix.x, num_threads=threads))
    learned = learned + scene_effects(model.effects, scenes, effect_rows)[matrix.scene, matrix.slot]
    return learned * model.trust(known)


def scene_effects(effects: Effects, scenes: SceneBatch, effect_rows: Ints) -> Floats:
    """`Effects.predict` for whole scenes at once, (S, N): the fast path of the same sums.

    `effect_rows` maps table rows to themselves, or to 0 where the workload is not known.
    """
    names = scenes.table.names
    row = effect_rows[scenes.profile]
    overlap = cpu_overlap(scenes)
    beside = np.where(np.eye(scenes.slots, dtype=bool)[None], 0.0, scenes.present[:, None, :] * 1.0)
    total = np.zeros(scenes.present.shape)
    for domain, share in (("near", overlap * beside), ("far", (1 - overlap) * beside)):
        victim = _vector(effects, f"victim|{domain}|", names)
        neighbour = _vector(effects, f"neighbour|{domain}|", names)
        pair = _matrix(effects, f"pair|{domain}|", names)
        total += victim[row] * share.sum(axis=2) + np.einsum("snm,sm->sn", share, neighbour[row])
        total += (pair[row[:, :, None], row[:, None, :]] * share).sum(axis=2)
    return np.where(scenes.present, total, 0.0)


def _vector(effects: Effects, prefix: str, names: Sequence[str]) -> Floats:
    return np.array([effects.values.get(prefix + name, 0.0) if name else 0.0 for name in names])


def _matrix(effects: Effects, prefix: str, names: Sequence[str]) -> Floats:
    found = np.zeros((len(names), len(names)))
    position: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        position.setdefault(name, []).append(row)
    for key, value in effects.values.items():
        if key.startswith(prefix):
            victim, _, neighbour = key.removeprefix(prefix).partition("|")
            for one in position.get(victim, ()):
                found[one, position.get(neighbour, [])] = value
    return found


def _scene_known(scenes: SceneBatch, known_rows: Bools) -> Bools:
    """Whether an instance and everybody with it is known; (S, N)."""
    everybody = np.asarray((known_rows[scenes.profile] | ~scenes.present).all(axis=1))
    return np.asarray(np.broadcast_to(everybody[:, None], scenes.present.shape))


def _same(columns: Sequence[str], values: Floats, seen: Mapping[str, float]) -> bool:
    gaps = [
        abs(float(np.log((values[at] + 1e-6) / (seen[key] + 1e-6))))
        for at, key in enumerate(columns)
        if key in seen and np.isfinite(values[at])
    ]
    return bool(gaps) and float(np.median(gaps)) <= SAME_PROFILE
