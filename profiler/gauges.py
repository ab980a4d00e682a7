"""Names and units of the gauges that the agent exports, for its exporter and for queries to Prometheus.

Prometheus wants base units in names (prometheus.io/docs/practices/naming): ratios, seconds and bytes.
"""

from __future__ import annotations

from profiler.metrics import ADDITIONAL, EIGHT

PREFIX = "cotenant_"
ATTRIBUTED = (
    "cotenant_attributed_"  # of an instance's part of the driver domain, so that no query sums it with the whole
)
# Unit of a metric → how the gauge's name ends, and the factor to that base unit.
_BASE = {
    "%": ("_ratio", 0.01),
    "1/s": ("_per_second", 1.0),
    "pages/s": ("_per_second", 1.0),
    "Mbit/s": ("_bytes_per_second", 125_000.0),
    "MB/s": ("_bytes_per_second", 1e6),
    "us": ("_seconds", 1e-6),
    "ms": ("_seconds", 1e-3),
    "B": ("_bytes", 1.0),
    "MB": ("_bytes", float(1 << 20)),  # the kernel's KB are KiB
}
_NAMES = {metric.name: metric.gauge for metric in (*EIGHT, *ADDITIONAL) if metric.gauge}


def gauge_of(metric: str, unit: str) -> tuple[str, float]:
    """Name of the metric's gauge without its prefix, and the factor from the metric's unit to the gauge's."""
    ending, factor = _BASE.get(unit, ("", 1.0))
    return f"{_NAMES.get(metric, metric)}{ending}", factor
