"""The judge of replays that no model has a part in: what a fair share leaves of the demand in the trace."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from advisor.domain.replays import FAIR_SHARES
from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.demands import capacity, link, profile_column
from models.physics.devices import fill
from models.prediction import TARGETS, BandArrays, InterferencePrediction, unasked


class FairShares:
    """Each host's CPUs, network and disk are shared max-min fairly, with one weight for each instance.

    The ratio is what an instance got of what it asked for in that step, of the resource that it got least of. Nothing
    is assumed of bursts within a step, of caches or of memory, so that more harm than this is possible and less is not.
    An interval has no width.
    """

    version = FAIR_SHARES
    origin = "demand of the trace"
    metrics: tuple[str, ...] = ()

    def predict(self, scenes: SceneBatch, _targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """What was served of each demand, (S, N); nothing is said of latency and jitter."""
        here, load = scenes.present, np.minimum(scenes.load, 1.0)
        disk = capacity(scenes, "disk_mb_s")
        served = np.minimum.reduce(
            [
                _served(scenes.pcpus.astype(np.float64), np.where(here, load * scenes.vcpus, 0.0)),
                _served(link(scenes), _rate(scenes, "net_mbit", load)),
                _served(np.where(disk > 0, disk, np.inf), _rate(scenes, "disk_mb_s", load)),
            ]
        )
        ratio = np.where(here, served, np.nan)
        nothing = unasked(here)
        return InterferencePrediction(BandArrays(ratio, ratio, ratio), nothing, nothing, np.zeros_like(here))


def _rate(scenes: SceneBatch, key: str, load: Floats) -> Floats:
    return np.where(scenes.present, np.nan_to_num(profile_column(scenes, key)) * load, 0.0)


def _served(room: Floats, demand: Floats) -> Floats:
    """The part of its demand that each gets; 1 where it has none."""
    served = fill(room, demand, np.ones_like(demand))
    return np.divide(served, demand, out=np.ones_like(demand), where=demand > 0)
