"""FittedTarget: all that answers for one ratio - the learner, its support, what is remembered by name, and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.features.examples import (
    Examples,
)
from models.learning.held_out import HeldOutPredictions
from models.learning.memory import Memory, Recalled
from models.learning.residual_learner import (
    ResidualLearner,
    agreement,
)
from models.learning.support import (
    Ranges,
    Support,
    hints_of,
)
from models.physics.prior import JITTER_TIMES, LATENCY_TIMES, PRIOR_HALF_WIDTH, prior_spread

HIGHEST = {"throughput": 1.0, "latency": 1000.0, "jitter": 1000.0, "share": 1.0}
LOWEST = {"throughput": 1e-3, "latency": 0.5, "jitter": 1e-3, "share": 1e-3}
# lower bounds never claim a gain from neighbours
SURE = {"throughput": 1.0, "latency": np.inf, "jitter": np.inf, "share": 1.0}
ALONE = 0.02  # half width for an instance without neighbours: repeats of one run differ by about that much


@dataclass(frozen=True, slots=True)
class TargetEstimate:
    """Expected ratio with its 90 % range (each bound alone holds in 95 %), and what it rests on; all (R,).

    `support` is how much of what was learned applies, 0-1; `similar` how many measured rows are like this one, on how
    many `machines`; `measured` how many outcomes of exactly these instances.
    """

    expected: Floats
    lower: Floats
    upper: Floats
    support: Floats
    similar: Floats
    machines: Floats
    measured: Floats


@dataclass(frozen=True, slots=True)
class FittedTarget:
    """Everything needed to predict one ratio.

    `trust` is the part of the correction that is applied on hosts that training did not see; `least` and `most` bound
    it on the log scale, with what is remembered; `ceiling` is the highest upper bound. `figures` are errors by
    protocol, `held_out` the predictions of left-out rows.
    """

    target: str
    names: tuple[str, ...]
    learner: ResidualLearner | None
    support: Support | None
    trust: float
    memory: Memory
    ranges: Ranges
    least: float
    most: float
    ceiling: float
    figures: Mapping[str, Mapping[str, Any]]
    held_out: tuple[HeldOutPredictions, ...] = ()

    def ask(self, examples: Examples) -> TargetEstimate:
        """Predict examples; reference path beside `LearnedPredictor`, which does the same for scenes."""
        here = np.isin(examples.platform, list(self.memory.platforms))
        recalled = self.memory.of(examples.victim, examples.neighbours, here)
        own = own_width(self.target, examples.base)
        return self.estimate(examples.x, examples.base, (own, own), recalled, here, examples.size)

    def estimate(
        self, x: Floats, base: Floats, own: tuple[Floats, Floats], recalled: Recalled, here: Bools, size: Ints,
        known: Floats | float = 1.0,
    ) -> TargetEstimate:  # fmt: skip
        """Turn features (R, F), the analytic ratio and what is remembered (R,) into ratios with ranges.

        `own` are the half widths of the analytic model's range on the log scale, down and up, without doubt about
        demand; `here` whether training saw the host; `size` the number of instances of each row's scene; `known` (R,)
        how well its demands are known, 0-1. An instance without neighbours is not corrected: its ratio is 1 by
        definition.
        """
        alone = size <= 1
        if self.learner is None or self.support is None:
            learned, deviation, nearness, near = np.zeros((4, len(base)))
            similar = machines = np.zeros(len(base))
        else:
            full = with_base(x, base)
            learned, deviation = self.learner.predict(full)
            likeness = self.support.of(full)
            similar, machines, near = likeness.similar, likeness.machines, likeness.value * known
            nearness = near * agreement(learned, deviation)
        believed = np.where(here, 1.0, self.trust) * nearness
        correction = np.clip(believed * learned + near * recalled.effect, self.least, self.most)
        correction = np.where(alone, 0.0, correction)
        expected = np.clip(base * np.exp(correction), LOWEST[self.target], HIGHEST[self.target])
        hints = hints_of(base, expected, correction, deviation)
        down, up = self.ranges.half_widths(hints, here, recalled.familiar, nearness, own)
        down, up = (np.where(alone, ALONE, width) for width in (down, up))
        return TargetEstimate(
            expected=expected,
            lower=np.clip(expected * np.exp(-down), LOWEST[self.target], np.minimum(expected, SURE[self.target])),
            upper=np.minimum(expected * np.exp(up), self.ceiling),
            support=np.maximum(
                nearness, np.where(here, recalled.measured / (recalled.measured + self.memory.shrink), 0.0)
            ),
            similar=similar,
            machines=machines,
            measured=np.where(here, recalled.measured, 0.0),
        )


def with_base(x: Floats, base: Floats) -> Floats:
    """Features with the log of the analytic ratio as the last column; (R, F + 1)."""
    return np.column_stack([x, np.log(base)])


def own_width(target: str, base: Floats) -> Floats:
    """Half width of the analytic model's own range on the log scale; (R,)."""
    if target in {"throughput", "share"}:
        return prior_spread(base, np.zeros(len(base), dtype=bool))
    times = LATENCY_TIMES if target == "latency" else JITTER_TIMES
    return times * PRIOR_HALF_WIDTH * np.maximum(0.5, np.log2(base))
