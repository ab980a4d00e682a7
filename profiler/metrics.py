"""The metrics: their names, units and kinds, and which of them are gauges.

The names of the eight follow the NEIGHBOR paper, section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["instance", "driver_domain", "host"]
Kind = Literal["rate", "percent", "ratio"]

PAGE_BYTES = 4096  # the grant-table page of Xen, which the paper counts; not this host's page size
SCOPES: tuple[Scope, ...] = ("instance", "driver_domain", "host")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that the agent measures.

    `unit` is the unit of the value, `scopes` the scopes in which it exists, `default_scope` the one that is meant
    when a metric is named without a scope, `gauge` what Prometheus calls it where that is not its name.
    """

    name: str
    unit: str
    scopes: tuple[Scope, ...]
    default_scope: Scope
    kind: Kind
    help: str
    gauge: str = ""


_BOTH: tuple[Scope, ...] = ("instance", "driver_domain")

EIGHT: tuple[Metric, ...] = (
    Metric("event", "1/s", ("host",), "host", "rate", "events among VMs in the event channel per second"),
    Metric("switch", "1/s", ("host",), "host", "rate", "switches of control among VMs per second"),
    Metric("pages_exchanged", "pages/s", _BOTH, "instance", "rate", "memory pages exchanged in the I/O channel"),
    Metric("execution", "1/s", _BOTH, "instance", "rate", "execution periods per second"),
    Metric("pages_per_execution", "pages/exe", _BOTH, "instance", "ratio", "pages exchanged / execution periods"),
    Metric("cpu", "%", _BOTH, "instance", "percent", "CPU utilisation, 100 = one whole CPU"),
    Metric("waiting", "%", _BOTH, "instance", "percent", "time runnable in the run queue and not running"),
    Metric("block", "%", _BOTH, "instance", "percent", "time blocked on I/O and not in the run queue"),
)

_ONE: tuple[Scope, ...] = ("instance",)
_HOST: tuple[Scope, ...] = ("host",)
_ONE_OR_HOST: tuple[Scope, ...] = ("instance", "host")

# A key without a scope means the instance's, for the host's too: its keys are `host.steal` and `host.busy`.
ADDITIONAL: tuple[Metric, ...] = (
    Metric("system", "%", _ONE, "instance", "percent", "the part of cpu inside the kernel"),
    Metric("throttled", "%", _ONE, "instance", "percent", "time that a cap held it back"),
    Metric("psi_cpu", "%", _ONE, "instance", "percent", "time in which some task stalled for a CPU"),
    Metric("psi_io", "%", _ONE, "instance", "percent", "time in which some task stalled for I/O"),
    Metric("psi_memory", "%", _ONE_OR_HOST, "instance", "percent", "time in which some task stalled for memory"),
    Metric("disk_wait", "%", _ONE, "instance", "percent", "time waited for disks, all tasks or requests added up"),
    Metric("disk_request_ms", "ms", _ONE, "instance", "ratio", "mean time of a disk request", "disk_request"),
    Metric("disk_queue_full", "1/s", _ONE, "instance", "rate", "times its disk backend took no more requests"),
    Metric("net_drops", "1/s", _ONE, "instance", "rate", "packets dropped at the host's ends of its interfaces"),
    Metric("net_backlog_bytes", "B", _ONE, "instance", "ratio", "bytes that wait in the queues there", "net_backlog"),
    Metric("net_mbit", "Mbit/s", _ONE, "instance", "rate", "network traffic, both directions", "network"),
    Metric("disk_mb_s", "MB/s", _ONE, "instance", "rate", "disk throughput, reads and writes", "disk"),
    Metric("disk_iops", "1/s", _ONE, "instance", "rate", "disk requests, reads and writes"),
    Metric("disk_flushes", "1/s", _ONE, "instance", "rate", "flushes: writes that it waited for until they were safe"),
    Metric("run_queue_p50_us", "us", _ONE, "instance", "ratio", "median wait for a CPU", "run_queue_p50"),
    Metric("run_queue_p99_us", "us", _ONE, "instance", "ratio", "99 % of waits for a CPU end within", "run_queue_p99"),
    Metric(
        "run_queue_p999_us", "us", _ONE, "instance", "ratio", "99.9 % of waits for a CPU end within", "run_queue_p999"
    ),
    Metric(
        "waited_for_host", "%", _ONE, "instance", "percent", "time for which it waited while the host's own work ran"
    ),
    Metric("ready_threads", "", _ONE, "instance", "ratio", "threads or vCPUs among which its ready time is divided"),
    Metric("cpi", "", _ONE, "instance", "ratio", "cycles per instruction"),
    Metric("llc_mb", "MB", _ONE, "instance", "ratio", "last-level cache that it occupies", "llc_occupancy"),
    Metric("mem_bw_mb_s", "MB/s", _ONE, "instance", "rate", "bytes moved to and from memory", "memory_bandwidth"),
    Metric("rss_mb", "MB", _ONE, "instance", "ratio", "resident memory", "resident_memory"),
    Metric("swap_mb", "MB", _ONE_OR_HOST, "instance", "ratio", "memory that is swapped out", "swapped_memory"),
    Metric("swap_in_mb_s", "MB/s", _ONE_OR_HOST, "instance", "rate", "memory that comes back from swap", "swap_in"),
    Metric("swap_out_mb_s", "MB/s", _HOST, "instance", "rate", "memory that goes to swap", "swap_out"),
    Metric("major_faults", "1/s", _ONE, "instance", "rate", "page faults that waited for a disk"),
    Metric("balloon_mb", "MB", _ONE, "instance", "ratio", "memory that its balloon took from it", "ballooned_memory"),
    Metric(
        "available_mb", "MB", _HOST, "instance", "ratio", "memory that can be used without swapping", "available_memory"
    ),
    Metric("ksm_mb", "MB", _HOST, "instance", "ratio", "memory saved by merged pages (KSM)", "merged_memory"),
    Metric("huge_mb", "MB", _HOST, "instance", "ratio", "memory in the pool of huge pages", "huge_pages"),
    Metric("huge_free_mb", "MB", _HOST, "instance", "ratio", "huge pages that nothing uses", "huge_pages_free"),
    Metric("steal", "%", _HOST, "instance", "percent", "time of the host's CPUs that its own hypervisor took"),
    Metric("busy", "%", _HOST, "instance", "percent", "time in which the host's CPUs were busy"),
)

# Outcomes of an instance beside its share of CPU time; more of any of them is worse.
OUTCOMES = (
    "throttled",
    "run_queue_p99_us",
    "psi_cpu",
    "psi_io",
    "psi_memory",
    "swap_in_mb_s",
    "disk_wait",
    "disk_request_ms",
    "disk_queue_full",
    "net_drops",
    "net_backlog_bytes",
    "cpi",
)

# With an instance's id behind it: time for which this one waited while that one ran, in %; pushed, but not a gauge.
WAITED_FOR = "waited_for:"

ADDITIONAL_UNITS: dict[str, str] = {metric.name: metric.unit for metric in ADDITIONAL}
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in EIGHT}


def scope_of(name: str) -> Scope:
    """Return the scope that a metric named without one has; names outside the eight belong to the instance."""
    metric = BY_NAME.get(name)
    return metric.default_scope if metric else "instance"


def split_key(key: str) -> tuple[Scope, str]:
    """Split `"driver_domain.cpu"` into scope and metric; a key without a scope gets the metric's default scope."""
    for scope in SCOPES:
        prefix = f"{scope}."
        if key.startswith(prefix) and len(key) > len(prefix):
            return scope, key[len(prefix) :]
    return scope_of(key), key


def join_key(scope: Scope, metric: str) -> str:
    """Inverse of `split_key`: the shortest key that names this metric in this scope."""
    return metric if scope_of(metric) == scope else f"{scope}.{metric}"


# Names and units of the gauges that the agent exports, for its exporter and for queries to Prometheus.
#
# Prometheus asks for base units in names (prometheus.io/docs/practices/naming): ratios, seconds and bytes.

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


# Which measured ratios to the value alone are faults of the measurement, by a rule that was stated before it was
# applied (decision 175).

Artefact = Literal["unsure", "above_alone"]
ANSWERED = "answers per question"
"""Unit of the throughput of an open loop in an on/off run: questions come at moments fixed in advance."""
ERRORS_ABOVE = 3.0
"""Standard errors above 1 from which on a ratio is an artefact: a neighbour gives nothing that was lacking alone."""
MOST_ERROR = 0.25
"""The largest standard error of a ratio that says something: T/B itself varies by 0.29 between measured rows."""


def artefact_of(ratio: float, error: float) -> Artefact | None:
    """What is wrong with T/B: it says nothing (`unsure`) or what cannot be (`above_alone`); None = nothing is wrong.

    `error` is its standard error.
    """
    if error > MOST_ERROR:
        return "unsure"
    return "above_alone" if ratio > 1 + ERRORS_ABOVE * error else None
