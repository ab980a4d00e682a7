"""Solo ratio: what an instance's own cap, rate and disk limit cost it when it runs alone."""

from __future__ import annotations

import numpy as np

from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.prior import solve


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
