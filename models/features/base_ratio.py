"""What the prior says of the ratio of each measured row, relative to the same solo run as the measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from models.arrays import Floats
from models.data.load_generators import SUFFIX
from models.data.scene import SceneBatch, build_batch
from models.features.feature_matrix import FeatureMatrix
from models.features.solo_ratio import OWN_SETTINGS, solo_ratio_for
from models.physics.prior import solve
from profiler.observed import Colocation, Host, Instance, IsolationSettings

Scene = tuple[Host, Sequence[Instance]]


def base_ratio(
    matrix: FeatureMatrix,
    batch: SceneBatch,
    target: str,
    meta: Mapping[str, Any],
    runs: Sequence[Colocation],
    scenes: Sequence[Scene],
) -> Floats:
    """The prior's throughput, latency, jitter or share ratio of each row of `matrix`, (R,).

    `batch` are the `scenes` of `runs` without load generators. A generator shares the CPUs of its run with every
    instance, and those of the solo run with its own instance, so both runs are solved with it.
    """
    if not any(run.generators for run in runs):
        return np.asarray(matrix.prior_of(target) / solo_ratio_for(batch, target, meta)[matrix.scene, matrix.slot])
    together = [(host, (*instances, *run.generators)) for (host, instances), run in zip(scenes, runs, strict=True)]
    rows = list(zip(matrix.scene.tolist(), matrix.slot.tolist(), strict=True))
    alone = [_solo(scenes[scene], runs[scene], slot, meta.get("solo") == OWN_SETTINGS) for scene, slot in rows]
    beside = getattr(solve(build_batch(together, batch.table)), target)[matrix.scene, matrix.slot]
    return np.asarray(beside / getattr(solve(build_batch(alone, batch.table)), target)[:, 0])


def _solo(scene: Scene, run: Colocation, slot: int, own_settings: bool) -> Scene:
    """The solo run of one instance, with its own load generator: under its limits where the dataset says so."""
    host, instances = scene
    one = instances[slot]
    if not own_settings:
        one = replace(one, settings=IsolationSettings(pinning=one.settings.pinning))
    return host, (one, *(other for other in run.generators if other.id == one.id + SUFFIX))
