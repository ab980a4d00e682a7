"""Samples of made-up hosts (simulated), and a real series that was recorded while its phases were known."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from models.arrays import Floats
from models.profiling.profiles import InstanceProfile, profile_windows
from models.profiling.windows import align, by_series
from profiler.metrics import SCOPES
from profiler.observed import MetricSample

RECORDED = Path(__file__).parents[1] / "recordings" / "phases-container.csv"
BEGIN_S = 1_767_225_600.0  # 2026-01-01
PERIOD_S = 10.0


def cpu_samples(
    levels: Sequence[float], *, instance: str = "i1", noise: float = 0.03, seed: int = 1, host: str = "h1"
) -> list[MetricSample]:
    """An instance of one vCPU whose CPU has these levels, one per window; pages go with the CPU."""
    random = np.random.default_rng(seed)
    found = []
    for number, level in enumerate(levels):
        time_s = BEGIN_S + PERIOD_S * (number + 1)
        cpu = float(min(level * np.exp(noise * random.normal()), 100.0))
        values = {"cpu": cpu, "waiting": 0.0, "block": 100 - cpu, "execution": 20 * cpu, "pages_exchanged": 50 * cpu}
        found += [MetricSample(host, instance, "instance", name, value, time_s) for name, value in values.items()]
    return found


def host_samples(values: Mapping[tuple[str, str], float], windows: int, host: str = "h1") -> list[MetricSample]:
    """Constant metrics of a host, by scope and name."""
    return [
        MetricSample(host, None, scope, name, value, BEGIN_S + PERIOD_S * (number + 1))  # type: ignore[arg-type]
        for (scope, name), value in values.items()
        for number in range(windows)
    ]


def resembling(seed: int, windows: int, metrics: int = 1, correlation: float = 0.0) -> Floats:
    """Standard normal (windows, metrics), each window like the one before to the degree of `correlation`."""
    drawn, new = np.random.default_rng(seed).normal(size=(windows + 50, metrics)), np.sqrt(1 - correlation**2)
    made, _ = lfilter([new], [1.0, -correlation], drawn, axis=0, zi=(1 - new) * drawn[:1])
    return np.asarray(made[50:])


def profiled(samples: Sequence[MetricSample], instance: str = "i1") -> InstanceProfile:
    return profile_windows(align(by_series(samples), instance))


def recorded() -> tuple[list[MetricSample], list[str]]:
    """The recorded series as samples, and what the container was doing in each window."""
    samples, doing = [], []
    with RECORDED.open(encoding="ascii", newline="") as file:
        for row in csv.DictReader(file):
            time_s = float(row.pop("time_s"))
            doing.append(row.pop("doing"))
            for name, value in row.items():
                instance, scope, metric = name.split("/")
                known = next(one for one in SCOPES if one == scope)
                if value:
                    samples.append(MetricSample("vm", instance or None, known, metric, float(value), time_s))
    return samples, doing
