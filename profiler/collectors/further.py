"""Metrics beyond the eight that come with the same readings: kernel time, cap, pressure, bytes, memory."""

from __future__ import annotations

from profiler.collectors.differences import Deltas

# name → unit; `system` is the part of `cpu` inside the kernel, `psi_*` the share of time in which some task stalled
UNITS: dict[str, str] = {
    "system": "%",
    "throttled": "%",
    "psi_cpu": "%",
    "psi_io": "%",
    "net_mbit": "Mbit/s",
    "disk_mb_s": "MB/s",
    "rss_mb": "MB",
    "steal": "%",
    "busy": "%",
}
_PERCENT_OF_NS = {"system": "system_ns", "throttled": "throttled_ns"}
_PERCENT_OF_US = {"psi_cpu": "psi_cpu_us", "psi_io": "psi_io_us"}


def further(deltas: Deltas) -> dict[str, float]:
    """Whatever of the table this host counts for an instance."""
    values: dict[str, float] = {}
    for name, counter in _PERCENT_OF_NS.items():
        if counter in deltas.further:
            values[name] = deltas.further[counter] / 1e7 / deltas.seconds
    for name, counter in _PERCENT_OF_US.items():
        if counter in deltas.further:
            values[name] = deltas.further[counter] / 1e4 / deltas.seconds
    if deltas.net_bytes is not None:
        values["net_mbit"] = deltas.net_bytes * 8 / 1e6 / deltas.seconds
    if deltas.disk_bytes is not None:
        values["disk_mb_s"] = deltas.disk_bytes / 1e6 / deltas.seconds
    values.update(deltas.gauges)
    return values
