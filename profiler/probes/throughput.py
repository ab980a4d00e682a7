"""Evaluates recorded arrivals for tcp and udp: values, marks, raw series, and the chart of throughput over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler.collectors.windows import percentile
from profiler.observed import Quantity
from profiler.pictures import Figure, cumulative, distribution, line_at, new_figure, over_time
from profiler.probes.base import ProbeError, RawSeries
from profiler.probes.endpoint_cpu import EndpointCpu
from profiler.probes.framing import FramingError
from profiler.probes.throughput_buckets import Arrivals, quiet_spells

_FEW_BUCKETS = 20  # under which a 5th percentile is hardly more than the minimum


def unpacked(block: bytes) -> Arrivals:
    """Arrivals from the far end; ProbeError when it reports nonsense, or that less than one bucket came."""
    try:
        arrivals = Arrivals.unpack(block)
    except ValueError as error:
        raise ProbeError(f"the responder's report makes no sense: {error}") from None
    if not arrivals.sizes:
        raise ProbeError(f"only {arrivals.received} bytes arrived, less than one bucket of 256 KB")
    return arrivals


def values(arrivals: Arrivals, usual_bucket_ns: float | None = None, *, prefix: str = "") -> dict[str, Quantity]:
    """Throughput over all and per bucket, and quiet spells."""
    ordered = sorted(arrivals.rates_mbit())
    mean = arrivals.mean_mbit()
    quiet = quiet_spells(arrivals, usual_bucket_ns)
    numbers = {
        "throughput": Quantity(mean if mean is not None else 0.0, "Mb/s"),
        "median": Quantity(percentile(ordered, 0.5), "Mb/s"),
        "p5": Quantity(percentile(ordered, 0.05), "Mb/s"),
        "p95": Quantity(percentile(ordered, 0.95), "Mb/s"),
        "quiet_share": Quantity(quiet.share_percent, "%"),
        "quiet_spells": Quantity(quiet.count, "1"),
        "quiet_longest": Quantity(quiet.longest_ms, "ms"),
        "quiet_threshold": Quantity(quiet.threshold_ms, "ms"),
    }
    return {f"{prefix}{name}": value for name, value in numbers.items()}


def far_effort(answer: Mapping[str, Any]) -> EndpointCpu:
    """CPU use of the receiving end; ProbeError when its report makes no sense."""
    try:
        return EndpointCpu.read(answer)
    except FramingError as error:
        raise ProbeError(f"the responder's report makes no sense: {error}") from None


def few_marks(arrivals: Arrivals) -> list[str]:
    """Marks about how much was recorded."""
    marks = []
    if len(arrivals.sizes) < _FEW_BUCKETS:
        marks.append(f"only {len(arrivals.sizes)} buckets of 256 KB: the percentiles rest on little")
    if arrivals.gaps_left_out:
        marks.append(f"{arrivals.gaps_left_out} further gaps were not recorded")
    return marks


def series(arrivals: Arrivals) -> RawSeries:
    """One row per bucket."""
    return RawSeries({
        "end_s": arrivals.times_s(), "throughput_mbit_s": arrivals.rates_mbit(), "bytes": list(arrivals.sizes),
    })  # fmt: skip


def draw(run_series: RawSeries, title: str, link_mbit: float | None = None) -> Figure:
    """Throughput of each bucket over time, and their distribution (EC2NET Fig. 5)."""
    figure, (left, right) = new_figure(2)
    times = [float(at) for at in run_series.columns["end_s"] if isinstance(at, int | float)]
    rates = [float(rate) for rate in run_series.columns["throughput_mbit_s"] if isinstance(rate, int | float)]
    over_time(left, times, rates, "Mb/s per 256 KB", title)
    distribution(right, [("buckets", cumulative(rates))], "Mb/s", "Distribution")
    if link_mbit is not None:
        line_at(left, link_mbit, "paced rate")
    left.set_ylim(bottom=0)
    return figure
