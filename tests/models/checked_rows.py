"""Rows of predicted beside observed, as a model that keeps its promise gives them, and as one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from models.arrays import Floats
from models.evaluation.prediction_checks import CheckedPrediction

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HALF = 0.1  # half width of every interval on the log scale
Z90 = 1.6449  # standard deviations that a normal 90 % interval reaches


def one(number: int = 0, *, off: float = 0.0, half: float = HALF, **given: Any) -> CheckedPrediction:
    """A row whose measurement is `off` half widths from what was expected, on the log scale."""
    row: dict[str, Any] = {
        "source": f"s{number:06d}",
        "time": BEGIN + timedelta(minutes=number),
        "version": "m-1",
        "role": "active",
        "target": "throughput",
        "platform": "I",
        "workload": "web",
        "instance": "a",
        "expected": 0.8,
        "lower": 0.8 * np.exp(-half),
        "upper": 0.8 * np.exp(half),
        "outside": False,
        "observed": 0.8 * np.exp(off * half),
    }
    return CheckedPrediction(**{**row, **given})


def series(offs: Sequence[float] | Floats, **given: Any) -> list[CheckedPrediction]:
    """One row per scene, in order of time."""
    return [one(number, off=float(off), **given) for number, off in enumerate(offs)]


def honest(count: int, seed: int, *, heavy: bool = False) -> Floats:
    """Residuals in half widths of a model whose 90 % intervals hold: normal, or of the same spread with heavy tails."""
    rng = np.random.default_rng(seed)
    if heavy:
        return np.asarray(rng.standard_t(4, count) / np.sqrt(2) / Z90)
    return rng.normal(size=count) / Z90
