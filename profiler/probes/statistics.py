"""Statistics that probes share: variation, histograms, and summaries of series of times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median, stdev

from profiler.collectors.windows import percentile
from profiler.observed import Quantity


def described(values: Iterable[float], unit: str, *, prefix: str = "") -> dict[str, Quantity]:
    """min, median, mean, p95, max and (from two values on) stdev of a series; nothing for no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    numbers = {
        "min": ordered[0],
        "median": median(ordered),
        "mean": min(max(fmean(ordered), ordered[0]), ordered[-1]),  # rounding may carry it out of the range by an ulp
        "p95": percentile(ordered, 0.95),
        "max": ordered[-1],
    }
    if len(ordered) > 1:
        numbers["stdev"] = stdev(ordered)
    return {f"{prefix}{name}": Quantity(value, unit) for name, value in numbers.items()}


def variation_percent(values: Sequence[float]) -> float | None:
    """Coefficient of variation in %, sample standard deviation over mean; None for under two values or mean 0."""
    if len(values) < 2 or not fmean(values):
        return None
    return 100 * stdev(values) / abs(fmean(values))


def log_bins(values: Iterable[float], lowest: float, per_decade: int = 5) -> list[tuple[float, float, int]]:
    """Histogram with bins of equal width on a logarithmic scale: (from, to, count), from `lowest` on, none left out.

    The first bin begins at `lowest`, and holds what is below, too; the last one holds the largest value.
    """
    counts: dict[int, int] = {}
    for value in values:
        place = math.floor(per_decade * math.log10(value / lowest) + 1e-9) if value > lowest else 0
        counts[place] = counts.get(place, 0) + 1
    edges = range(max(counts, default=-1) + 1)
    step = 10 ** (1 / per_decade)
    return [(lowest * step**place, lowest * step ** (place + 1), counts.get(place, 0)) for place in edges]
