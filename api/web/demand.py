"""Demand over time → what a page shows of it: figures with units, and where they are known from; no HTML here."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.domain import Instance
from profiler.demand import RESOURCES, Demand, Resource

_NAMES: dict[Resource, tuple[str, str]] = {
    "cpu": ("CPU", "CPUs"),
    "net_mbit": ("Network", "Mbit/s"),
    "disk_mb_s": ("Disk", "MB/s"),
    "mem_bw_mb_s": ("Memory bandwidth", "MB/s"),
}
_UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class DemandRow:
    """One resource: texts ready to be shown."""

    name: str
    mean: str
    doubt: str
    p95: str
    p99: str
    common: str
    source: str
    counted: str = ""  # what answers count with, where that is not what was measured


def demand_rows(stored: Instance, expected: Instance, *, anomalous: bool = False) -> list[DemandRow]:
    """What is known of an instance's demand, in order of the resources: as stored, else as expected of its class.

    `expected` is the instance as answers count with it; `anomalous` = there is an alarm on its host.
    """
    known = {**expected.demand, **stored.demand}
    return [
        _row(known[resource], expected.demand.get(resource), anomalous=anomalous)
        for resource in RESOURCES
        if resource in known
    ]


def _row(demand: Demand, expected: Demand | None, *, anomalous: bool) -> DemandRow:
    name, unit = _NAMES[demand.resource]
    p95, p99 = (_UNKNOWN if level is None else f"{level:.3g} {unit}" for level in (demand.p95, demand.p99))
    return DemandRow(
        name=name,
        mean=f"{demand.mean:.3g} {unit}",
        doubt=f"± {demand.doubt:.2g}" if demand.doubt else _UNKNOWN,
        p95=p95,
        p99=p99,
        common=_UNKNOWN if demand.common is None else f"{100 * demand.common:.0f} %",
        source=_source(demand),
        counted="" if expected is None else _counted(demand, expected, anomalous=anomalous),
    )


def _counted(demand: Demand, expected: Demand, *, anomalous: bool) -> str:
    """Which other figure answers count with, and why; empty where it is the same."""
    _, unit = _NAMES[demand.resource]
    mean, other = f"{demand.mean:.3g}", f"{expected.mean:.3g}"
    if mean == other:
        return ""
    if anomalous and demand.resource == "cpu":
        return f"Answers count with {other} {unit}, as measured during the anomaly on its host."
    doubt = f" ± {expected.doubt:.2g}" if expected.doubt else ""
    hours = sum(count > 0 for count in demand.seen_hours)
    if hours == 24:  # of a day: each was seen, but not long enough
        seen = "no whole day was seen"
    elif hours:
        seen = f"only {hours} of the 24 hours of a day were seen"
    else:
        seen = "too few windows were seen"
    return f"Answers count with {other}{doubt} {unit}: {seen}, so instances like it count, too."


def _source(demand: Demand) -> str:
    if demand.origin in {"measured", "history"}:
        windows = "1 window" if demand.windows == 1 else f"{demand.windows:,.0f} windows"
        who = "measured" if demand.origin == "measured" else "from another system"
        return f"{windows} of {demand.window_s / 60:g} min, {who}"
    words = {"given": "given", "trace": "a trace", "class": "instances like it", "assumed": "assumed"}
    return words[demand.origin]
