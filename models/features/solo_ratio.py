"""Solo ratio: what an instance's own cap, rate and disk limit cost it when it runs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.prior import solve

OWN_SETTINGS = "own settings"  # of `solo` in dataset.yaml: solo values were measured under the instance's own limits


def solo_ratio_for(scenes: SceneBatch, target: str, meta: Mapping[str, Any]) -> Floats:
    """The solo ratio of every instance where the dataset measured solo runs under the instance's own limits, else 1.

    Shape (S, N). The dataset says so by `solo: own settings` in dataset.yaml. Its measured ratios are then relative to
    a limited solo run; dividing the prior's ratio by the solo ratio makes both relative to the same run.
    """
    if meta.get("solo") != OWN_SETTINGS:
        return np.ones(scenes.present.shape)
    return solo_ratio(scenes, target)


def solo_ratio(scenes: SceneBatch, target: str) -> Floats:
    """Throughput, latency or jitter of every instance alone with its limits, over alone without them, by the prior.

    Shape (S, N); 1 where no cap, rate or disk limit is set.
    """
    ratio = np.ones(scenes.present.shape)
    limited = np.isfinite(scenes.cap) | np.isfinite(scenes.net_ceil) | np.isfinite(scenes.disk_limit)
    scene, slot = np.nonzero(scenes.present & limited)
    if not len(scene):
        return ratio
    ratio[scene, slot] = getattr(solve(scenes.each_alone(scene, slot)), target)[:, 0]
    return ratio
