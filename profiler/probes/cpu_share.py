"""The share of a CPU that a busy loop gets (E1): it reads the clock continuously and detects jumps."""

from __future__ import annotations

import argparse
import gc
import resource
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from statistics import median

from profiler.observed import HELD_BACK, SHORT_GAPS, Quantity
from profiler.pictures import Figure, histogram, line_at, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count, log_bins

_READS = 1_000_000  # EC2NET section III-A
_THRESHOLD_MS = 1.0  # section IV: a longer iteration is time scheduled off
_FLOOR_NS = 20_000  # what is kept of each run: iterations ten times the paper's normal one (3 µs) and longer
_CHUNK = 20_000  # reads between looks at the time that is left; 2 ms
_CALIBRATED = 20_000
_NOTICEABLE_PERCENT = 1.0
_NORMAL_NS = 3_000  # section IV: an iteration on a CPU of one's own takes less


@dataclass(frozen=True, slots=True)
class Jumps:
    """Iterations above the floor in a run of reads: starts (ns after the first read) and lengths."""

    starts_ns: Sequence[int]
    lengths_ns: Sequence[int]
    total_ns: int
    reads: int


class CpuShare:
    """Alone on a CPU it shows what the hypervisor leaves of it; beside other processes, what these leave."""

    name = "cpu-share"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        amount = parser.add_mutually_exclusive_group()
        amount.add_argument(
            "--count", type=count(10**10), default=_READS, metavar="N",
            help=f"clock reads ({_READS:,})",
        )  # fmt: skip
        amount.add_argument("--seconds", type=above(0, 86_400), metavar="S", help="read for this long instead")
        parser.add_argument(
            "--threshold-ms", type=above(0.02, 10_000), default=_THRESHOLD_MS, metavar="MS",
            help=f"an iteration that takes longer is time scheduled off ({_THRESHOLD_MS:g})",
        )  # fmt: skip

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        iteration_ns, resolution_ns = calibrate()
        used_before = _own_cpu_s()
        jumps = watch(options.count, options.seconds, progress)
        if not jumps.total_ns:
            raise ProbeError("stopped before anything was measured")
        used_s = _own_cpu_s() - used_before
        threshold_ns = round(options.threshold_ms * 1e6)
        values = share(jumps, threshold_ns)
        values["accounted_share"] = Quantity(min(100.0, 100 * used_s / (jumps.total_ns / 1e9)), "%")
        values["iteration_median"] = Quantity(iteration_ns, "ns")
        values["clock_resolution"] = Quantity(resolution_ns, "ns")
        series = RawSeries({
            "at_s": array("d", (start / 1e9 for start in jumps.starts_ns)),
            "iteration_ms": array("d", (length / 1e6 for length in jumps.lengths_ns)),
        })  # fmt: skip
        circumstances = {"threshold": f"{options.threshold_ms:g} ms", "clock": "perf_counter (CLOCK_MONOTONIC)"}
        return ProbeRun(values, "share", series, circumstances, _marks(values, iteration_ns))

    def draw(self, run: ProbeRun) -> Figure:
        figure, (times, bins) = new_figure(2)
        lengths = [float(cell) for cell in run.series.columns["iteration_ms"] if cell is not None]
        over_time(times, [float(cell or 0) for cell in run.series.columns["at_s"]], lengths, "ms", "Long iterations")
        histogram(bins, log_bins(lengths, _FLOOR_NS / 1e6), "ms", "Their lengths")
        line_at(bins, float(run.circumstances["threshold"].split()[0]), "scheduled off", vertical=True)
        return figure


def calibrate() -> tuple[float, float]:
    """Median time of an iteration, and the smallest step of the clock, in ns: the probe's overhead and resolution.

    ProbeError where the clock does not step at all meanwhile.
    """
    clock = time.perf_counter_ns
    stamps = array("q", bytes(8 * _CALIBRATED))
    for place in range(_CALIBRATED):
        stamps[place] = clock()
    steps = [later - earlier for earlier, later in pairwise(stamps)]
    if not any(steps):
        raise ProbeError(f"this machine's clock stood still for {_CALIBRATED:,} reads: it is too coarse for this probe")
    return float(median(steps)), float(min(step for step in steps if step > 0))


def watch(reads: int, seconds: float | None, progress: Progress) -> Jumps:
    """Read the clock `reads` times, or for some seconds, without pause; time for progress reports is left out.

    Iterations above the floor are kept instead of all stamps: a million of them would be 8 MB a second.
    """
    clock = time.perf_counter_ns
    jumps: list[tuple[int, int]] = []
    done = paused = 0
    collected = gc.isenabled()
    gc.disable()
    progress.begin(reads if seconds is None else seconds, "reads" if seconds is None else "s")
    first = previous = clock()
    try:
        while not progress.stopped:
            left = _CHUNK if seconds is not None else min(_CHUNK, reads - done)
            for _ in repeat(None, left):
                now = clock()
                if now - previous > _FLOOR_NS:
                    jumps.append((previous - first - paused, now - previous))
                previous = now
            done += left
            elapsed = (previous - first - paused) / 1e9
            if (done >= reads) if seconds is None else (elapsed >= seconds):
                break
            progress.update(done if seconds is None else elapsed)
            now = clock()
            if now - previous < _FLOOR_NS:  # nothing was reported: no time to leave out
                continue
            paused, previous = paused + now - previous, now
    finally:
        if collected:
            gc.enable()
    return Jumps([start for start, _ in jumps], [length for _, length in jumps], previous - first - paused, done)


def share(jumps: Jumps, threshold_ns: int) -> dict[str, Quantity]:
    """Share of the time outside gaps above the threshold, and numbers about the gaps.

    A gap counts whole: the normal iteration within it is under 3 µs. Source: EC2NET section IV.
    """
    gaps = [(start, length) for start, length in zip(jumps.starts_ns, jumps.lengths_ns, strict=True)
            if length > threshold_ns]  # fmt: skip
    lengths = [length / 1e6 for _, length in gaps]
    total_ms = jumps.total_ns / 1e6
    short_ms = (sum(jumps.lengths_ns) - sum(length for _, length in gaps)) / 1e6
    values = {
        "share": Quantity(100 * max(0.0, 1 - sum(lengths) / total_ms), "%"),
        "short_gaps_share": Quantity(100 * short_ms / total_ms, "%"),
        "gaps": Quantity(len(gaps), "1"),
        "gaps_per_s": Quantity(len(gaps) / total_ms * 1e3, "1/s"),
        "longest_gap": Quantity(max(lengths, default=0.0), "ms"),
        "iteration_mean": Quantity((jumps.total_ns - sum(jumps.lengths_ns)) / jumps.reads, "ns"),
        "watched": Quantity(total_ms / 1e3, "s"),
        "reads": Quantity(jumps.reads, "1"),
    }
    if gaps:
        values["median_gap"] = Quantity(median(lengths), "ms")
    if len(gaps) > 2:
        values["median_period"] = Quantity(median(later - at for (at, _), (later, _) in pairwise(gaps)) / 1e6, "ms")
    for low, high, number in log_bins(lengths, threshold_ns / 1e6, 3):
        values[f"gaps_{low:.3g}_to_{high:.3g}_ms"] = Quantity(number, "1")
    return values


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _marks(values: dict[str, Quantity], iteration_ns: float) -> tuple[str, ...]:
    marks = []
    held = 100 - values["accounted_share"].value
    if held > _NOTICEABLE_PERCENT:
        marks.append(
            f"{HELD_BACK} loop ran {100 - held:.1f} % of the time: processes beside it,"
            " interrupts, a cap or steal took the rest"
        )
    short = values["short_gaps_share"].value
    if short > _NOTICEABLE_PERCENT:
        marks.append(f"{short:.1f} {SHORT_GAPS} that the threshold does not count")
    if iteration_ns > _NORMAL_NS:
        marks.append(f"an iteration takes {iteration_ns / 1e3:.1f} us, over the 3 us that the paper calls normal")
    return tuple(marks)


PROBE = CpuShare()
