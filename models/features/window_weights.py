"""Which rows of windows are learned from, and how much they count: contended ones as much as calm ones together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.arrays import Bools
from models.data.window_dataset import CALM
from models.features.examples import Examples

MOST_ROWS = 20_000  # contended rows; more of the same few hosts add nothing that time is worth
LEAST_CALM = 1_000  # calm rows are kept at least, else as many as contended ones


def contended(examples: Examples) -> Bools:
    """Rows in which an instance is or should be short of CPU by the analytic model; (R,)."""
    return np.asarray(np.minimum(examples.base, examples.ratio) < CALM)


def weighted(examples: Examples, seed: int = 0) -> Examples:
    """The rows of windows to learn from: all contended ones and as many calm ones, each kind with the same importance
    in all.

    In most clouds nine rows in ten are calm: nothing is to be gained there, and what weighs all rows alike learns that
    nothing is to be learned. Where no row is contended, or none is calm, they stay as they are.
    """
    short = contended(examples)
    if not short.any() or short.all():
        return examples
    order = np.random.default_rng(seed).permutation(len(examples))
    some, others = order[short[order]][:MOST_ROWS], order[~short[order]]
    kept = np.sort(np.concatenate([some, others[: max(len(some), LEAST_CALM)]]))
    chosen, short = examples.take(kept), short[kept]
    importance = chosen.importance if len(chosen.importance) else np.ones(len(chosen))
    total = importance.sum() / 2
    scale = np.where(short, total / importance[short].sum(), total / importance[~short].sum())
    return replace(chosen, importance=importance * scale)
