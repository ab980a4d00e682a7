"""From windows of an instance to one profile per phase, with intervals, load, and whether the data suffices.

A profile is made of solo windows where there are enough of them. Otherwise it says so, contains no metrics that mix
several instances (whole driver domain, host), and its waiting time includes that caused by neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from models.arrays import Bools, Floats, Ints
from models.data.profile import WorkloadProfile
from models.figures import Figure, Known, utc_time
from models.profiling.phases import Phases, find_phases
from models.profiling.windows import LEAST_WINDOWS, InstanceWindows, MeanEstimate, PhaseWindows
from profiler.metrics import BY_NAME, split_key

# Estimates an instance's load: saturated at a known limit, or relative to the busiest phase with the same work.
#
# A load is offered work as a fraction of what the instance can do alone (1.0 = saturated), as scenes take it.

Method = Literal["saturated", "relative", "busiest", "idle", "unknown"]
Sure = Literal["high", "fair", "low"]

SATURATED = 0.95  # of a limit: what the formulas resolve, and what a scheduler takes away from one that is always ready
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
    """Offered load as a fraction of what the instance can do alone (1.0 = saturated), with the range it lies in."""

    value: Annotated[Figure | None, Field(description="the load, 1.0 = saturated")]
    lower: Annotated[Figure | None, Field(description="lowest that it may be")]
    upper: Annotated[Figure | None, Field(description="highest that it may be")]
    method: Annotated[Method, Field(description="saturated, relative, busiest, idle or unknown")]
    sure: Annotated[Sure, Field(description="high, fair or low")]
    text: Annotated[str, Field(description="the load as a sentence")]


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
        # One that is runnable and not running demands more, except under a cap, which shows as waiting only on some
        # hosts.
        demanded = cpu if limits.is_cap else cpu + level.metrics.get("waiting", 0.0)
        used["cpu"] = min(demanded / limits.cpu_percent, 1.0)
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


SOLO_CPU = 10.0  # % of one CPU that all others together may use in a solo window
LEAST_S = 60.0  # and this much solo time, however short the windows are
LEAST_EFFECTIVE = 6.0  # independent windows: fewer bracket no median with 95 % (order statistics)
MOST_DOUBT = 0.25  # half width of an interval over its value, above which a metric counts as uncertain
MOST_STEAL = 1.0  # %: above it the host itself was held back (the lab marks such runs as disturbed)
MOST_FOREIGN = 25.0  # % of one CPU that something on the host used beside instances and driver domain
# What must be certain, with the value under which it need not be (unit of the metric).
_CORE: Mapping[str, float] = {**DEMANDS, "execution": 50.0, "waiting": 5.0, "block": 5.0}
_ATTRIBUTED = "driver_domain.cpu"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time."""

    begin: Annotated[datetime, Field(description="when it begins")]
    end: Annotated[datetime, Field(description="when it ends")]


@dataclass(frozen=True, slots=True)
class PhaseProfile:
    """What the instance does in one of its phases; a phase may come back."""

    number: Annotated[int, Field(description="1 is the first to appear")]
    share: Annotated[Known, Field(description="of all windows, 0-1")]
    spans: Annotated[tuple[Span, ...], Field(description="when it was seen")]
    windows: Annotated[int, Field(description="its windows")]
    solo_windows: Annotated[int, Field(description="windows in which the instance was alone")]
    solo: Annotated[bool, Field(description="the metrics are made of solo windows only")]
    effective_windows: Annotated[Known, Field(description="independent windows that the least certain demand is worth")]
    load: Annotated[LoadLevel, Field(description="the load level")]
    metrics: Annotated[Mapping[str, MeanEstimate], Field(description="by name")]
    metrics_at_full_load: Annotated[
        Mapping[str, Known] | None,
        Field(description="extrapolated in proportion to load 1.0; null where it was reached or that would be a guess"),
    ]
    neighbours: Annotated[
        Mapping[str, Known],
        Field(description="mean CPU in % of the instances that were active beside it, in windows that were not solo"),
    ]
    enough: Annotated[bool, Field(description="good enough to be used as a workload's profile")]
    reasons: Annotated[tuple[str, ...], Field(description="why it is not enough")]
    remarks: Annotated[tuple[str, ...], Field(description="what else to know")]

    def profile(self, name: str, platform: str = "") -> WorkloadProfile:
        """The metrics as measured, at the load they were measured at, as a workload of this name."""
        values = {key: estimate.value for key, estimate in self.metrics.items()}
        return WorkloadProfile(name, values, platform, "measured")

    def at_full_load(self, name: str, platform: str = "") -> WorkloadProfile | None:
        """The same scaled to load 1.0, None where that would be a guess; see `at_full_load`."""
        metrics = self.metrics_at_full_load
        return None if metrics is None else WorkloadProfile(name, metrics, platform, "extrapolated")


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """All that is known about an instance's behaviour: its phases in order of first appearance, and their windows.

    `labels` (T,) has the phase of each window, from 0. `notes` are about the whole.
    """

    windows: InstanceWindows
    labels: Ints
    solo: Bools
    vcpus: float | None
    limits: InstanceLimits
    phases: tuple[PhaseProfile, ...]
    notes: tuple[str, ...]

    @property
    def instance(self) -> str:
        return self.windows.instance

    @property
    def host(self) -> str:
        return self.windows.host


def profile_windows(
    windows: InstanceWindows, limits: InstanceLimits | None = None, vcpus: float | None = None
) -> InstanceProfile:
    """Find the phases of aligned windows and make their profiles.

    `limits` are those that are known beside the vCPUs, which are measured; `vcpus` are taken where they cannot be.
    """
    vcpus = measured_vcpus(windows) or vcpus
    known = limits or InstanceLimits()
    if known.cpu_percent is None and vcpus is not None:
        known = replace(known, cpu_percent=100 * vcpus)
    phases = phases_of(windows)
    solo = np.asarray(windows.others_cpu <= SOLO_CPU)
    rows = [PhaseWindows.of(windows, phases, solo, number) for number in range(phases.count)]
    levels = [DemandLevel({key: one.value for key, one in part.estimates.items()}, part.solo) for part in rows]
    loads = load_levels(levels, known)
    found = tuple(_phase(windows, part, load, known, vcpus) for part, load in zip(rows, loads, strict=True))
    return InstanceProfile(windows, phases.labels, solo, vcpus, known, found, _notes(windows))


def phases_of(windows: InstanceWindows) -> Phases:
    """Phases by the instance's demands: CPU, pages, network, disk and memory bandwidth, as far as measured."""
    keys = [key for key in DEMANDS if key in windows.own]
    values = np.column_stack([windows.own[key] for key in keys]) if keys else np.zeros((len(windows), 0))
    return find_phases(values, np.array([DEMANDS[key] for key in keys]))


def measured_vcpus(windows: InstanceWindows) -> float | None:
    """vCPUs by the formula that cpu + waiting + block = 100 · vcpus in every window; None where they are not known."""
    parts = [windows.own.get(key) for key in ("cpu", "waiting", "block")]
    known = [part for part in parts if part is not None]
    whole = np.sum(known, axis=0) if len(known) == len(parts) else np.full(len(windows), np.nan)
    whole = whole[np.isfinite(whole)]
    vcpus = float(np.round(np.median(whole) / 100)) if len(whole) else 0.0
    return vcpus if vcpus >= 1 else None


def _phase(
    windows: InstanceWindows, rows: PhaseWindows, load: LoadLevel, limits: InstanceLimits, vcpus: float | None
) -> PhaseProfile:
    reasons, remarks = _reasons(windows, rows), _remarks(windows, rows)
    measured = WorkloadProfile(windows.instance, {key: one.value for key, one in rows.estimates.items()})
    scaled = at_full_load(measured, load, limits, vcpus)
    return PhaseProfile(
        number=rows.number + 1,
        share=len(rows.all) / len(windows),
        spans=tuple(Span(utc_time(begin), utc_time(end)) for begin, end in rows.spans),
        windows=len(rows.all),
        solo_windows=rows.solo_windows,
        solo=rows.solo,
        effective_windows=_effective(rows),
        load=load,
        metrics=rows.estimates,
        metrics_at_full_load=None if scaled is None else scaled.metrics,
        neighbours=_neighbours(windows, rows),
        enough=not reasons,
        reasons=reasons,
        remarks=remarks,
    )


def _effective(rows: PhaseWindows) -> float:
    demands = [rows.estimates[key] for key, floor in DEMANDS.items() if _counts(rows, key, floor)]
    return min((demand.effective_windows for demand in demands), default=float(len(rows.used)))


def _counts(rows: PhaseWindows, key: str, floor: float) -> bool:
    return key in rows.estimates and rows.estimates[key].value > floor


def _reasons(windows: InstanceWindows, rows: PhaseWindows) -> tuple[str, ...]:
    """Why a phase's profile should not be relied on."""
    reasons = []
    if not rows.solo:
        reasons.append(
            f"it was measured beside others: {rows.alone} solo windows inside the phase, {LEAST_WINDOWS} are needed"
        )
    elif len(rows.used) < LEAST_WINDOWS:
        reasons.append(f"{len(rows.used)} windows inside the phase, {LEAST_WINDOWS} are needed")
    seconds = len(rows.used) * windows.period_s
    if seconds < LEAST_S:
        reasons.append(f"{seconds:.0f} s inside the phase, {LEAST_S:.0f} s are needed")
    if "cpu" not in rows.estimates:
        reasons.append("its CPU was not measured")
    effective = _effective(rows)
    if effective < LEAST_EFFECTIVE:
        reasons.append(f"its windows resemble each other: worth {effective:.1f}, {LEAST_EFFECTIVE:.0f} are needed")
    doubtful = [key for key, floor in _CORE.items() if _counts(rows, key, floor) and _is_doubtful(rows.estimates[key])]
    if doubtful:
        reasons.append(f"too uncertain (± {100 * MOST_DOUBT:.0f} % and more): {', '.join(doubtful)}")
    return tuple(reasons)


def _is_doubtful(estimate: MeanEstimate) -> bool:
    return estimate.doubt is None or estimate.doubt > MOST_DOUBT


def _remarks(windows: InstanceWindows, rows: PhaseWindows) -> tuple[str, ...]:
    remarks = []
    steal = _mean(windows.around.get("host.steal"), rows.used)
    if steal is not None and steal > MOST_STEAL:
        remarks.append(f"the host itself was held back: {steal:.1f} % steal")
    foreign = _mean(_foreign(windows), rows.used)
    if foreign is not None and foreign > MOST_FOREIGN:
        remarks.append(
            f"{foreign:.0f} % of a CPU went to something on the host that is no instance, which may be why it waited"
        )
    return tuple(remarks)


def _foreign(windows: InstanceWindows) -> Floats | None:
    """CPU of the host outside of instances and driver domain, %, (T,); None where the host does not report it."""
    busy, cpu = windows.around.get("host.busy"), windows.own.get("cpu")
    if busy is None or cpu is None:
        return None
    driver = windows.around.get(_ATTRIBUTED, np.zeros(len(windows)))
    return np.maximum(busy - cpu - windows.others_cpu - np.nan_to_num(driver), 0.0)


def _mean(values: Floats | None, rows: Ints) -> float | None:
    known = values[rows][np.isfinite(values[rows])] if values is not None else np.zeros(0)
    return float(known.mean()) if len(known) else None


def _neighbours(windows: InstanceWindows, rows: PhaseWindows) -> dict[str, float]:
    """The active neighbours, busiest first, without those under a tenth of the solo limit."""
    crowded = rows.all[windows.others_cpu[rows.all] > SOLO_CPU]
    if len(crowded) == 0:
        return {}
    means = {name: float(cpu[crowded].mean()) for name, cpu in windows.others.items()}
    busiest = sorted(means, key=lambda name: (-means[name], name))
    return {name: means[name] for name in busiest if means[name] > SOLO_CPU / 10}


def _notes(windows: InstanceWindows) -> tuple[str, ...]:
    found = [f"{count} windows on host {host} are left out" for host, count in windows.elsewhere.items()]
    if windows.period_s > 0:
        span = (windows.times[-1] - windows.times[0]) / windows.period_s + 1
        missing = round(span) - len(windows)
        if missing > 0.02 * span:
            found.append(f"{missing} of {round(span)} windows are missing")
    return tuple(found)
