"""What the analytic model says of the ratio of each measured row, relative to the same solo run as the measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from models.arrays import Floats, Ints
from models.data.load_generators import SUFFIX
from models.data.scene import ProfileTable, build_batch
from models.features.feature_matrix import FeatureMatrix
from models.physics.prior import solve
from profiler.observed import Host, Instance, IsolationSettings

OWN_SETTINGS = "own settings"  # of `solo` in dataset.yaml: solo values were measured under the instance's own limits
Scene = tuple[Host, Sequence[Instance]]


def base_ratio(
    matrix: FeatureMatrix,
    rows: Ints,
    table: ProfileTable,
    target: str,
    meta: Mapping[str, Any],
    scenes: Sequence[Scene],
) -> Floats:
    """The analytic throughput, latency, jitter or share ratio of these rows of `matrix`, (R,).

    `scenes` are those of `matrix`, with load generators. A generator shares the CPUs of its run with every instance,
    and those of the solo run with its own instance. Limits count in the solo run where it was measured with them.
    """
    beside = matrix.prior_of(target)[rows]
    own_settings = meta.get("solo") == OWN_SETTINGS
    found, alone = np.flatnonzero([_slowed_alone(scenes[matrix.scene[row]][1], matrix.slot[row], own_settings)
                                   for row in rows]), []  # fmt: skip
    if not len(found):
        return beside
    for row in rows[found].tolist():
        host, instances = scenes[matrix.scene[row]]
        one = instances[matrix.slot[row]]
        kept = one if own_settings else replace(one, settings=IsolationSettings(pinning=one.settings.pinning))
        alone.append((host, (kept, *(other for other in instances if other.id == one.id + SUFFIX))))
    beside[found] /= getattr(solve(build_batch(alone, table)), target)[:, 0]
    return np.asarray(beside)


def _slowed_alone(instances: Sequence[Instance], slot: int, own_settings: bool) -> bool:
    """Whether an instance may be slower in its solo run than with its CPUs to itself and without limits."""
    one = instances[slot]
    limits = one.settings
    limited = limits.cap_percent is not None or limits.network is not None or limits.disk_limit_mb_s is not None
    return (own_settings and limited) or any(other.id == one.id + SUFFIX for other in instances)
