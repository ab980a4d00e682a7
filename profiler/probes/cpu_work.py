"""Completion times of fixed floating-point work (L1): on a CPU of one's own they are almost constant."""

from __future__ import annotations

import argparse
import gc
import time
from array import array
from collections.abc import Sequence
from itertools import repeat
from statistics import median

from profiler.observed import HELD_BACK, Quantity
from profiler.pictures import Figure, cumulative, distribution, legend, line_at, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count, described, variation_percent

_WORK_MS = 500.0  # LATENCY section 3: most tests took roughly 500 ms
_SAMPLES = 20
_TRIAL = 200_000  # iterations of one trial of the calibration, 10 ms or so
_TRIALS = 5
_OUTLIER = 2.0  # times the median; the paper's outliers took over 1 s where 500 ms are usual
_HELD = 1.02  # of wall time over CPU time


class CpuWork:
    """Single-threaded and strictly CPU-bound: its time varies with the CPU that it gets."""

    name = "cpu-work"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        amount = parser.add_mutually_exclusive_group()
        amount.add_argument("--count", type=count(10**6), default=_SAMPLES, metavar="N", help=f"how often ({_SAMPLES})")
        amount.add_argument("--seconds", type=above(0, 10**7), metavar="S", help="measure for this long instead")
        parser.add_argument(
            "--every", type=above(0, 86_400), metavar="S",
            help="begin one every S seconds (default: one after another; the paper: 300, for days)",
        )  # fmt: skip
        work = parser.add_mutually_exclusive_group()
        work.add_argument(
            "--work-ms", type=above(0.1, 60_000), default=_WORK_MS, metavar="MS",
            help=f"choose the amount of work so that it takes this long ({_WORK_MS:g})",
        )  # fmt: skip
        work.add_argument(
            "--iterations", type=count(10**12), metavar="N",
            help="the amount of work, to repeat an earlier run (see its circumstances) or that of another machine",
        )  # fmt: skip

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        iterations = options.iterations or calibrate(options.work_ms)
        at_s, took_ms, cpu_ms = measure(iterations, options.count, options.seconds, options.every, progress)
        if not took_ms:
            raise ProbeError("stopped before the work was done once")
        values = times(took_ms)
        values["cpu_median"] = Quantity(median(cpu_ms), "ms")
        series = RawSeries({"at_s": at_s, "took_ms": took_ms, "cpu_ms": cpu_ms})
        held = sum(took_ms) / sum(cpu_ms)
        marks: tuple[str, ...] = ()
        if held > _HELD:
            marks = (f"{HELD_BACK} work ran {100 / held:.1f} % of its time:"
                     " processes beside it, interrupts, a cap or steal took the rest",)  # fmt: skip
        every = f"{options.every:g} s" if options.every else "back to back"
        return ProbeRun(values, "median", series, {"iterations": str(iterations), "every": every}, marks)

    def draw(self, run: ProbeRun) -> Figure:
        columns = {name: [float(cell or 0) for cell in column] for name, column in run.series.columns.items()}
        figure, (times_axes, shares) = new_figure(2)
        over_time(times_axes, columns["at_s"], columns["took_ms"], "ms", "Completion time")
        line_at(times_axes, run.values["median"].value, "median")
        times_axes.set_ylim(bottom=0)
        curves = [("wall", cumulative(columns["took_ms"])), ("CPU", cumulative(columns["cpu_ms"]))]
        distribution(shares, curves, "ms", "Distribution")
        legend(shares)
        return figure


def work(iterations: int) -> float:
    """The work: one multiplication and one addition each, dependent on each other, from 2 towards 1."""
    x = 2.0
    for _ in repeat(None, iterations):
        x = x * 0.999999 + 1e-6
    return x


def calibrate(work_ms: float) -> int:
    """Iterations that take this CPU `work_ms`: the fastest of some trials in CPU time, which neighbours blur little."""
    fastest = min(_cpu_ns(_TRIAL) for _ in range(_TRIALS))
    return max(1, round(_TRIAL * work_ms * 1e6 / fastest))


def measure(
    iterations: int, samples: int, seconds: float | None, every_s: float | None, progress: Progress
) -> tuple[array[float], array[float], array[float]]:
    """Do the work again and again: starts (s), completion times and CPU times (ms)."""
    rows: list[tuple[float, float, float]] = []
    first = time.perf_counter()
    progress.begin(samples if seconds is None else seconds, "samples" if seconds is None else "s")
    collected = gc.isenabled()
    gc.disable()
    try:
        with progress.interruptible():
            while not progress.stopped:
                now = time.perf_counter()
                due = now if every_s is None else max(now, first + len(rows) * every_s)
                if (len(rows) >= samples) if seconds is None else (due - first >= seconds):
                    break
                if due > now:
                    time.sleep(due - now)
                cpu, start = time.process_time_ns(), time.perf_counter()
                work(iterations)
                end, used = time.perf_counter(), time.process_time_ns() - cpu
                rows.append((start - first, (end - start) * 1e3, used / 1e6))
                progress.update(len(rows) if seconds is None else end - first)
    finally:
        if collected:
            gc.enable()
    at_s, took_ms, cpu_ms = (array("d", column) for column in zip(*rows, strict=True)) if rows else (array("d"),) * 3
    return at_s, took_ms, cpu_ms


def times(took_ms: Sequence[float]) -> dict[str, Quantity]:
    """Description of at least one completion time (ms), with variation and outliers."""
    values = described(took_ms, "ms")
    limit = _OUTLIER * values["median"].value
    outliers = sum(took > limit for took in took_ms)
    if (variation := variation_percent(took_ms)) is not None:
        values["variation"] = Quantity(variation, "%")
    values["outliers"] = Quantity(outliers, "1")
    values["outliers_share"] = Quantity(100 * outliers / len(took_ms), "%")
    values["samples"] = Quantity(len(took_ms), "1")
    return values


def _cpu_ns(iterations: int) -> int:
    before = time.process_time_ns()
    work(iterations)
    return time.process_time_ns() - before


PROBE = CpuWork()
