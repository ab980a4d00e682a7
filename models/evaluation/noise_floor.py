"""The noise floor: the error that remains for a perfect predictor, because repeats of one measurement differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.evaluation.error_metrics import LOWEST_COUNTED, rounded
from models.features.examples import Examples


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """`repeated` (R,) marks rows that were measured more than once, over which `mae` and `mape` of T/B are taken."""

    repeated: Bools
    mae: float
    mape: float

    @classmethod
    def of(cls, examples: Examples, repeat: Ints) -> NoiseFloor:
        """The errors of a perfect predictor of the mean. `repeat` (R,) numbers rows; equal numbers are repeats.

        With k repeats r of spread s, a row against the mean of the others is off by a spread of s sqrt(k / (k - 1)),
        a row against the true mean by s. So mae = mean of |r - mean of the others| sqrt((k - 1) / k); for mape over r.
        """
        number = np.unique(repeat, return_inverse=True)[1]
        count = np.bincount(number)[number] if len(number) else np.zeros(0)
        repeated = count > 1
        k = np.maximum(count, 2)
        others = (np.bincount(number, examples.ratio)[number] - examples.ratio) / (k - 1) if len(number) else count
        off = (np.abs(examples.ratio - others) * np.sqrt((k - 1) / k))[repeated]
        measured = np.clip(examples.ratio, LOWEST_COUNTED, None)[repeated]
        return cls(
            repeated, float(off.mean()) if len(off) else 0.0, float((off / measured).mean()) if len(off) else 0.0
        )

    def to_json(self) -> dict[str, float | int] | None:
        """As plain JSON values; None where nothing was repeated."""
        if not self.repeated.any():
            return None
        return {"mae": rounded(self.mae), "mape": rounded(self.mape), "rows": int(self.repeated.sum())}

    def times(self, examples: Examples, repeated: Bools, guess: Floats) -> dict[str, float | None] | None:
        """Error of `guess` (J,) on the repeated rows of `examples` (J rows) as a multiple of the noise."""
        if not repeated.any():
            return None
        off = np.abs(examples.ratio - guess)[repeated]
        relative = off / np.clip(examples.ratio, LOWEST_COUNTED, None)[repeated]
        pairs = {"mae": (off.mean(), self.mae), "mape": (relative.mean(), self.mape)}
        return {name: rounded(error / noise) if noise > 0 else None for name, (error, noise) in pairs.items()}
