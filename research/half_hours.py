"""What the last windows and the half hours before them tell of all windows: three ways, on public traces.

python -m research.half_hours TRACES

TRACES is the folder of Bitbrains' and PlanetLab's. Each way learns from what a monitoring system keeps: the last day,
or hour, in windows of five minutes, and half hours before it. By which factor mean, spread and p95 are off those of all
windows, up or down (exp of the root mean square of the logarithm), and the median of what is said over what is true.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.arrays import Floats
from models.profiling.demand_estimation import Tally, Window, tally
from models.profiling.half_hours import HALF_HOUR_S, Shapes, shapes
from research.contention.trace_fit import WINDOW_S, bitbrains, planetlab

PER = HALF_HOUR_S // WINDOW_S
DAY = 86_400 // WINDOW_S
LEAST = 1e-3  # per vCPU: who wants less sleeps
# what is kept: windows in full, and half hours before them
KEPT = {"21 days, the last one in full": (DAY, 21 * DAY), "24 hours, the last one in full": (12, DAY)}
WAYS = ("the windows alone", "half hours as equal windows", "half hours as shapes")


def taught(windows: Floats) -> Tally:
    """The tally of windows that follow each other."""
    return tally(Window((at + 1) * WINDOW_S, float(one)) for at, one in enumerate(windows))


def ways(windows: Floats, full: int) -> Sequence[Tally]:
    """What each of WAYS learns; all but the last `full` windows are known as half hours only."""
    before, after = windows[:-full], windows[-full:]
    means = before.reshape(-1, PER).mean(axis=1)
    equal = np.repeat(means, PER)
    seen = shapes({(at + 1) * WINDOW_S: float(one) for at, one in enumerate(after)}, WINDOW_S)
    return [
        taught(after),
        taught(np.concatenate([equal, after])),
        taught(np.concatenate([_shaped(means, seen), after])),
    ]


def _shaped(means: Floats, seen: Shapes) -> Floats:
    rows = [
        list(seen.broken_down((at + 1) * HALF_HOUR_S, HALF_HOUR_S, float(mean), 1.0).values())
        for at, mean in enumerate(means)
    ]
    return np.array(rows).ravel()


def _figures(known: Tally) -> Sequence[float]:
    return known.mean, math.sqrt(known.squares / max(known.n - 1, 1)), known.quantile(0.95)


def errors(trace: Floats, full: int, kept: int) -> Mapping[str, Sequence[tuple[float, float]]]:
    """By way, for mean, spread and p95: the factor and the median ratio, with how many cases there were as the last."""
    found: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    for windows in trace.T:
        known = windows[~np.isnan(windows)]
        for end in range(kept, len(known) + 1, kept):
            part = known[end - kept : end]
            if part.mean() < LEAST:
                continue
            true = _figures(taught(part))
            for name, one in zip(WAYS, ways(part, full), strict=True):
                pairs = zip(_figures(one), true, strict=True)
                found[name].append([math.log(max(said, LEAST / 10) / max(real, LEAST / 10)) for said, real in pairs])
    return {name: _summary(np.array(rows)) for name, rows in found.items() if rows}


def _summary(logs: Floats) -> Sequence[tuple[float, float]]:
    factors = np.exp(np.sqrt((logs**2).mean(axis=0))).tolist()
    medians = np.exp(np.median(logs, axis=0)).tolist()
    return [*zip(factors, medians, strict=True), (float(len(logs)), 0.0)]


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    sys.stdout.write("| trace | kept | way | cases | mean | spread | p95 |\n|---|---|---|---|---|---|---|\n")
    for trace, demand in (("Bitbrains", bitbrains(Path(arguments[0]))), ("PlanetLab", planetlab(Path(arguments[0])))):
        for title, (full, kept) in KEPT.items():
            for name, (*figures, (count, _)) in errors(demand, full, kept).items():
                cells = " | ".join(f"{factor:.2f} ({median:.2f})" for factor, median in figures)
                sys.stdout.write(f"| {trace} | {title} | {name} | {count:.0f} | {cells} |\n")


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit(__doc__))
