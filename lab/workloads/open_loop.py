"""Loads a server at a requested rate without coordinated omission (programs/open_loop.py) and reads its report."""

from __future__ import annotations

from typing import Literal

from lab.workloads.base import Site, WorkloadResult, program, report_of

_CONNECTIONS = 64  # no request waits for a free connection before the server has this many at work
_LEAST_RATE = 0.001  # a request every quarter of an hour


def at_rate(
    protocol: Literal["http", "redis"],
    site: Site,
    port: int,
    target: str,
    rate: float,
    seconds: float,
    bursts: int = 0,
) -> list[str]:
    """The command of the open-loop generator that requests `target` at a rate, evenly or in bursts a second."""
    per_second = f"{max(rate, _LEAST_RATE):.6f}"
    return program("open_loop", protocol, site.address, port, target, per_second, f"{seconds:g}", _CONNECTIONS, bursts)


def read_at_rate(output: str) -> WorkloadResult:
    """Replies per second within the time, and latency from the moment each request was due."""
    with report_of(output, "the load generator") as report:
        due, replies = float(report["due"]), float(report["replies"])
        further = {
            "latency_p50": (float(report["p50_ms"]), "ms"),
            "latency_p99": (float(report["p99_ms"]), "ms"),
            "latency_max": (float(report["max_ms"]), "ms"),
        }
        if report["lag_p95_ms"] is not None:  # how late the generator itself was; large = it could not make this load
            further["generator_lag_p95"] = (float(report["lag_p95_ms"]), "ms")
        return WorkloadResult(
            replies / float(report["seconds"]), float(report["mean_ms"]), float(report["p95_ms"]),
            timeouts_percent=100 * float(report["late"]) / due, further=further,
        )  # fmt: skip
