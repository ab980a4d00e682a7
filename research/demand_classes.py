"""What public traces teach of demand: the figures of `models.data.demand_classes`.

python -m research.demand_classes TRACE...

A trace is PlanetLab's CSV (one VM per line: name, then CPU in % of what it may use, every five minutes) or a parquet
table in OpenDC's form (`id`, `timestamp`, `cpu_count`, `cpu_usage` in MHz) with its `meta` table beside it
(`cpu_capacity`).
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from models.arrays import Floats

Series = Mapping[str, tuple[Floats, Floats]]  # VM → times (s) and CPU per vCPU (0-1)
WINDOW_S = 300.0
ENOUGH_TOGETHER = 100  # windows
NEXT_TO_NOTHING = 0.05  # of a vCPU
LEAST_MEAN = 0.001  # of a vCPU: whoever uses less sleeps, and its ratios say nothing


def read(path: Path) -> Series:
    """The trace as CPU used per vCPU."""
    return _planetlab(path) if path.name.endswith(".csv.gz") else _opendc(path)


def figures(series: Series) -> Mapping[str, float]:
    """The few numbers that a class is made of: medians over VMs, unless the name says otherwise."""
    busy = {vm: one for vm, one in series.items() if one[1].mean() >= LEAST_MEAN}
    means, deviations = (np.array([getattr(used, name)() for _, used in busy.values()]) for name in ("mean", "std"))
    return {
        "vms": float(len(series)),
        "awake": float(len(busy)),
        "windows": float(sum(used.size for _, used in busy.values())),
        "mean_per_vcpu": float(means.mean()),
        "median_per_vcpu": float(np.median(means)),
        "log_deviation": float(np.log(means).std()),
        "spread_over_mean": _median(deviations / means),
        "widest": _widest(means, deviations),
        "varies": float((deviations**2).sum() / (means * (1 - means)).sum()),
        "p50_over_mean": _median(np.quantile(used, 0.50) / used.mean() for _, used in busy.values()),
        "p95_over_mean": _median(np.quantile(used, 0.95) / used.mean() for _, used in busy.values()),
        "p99_over_mean": _median(np.quantile(used, 0.99) / used.mean() for _, used in busy.values()),
        "lag_one": _median(_lag_one(used) for _, used in busy.values()),
        "common": _common(busy),
        "day_over_mean": _median(_days(times, used) for times, used in busy.values()),
    }


def _median(values: Iterable[float]) -> float:
    known = np.array([*values], dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if known.size else float("nan")


def _lag_one(used: Floats) -> float:
    return float(np.corrcoef(used[:-1], used[1:])[0, 1]) if used.std() > 0 else float("nan")


def _days(times: Floats, used: Floats) -> float:
    """Deviation of the mean of one day over the mean of all; nan with less than three days."""
    days = np.unique(times // 86_400, return_inverse=True)[1]
    counts = np.bincount(days)
    means = np.bincount(days, weights=used)[counts >= 144] / counts[counts >= 144]
    return float(means.std() / used.mean()) if means.size >= 3 else float("nan")


def _widest(means: Floats, deviations: Floats) -> float:
    """Deviation over the mean, root of the mean square, of machines that use next to nothing."""
    few = means < NEXT_TO_NOTHING
    return float(np.sqrt(np.mean((deviations[few] / means[few]) ** 2))) if few.any() else float("nan")


def _common(busy: Series) -> float:
    """The mean correlation of two machines, over all pairs that have at least ENOUGH_TOGETHER windows together."""
    windows = sorted({time for times, _ in busy.values() for time in (times // WINDOW_S).tolist()})
    at = {window: column for column, window in enumerate(windows)}
    table = np.full((len(busy), len(windows)), np.nan)
    for row, (times, used) in zip(table, busy.values(), strict=True):
        deviation = used.std()
        if deviation > 0:
            row[[at[window] for window in (times // WINDOW_S).tolist()]] = (used - used.mean()) / deviation
    table = table[~np.isnan(table).all(axis=1)]
    known = (~np.isnan(table)).astype(np.float64)
    products, together = np.nan_to_num(table) @ np.nan_to_num(table).T, known @ known.T
    pairs = (together >= ENOUGH_TOGETHER) & ~np.eye(len(table), dtype=bool)
    return float((products[pairs] / together[pairs]).mean()) if pairs.any() else float("nan")


def _planetlab(path: Path) -> Series:
    found: dict[str, tuple[Floats, Floats]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for name, *values in csv.reader(file):
            used: Floats = np.array(values, dtype=np.float64) / 100
            times: Floats = np.arange(used.size, dtype=np.float64) * WINDOW_S
            found[name] = (times, used)
    return found


def _opendc(path: Path) -> Series:
    import pyarrow.parquet as pq

    meta = pq.read_table(path.with_name(path.name.replace("trace", "meta"))).to_pydict()
    capacity = dict(zip(meta["id"], meta["cpu_capacity"], strict=True))
    table = pq.read_table(path)
    ids = np.array(table.column("id").to_pylist())
    times = np.array(table.column("timestamp").cast("int64").to_pylist(), dtype=np.float64) / 1000
    used = table.column("cpu_usage").to_numpy()
    found = {}
    for name in np.unique(ids).tolist():
        here = ids == name
        if capacity.get(name, 0.0) > 0:
            found[name] = (times[here], np.clip(used[here] / capacity[name], 0.0, 1.0))
    return found


def main(arguments: Sequence[str]) -> None:
    """Print the figures of each trace."""
    for name in arguments:
        sys.stdout.write(f"{Path(name).name}\n")
        for figure, value in figures(read(Path(name))).items():
            sys.stdout.write(f"  {figure}: {value:.4g}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit(__doc__))
