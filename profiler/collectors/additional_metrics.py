"""Metrics beyond the eight from the same readings: kernel time, cap, pressure, stalls, bytes, memory."""

from __future__ import annotations

from profiler.collectors.counter_deltas import Deltas, HostDeltas

# metric, its counter, and how much of the counter is one percent of a second
_PERCENTS = (
    ("system", "system_ns", 1e7),
    ("throttled", "throttled_ns", 1e7),
    ("psi_cpu", "psi_cpu_us", 1e4),
    ("psi_io", "psi_io_us", 1e4),
    ("psi_memory", "psi_memory_us", 1e4),
    ("disk_wait", "disk_wait_us", 1e4),
)
_RATES = ("disk_queue_full", "net_drops", "disk_flushes", "major_faults")  # counters of the same names, per second


def further(deltas: Deltas) -> dict[str, float]:
    """The additional metrics for which this host counts what is needed, by name."""
    values: dict[str, float] = {}
    seconds = deltas.seconds if deltas.further_seconds is None else deltas.further_seconds
    for name, counter, per_percent in _PERCENTS:
        if counter in deltas.further:
            values[name] = deltas.further[counter] / per_percent / seconds
    for name in _RATES:
        if name in deltas.further:
            values[name] = deltas.further[name] / seconds
    if "disk_flushes" in deltas.further:
        values["disk_iops"] = (deltas.further["disk_requests"] - deltas.further["disk_flushes"]) / seconds
    if requests := deltas.further.get("disk_requests", 0):
        values["disk_request_ms"] = deltas.further["disk_wait_us"] / 1e3 / requests
    if instructions := deltas.further.get("instructions", 0):
        values["cpi"] = deltas.further["cycles"] / instructions
    if "swap_in_bytes" in deltas.further:
        values["swap_in_mb_s"] = deltas.further["swap_in_bytes"] / 1e6 / seconds
    if "memory_bytes" in deltas.further:
        values["mem_bw_mb_s"] = deltas.further["memory_bytes"] / 1e6 / seconds
    if deltas.net_bytes is not None:
        values["net_mbit"] = deltas.net_bytes * 8 / 1e6 / deltas.seconds
    if deltas.disk_bytes is not None:
        values["disk_mb_s"] = deltas.disk_bytes / 1e6 / deltas.seconds
    if deltas.ready_threads is not None:
        values["ready_threads"] = deltas.ready_threads
    values.update(deltas.gauges)
    return values


def of_host(deltas: HostDeltas) -> dict[str, float]:
    """What the host shows of its memory, by name."""
    values = dict(deltas.gauges)
    seconds = deltas.seconds if deltas.further_seconds is None else deltas.further_seconds
    if "psi_memory_us" in deltas.further:
        values["psi_memory"] = deltas.further["psi_memory_us"] / 1e4 / seconds
    for way in ("in", "out"):
        if f"swap_{way}_bytes" in deltas.further:
            values[f"swap_{way}_mb_s"] = deltas.further[f"swap_{way}_bytes"] / 1e6 / seconds
    return values
