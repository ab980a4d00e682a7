"""Formats numbers and names of a dataset, the same for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from lab.show.noise import IntervalWidthCount
from lab.show.sweeps import NetworkModes
from lab.statistics import Description

KINDS = {"solo": "solo runs", "group": "runs together", "calibration": "calibrations"}
OUTCOMES = {
    "throughput": "throughput",
    "latency_mean_ms": "mean latency",
    "latency_p95_ms": "95th percentile of latency",
    "jitter_ms": "jitter",
    "timeouts_percent": "timeouts",
}
ROLES = {"its own": "its own", "the neighbour's": "the neighbour's", "both": "of both alike"}
_FACTORS = {
    "load": "offered load",
    "cap_percent": "CPU cap, % of a CPU",
    "weight": "CPU weight",
    "disk_limit_mb_s": "disk limit, MB/s",
}
_SIZES = {2: "pairs", 3: "triples", 4: "quadruples"}


def size(members: int) -> str:
    """The name of groups of this size."""
    return _SIZES.get(members, f"groups of {members}")


def factor(name: str) -> str:
    """A factor of a sweep, with its unit."""
    return _FACTORS[name]


def percent(share: float | None, digits: int = 0) -> str:
    """A share as a percentage; empty for what is unknown."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def number(value: float) -> str:
    """Four digits of a number, and never an exponent: 12,345 or 0.1234."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.4f}"


def bracket(description: Description) -> str:
    """The 95 % interval, with a space before it; empty when there is none."""
    lower, upper = description.lower, description.upper
    return "" if lower is None or upper is None else f" ({lower:.2f}-{upper:.2f})"


def narrow(counts: Sequence[IntervalWidthCount]) -> str:
    """One sentence on how many pair results are how narrow."""
    shares = ", ".join(f"{percent(count.share)} within ±{percent(count.within)}" for count in counts)
    unknown = counts[0].unknown
    rest = f"; {unknown} have one round and no interval" if unknown else ""
    return f"95 % intervals of T/B of {counts[0].results} pair results: {shares}{rest}"


def mode_outcomes(modes: Sequence[NetworkModes]) -> dict[str, str]:
    """The outcomes that any of these modes has, with their names for people."""
    known = {name for of_workload in modes for mode in of_workload.modes for name in mode.outcomes}
    return {name: words for name, words in OUTCOMES.items() if name in known}
