"""How many moments contention needs: error of the shares against the time that a prediction takes.

python -m research.contention.moment_counts
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from models.arrays import Floats
from models.physics import contention, cpu_contention
from research.contention.host_spec import HostOutcome, HostSpec
from research.contention.predicted import predict
from research.contention.records import read

HOSTS = Path(__file__).resolve().parents[2] / "datasets" / "simulated-contention" / "hosts.jsonl.gz"
CHOSEN = contention.MOMENT_BOUNDS
MANY = 255  # moments that stand for all of them
ROUNDS = 3
EVEN = (1, 3, 5, 7, 9, 15, 31)


def main() -> int:
    """Print a Markdown table: the moments chosen, and even ones, a part of the time each."""
    cpu_contention.compile_all()
    records = [record for record in read(HOSTS) if any(one.spread_cpus for one in record.spec.instances)]
    specs = [record.spec for record in records]
    choices = {"as chosen": CHOSEN, **{f"{count} even": even(count) for count in EVEN}}
    reference, full_short = shares(specs, even(MANY))
    simulated, _ = _of([record.outcome for record in records], specs)
    taken: dict[str, list[float]] = {name: [] for name in choices}
    found: dict[str, tuple[Floats, Floats]] = {}
    for _ in range(ROUNDS):  # in turn, so that whatever else runs slows down all
        for name, bounds in choices.items():
            with timed() as seconds:
                found[name] = shares(specs, bounds)
            taken[name].append(sum(seconds))
    one = statistics.median(taken["1 even"])
    out = sys.stdout.write
    out(f"{len(specs)} hosts with {len(reference)} instances; errors of the share against {MANY} moments, and MAE of\n")
    out("the share against the simulation; time of sharing CPUs as a multiple of that of one moment\n\n")
    out("| moments | mean error | 99 % of errors within | error of short, points | MAE, simulation | time |\n")
    out("|---|---|---|---|---|---|\n")
    for name, (share, short) in found.items():
        error = np.abs(share - reference)
        figures = f"{error.mean():.4f} | {np.quantile(error, 0.99):.3f} | {100 * np.abs(short - full_short).mean():.2f}"
        away = np.nanmean(np.abs(share - simulated))
        count = len(choices[name]) - 1
        out(f"| {name} ({count}) | {figures} | {away:.4f} | {statistics.median(taken[name]) / one:.1f} |\n")
    return 0


def even(count: int) -> tuple[float, ...]:
    """Bounds of moments that have the same part of the time each."""
    return tuple(np.linspace(0.0, 1.0, count + 1).tolist())


def shares(hosts: Sequence[HostSpec], bounds: tuple[float, ...]) -> tuple[Floats, Floats]:
    """The share of every instance and the part of the time in which it is short, averaged over these moments; (N,)."""
    with _moments(bounds):
        return _of(predict(hosts), hosts)


def _of(outcomes: Sequence[HostOutcome], hosts: Sequence[HostSpec]) -> tuple[Floats, Floats]:
    each = [outcome.instances[one.id] for host, outcome in zip(hosts, outcomes, strict=True) for one in host.instances]
    return np.array([one.share for one in each]), np.array([one.short for one in each])


@contextmanager
def timed() -> Iterator[list[float]]:
    """CPU time of each call of the compiled kernel while this is entered, in seconds; building scenes is left out."""
    kernel, seconds = cpu_contention.fastest, list[float]()

    def share_hosts(*arguments: Any) -> None:
        start = time.process_time()
        kernel(*arguments)
        seconds.append(time.process_time() - start)

    cpu_contention.fastest = share_hosts
    try:
        yield seconds
    finally:
        cpu_contention.fastest = kernel


@contextmanager
def _moments(bounds: tuple[float, ...]) -> Iterator[None]:
    """The product's moments, replaced for as long as this is entered."""
    contention.MOMENT_BOUNDS = bounds
    try:
        yield
    finally:
        contention.MOMENT_BOUNDS = CHOSEN


if __name__ == "__main__":
    sys.exit(main())
