"""Estimates an instance's load: saturated at a known limit, or relative to the busiest phase with the same work.

A load is offered work as a fraction of what the instance can do alone (1.0 = saturated), as scenes take it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from models.data.profile import WorkloadProfile
from profiler.metrics import BY_NAME, split_key

Method = Literal["saturated", "relative", "busiest", "idle", "unknown"]
Sure = Literal["high", "fair", "low"]

SATURATED = 0.95  # of a limit: what the formulas resolve, and what a scheduler takes away from who is always ready
ALIKE = 1.6  # two phases are the same work where no demand grew this much more than another
MOST_GROWTH = 10.0  # a profile is not scaled up by more: a tenth of the load says little about the whole
# Below these an instance does nothing: values in each metric's unit under which differences mean nothing. Starting
# values, above what an idle container or guest was seen to do (a few wake-ups, ARP, log writes).
DEMANDS: Mapping[str, float] = {
    "cpu": 2.0,
    "pages_exchanged": 20.0,
    "net_mbit": 0.5,
    "disk_mb_s": 0.2,
    "mem_bw_mb_s": 50.0,
}
_KEPT = frozenset({"rss_mb", "pages_per_execution", "cpi"})  # do not grow with load
_UNSCALED = frozenset({  # say nothing about another load
    "waiting", "block", "throttled", "psi_cpu", "psi_io", "run_queue_p50_us", "run_queue_p99_us", "run_queue_p999_us",
    "waited_for_host", "disk_wait", "disk_request_ms", "disk_queue_full", "net_drops", "net_backlog_bytes", "llc_mb",
    "ready_threads", "psi_memory", "swap_mb", "swap_in_mb_s", "major_faults", "balloon_mb",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class InstanceLimits:
    """Known limits of an instance: `cpu_percent` (100 = one CPU), `net_mbit`, `disk_mb_s`; None = not known.

    `is_cap` says that the CPU limit is a cap below its vCPUs, so that waiting for the cap is not waiting for a CPU.
    """

    cpu_percent: float | None = None
    is_cap: bool = False
    net_mbit: float | None = None
    disk_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """A load with its range (None = not known), the method it was found by, how certain it is, and a sentence."""

    value: float | None
    lower: float | None
    upper: float | None
    method: Method
    sure: Sure
    text: str


@dataclass(frozen=True, slots=True)
class DemandLevel:
    """The demands of one phase by metric key; `solo` when no other instance was active."""

    metrics: Mapping[str, float]
    solo: bool


def use(level: DemandLevel, limits: InstanceLimits) -> dict[str, float]:
    """Utilisation of each known limit: `cpu`, `net`, `disk`; 1 = all of it. Without a cap, waiting counts as CPU."""
    used: dict[str, float] = {}
    cpu = level.metrics.get("cpu")
    if cpu is not None and limits.cpu_percent:
        # Who is runnable and not running wants more, except under a cap, which shows as waiting only on some hosts.
        wanted = cpu if limits.is_cap else cpu + level.metrics.get("waiting", 0.0)
        used["cpu"] = min(wanted / limits.cpu_percent, 1.0)
    for name, key, limit in (("net", "net_mbit", limits.net_mbit), ("disk", "disk_mb_s", limits.disk_mb_s)):
        value = level.metrics.get(key)
        if value is not None and limit:
            used[name] = min(value / limit, 1.0)
    return used


def load_levels(phases: Sequence[DemandLevel], limits: InstanceLimits) -> tuple[LoadLevel, ...]:
    """The load of each phase, in order."""
    return tuple(_load(number, phases, limits) for number in range(len(phases)))


def _load(number: int, phases: Sequence[DemandLevel], limits: InstanceLimits) -> LoadLevel:
    level = phases[number]
    used = use(level, limits)
    full = max(used, key=lambda name: used[name], default="")
    if not any(level.metrics.get(key, 0.0) > floor for key, floor in DEMANDS.items()):
        if not level.metrics.keys() & DEMANDS.keys():
            return LoadLevel(None, None, None, "unknown", "low", "nothing is known of what it asked for")
        return LoadLevel(0.0, 0.0, 0.0, "idle", "high", "it did next to nothing")
    if full and used[full] >= SATURATED:
        return LoadLevel(1.0, SATURATED, 1.0, "saturated", "high", f"it asked for all of its {full} limit")
    least = used.get(full, 0.0)
    alike = [at for at, other in enumerate(phases) if other.solo and is_alike(level, other)]
    if not alike:
        text = "no solo time of the same work was seen; it used at least this share of its limits"
        return LoadLevel(None, least, 1.0, "unknown", "low", text)
    busiest = max(alike, key=lambda at: (_size(phases[at]), -at))
    ratio = min(_ratio(level, phases[busiest]), 1.0)
    if max(use(phases[busiest], limits).values(), default=0.0) >= SATURATED:
        text = f"against phase {busiest + 1}, which was saturated with the same work"
        return LoadLevel(ratio, ratio, ratio, "relative", "fair", text)
    if busiest == number:
        text = "the busiest solo time of this work; saturation was never seen, so its load may be as low as the range"
        return LoadLevel(1.0, least, 1.0, "busiest", "low", text)
    text = f"against phase {busiest + 1}, the busiest solo time of this work, which was not saturated"
    return LoadLevel(ratio, min(least, ratio), ratio, "relative", "low", text)


def is_alike(level: DemandLevel, other: DemandLevel) -> bool:
    """Whether two phases do the same work at different loads: all demands differ by about the same factor."""
    ratios = []
    for key, floor in DEMANDS.items():
        first, second = level.metrics.get(key), other.metrics.get(key)
        if first is None or second is None or max(first, second) <= floor:
            continue
        ratios.append((first + floor / 10) / (second + floor / 10))
    return bool(ratios) and max(ratios) <= ALIKE * min(ratios)


def at_full_load(
    profile: WorkloadProfile, load: LoadLevel, limits: InstanceLimits, vcpus: float | None
) -> WorkloadProfile | None:
    """The profile scaled to load 1.0, origin `extrapolated`; None where that would be a guess.

    Rates and CPU grow in proportion, up to what the limits allow; ratios stay; block is what is left of the vCPUs;
    waiting and pressure are left out, because they do not grow in proportion. Needs a load against a saturated phase.
    """
    if load.method != "relative" or load.sure != "fair" or not load.value or 1 / load.value > MOST_GROWTH:
        return None
    growth = 1 / load.value
    metrics: dict[str, float] = {}
    for key, value in profile.metrics.items():
        _, name = split_key(key)
        if name in _KEPT or (name in BY_NAME and BY_NAME[name].kind == "ratio"):
            metrics[key] = value
        elif name not in _UNSCALED:
            metrics[key] = value * growth
    most = {"cpu": limits.cpu_percent, "net_mbit": limits.net_mbit, "disk_mb_s": limits.disk_mb_s}
    metrics |= {key: min(metrics[key], limit) for key, limit in most.items() if limit and key in metrics}
    if vcpus and "cpu" in metrics and "block" in profile.metrics:
        metrics["block"] = max(0.0, 100 * vcpus - metrics["cpu"])
    return WorkloadProfile(profile.name, metrics, profile.platform, "extrapolated")


def _size(level: DemandLevel) -> float:
    """The size of the demand, to find the busiest phase: CPU, or any demand where CPU is not known."""
    return level.metrics.get("cpu", sum(level.metrics.get(key, 0.0) / floor for key, floor in DEMANDS.items()))


def _ratio(level: DemandLevel, other: DemandLevel) -> float:
    """Geometric mean of the demands of one phase over those of another."""
    product, count = 1.0, 0
    for key, floor in DEMANDS.items():
        first, second = level.metrics.get(key), other.metrics.get(key)
        if first is not None and second is not None and second > floor:
            product, count = product * max(first, floor / 10) / second, count + 1
    return product ** (1 / count) if count else 1.0
