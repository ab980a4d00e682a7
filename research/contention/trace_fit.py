"""What the PlanetLab and Bitbrains traces say of demand over time: `python -m research.contention.trace_fit DIR`.

Per trace: mean demand per vCPU, its spread between five-minute windows as a part of the mean, autocorrelation, the part
of the variance that all VMs have in common, and how well beta, gamma and lognormal distributions of a VM's own mean and
spread meet its windows. What is below these windows (bursts) no such trace shows.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

from models.arrays import Floats

PLANETLAB = "planetlab-20110303.csv.gz"
BITBRAINS = "bitbrains-small-trace.parquet"
BITBRAINS_META = "bitbrains-small-meta.parquet"
WINDOW_S = 300
LEAST_WINDOWS = 200
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, slots=True)
class Fit:
    """Of the VMs of a trace: quantiles (10, 25, 50, 75, 90 %) over VMs, and figures of all of them.

    `common`: mean correlation of pairs of VMs; `first_component`: share of the variance of standardised demand that the
    first principal component has, less what it has by chance (the same windows, shuffled for each VM);
    `distances`: median Kolmogorov-Smirnov distance of each distribution with the VM's own mean and spread.
    """

    name: str
    vms: int
    windows: int
    mean: Floats
    log_sigma: float
    relative_spread: Floats
    autocorrelation: Floats
    common: float
    first_component: float
    distances: Mapping[str, float]

    def __str__(self) -> str:
        def row(values: Floats) -> str:
            return " ".join(f"{value:.3f}" for value in values)

        distances = ", ".join(f"{name} {distance:.3f}" for name, distance in self.distances.items())
        return "\n".join(
            (
                f"{self.name}: {self.vms} VMs, {self.windows} windows of 5 min; quantiles 10 25 50 75 90 % of VMs",
                f"  mean demand per vCPU      {row(self.mean)} (lognormal, sigma {self.log_sigma:.2f})",
                f"  spread / mean             {row(self.relative_spread)}",
                f"  autocorrelation, 5 min    {row(self.autocorrelation)}",
                f"  common part of variance   {self.common:.3f} by pairs, {self.first_component:.3f} by components",
                f"  median KS distance        {distances}",
            )
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both fits; 1 with one sentence where a trace cannot be read."""
    parser = argparse.ArgumentParser(prog="research.contention.trace_fit", description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args(arguments).directory
    try:
        fits = [fit("PlanetLab 2011-03-03", planetlab(directory)), fit("Bitbrains, 50 VMs", bitbrains(directory))]
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the traces cannot be read: {error}\n")
        return 1
    sys.stdout.write("\n".join(map(str, fits)) + "\n")
    return 0


def planetlab(directory: Path) -> Floats:
    """(windows, VMs) demand per vCPU, 0 to 1."""
    with gzip.open(directory / PLANETLAB, "rt", encoding="utf-8") as file:
        rows = [[float(cell) / 100.0 for cell in line.rstrip("\n").split(",")[1:]] for line in file]
    return np.array(rows).T


def bitbrains(directory: Path) -> Floats:
    """(windows, VMs) demand per vCPU, 0 to 1; NaN where the trace has no sample. `cpu_capacity` is a VM's, in MHz."""
    meta = pq.read_table(directory / BITBRAINS_META, columns=["id", "cpu_capacity"]).to_pydict()
    capacity = dict(zip(meta["id"], meta["cpu_capacity"], strict=True))
    trace = pq.read_table(directory / BITBRAINS, columns=["id", "timestamp", "cpu_usage"])
    name = np.array(trace["id"].to_pylist())
    window = trace["timestamp"].to_numpy().astype("datetime64[s]").astype(np.int64) // WINDOW_S
    speed = np.array([capacity[one] or np.nan for one in name])
    names, column = np.unique(name, return_inverse=True)
    demand = np.full((int(window.max() - window.min()) + 1, names.size), np.nan)
    demand[window - window.min(), column] = trace["cpu_usage"].to_numpy() / speed
    return demand


def fit(name: str, demand: Floats) -> Fit:
    """The figures of a trace, (windows, VMs); of VMs that are there for `LEAST_WINDOWS` windows and not always idle."""
    mean, deviation = np.nanmean(demand, axis=0), np.nanstd(demand, axis=0)
    kept = (np.sum(~np.isnan(demand), axis=0) >= LEAST_WINDOWS) & (mean > 1e-4) & (deviation > 0)
    demand, mean, deviation = demand[:, kept], mean[kept], deviation[kept]
    scores = (demand - mean) / deviation
    return Fit(
        name,
        demand.shape[1],
        demand.shape[0],
        np.quantile(mean, QUANTILES),
        float(np.diff(np.log(np.quantile(mean, (0.25, 0.75))))[0] / np.diff(stats.norm.ppf((0.25, 0.75)))[0]),
        np.quantile(deviation / mean, QUANTILES),
        np.quantile(np.nanmean(scores[1:] * scores[:-1], axis=0), QUANTILES),
        _common(scores),
        _first_component(scores),
        _distances(demand, mean, deviation),
    )


def _common(scores: Floats) -> float:
    """Mean correlation over pairs that share at least `LEAST_WINDOWS` windows."""
    there = (~np.isnan(scores)).astype(np.float64)
    filled = np.nan_to_num(scores)
    together = there.T @ there
    pairs = np.triu(together >= LEAST_WINDOWS, k=1)
    return float(np.mean((filled.T @ filled)[pairs] / together[pairs]))


def _first_component(scores: Floats) -> float:
    rng = np.random.default_rng(1)
    filled = np.nan_to_num(scores)
    return _largest_part(filled) - _largest_part(rng.permuted(filled, axis=0))


def _largest_part(scores: Floats) -> float:
    power = np.linalg.svd(scores, compute_uv=False) ** 2
    return float(power[0] / power.sum())


def _distances(demand: Floats, mean: Floats, deviation: Floats) -> dict[str, float]:
    found: dict[str, list[float]] = {"beta": [], "gamma": [], "lognormal": []}
    for column, m, s in zip(demand.T, mean, deviation, strict=True):
        values = column[~np.isnan(column)]
        mass = m * (1.0 - m) / s**2 - 1.0
        sigma = np.sqrt(np.log1p((s / m) ** 2))
        laws = {
            "beta": stats.beta(mass * m, mass * (1.0 - m)),
            "gamma": stats.gamma((m / s) ** 2, scale=s**2 / m),
            "lognormal": stats.lognorm(sigma, scale=m * np.exp(-(sigma**2) / 2.0)),
        }
        for name, law in laws.items():
            found[name].append(float(stats.ks_1samp(values, law.cdf, mode="asymp").statistic))
    return {name: float(np.median(distances)) for name, distances in found.items()}


if __name__ == "__main__":
    sys.exit(main())
