"""One instance on a page: where it is, its settings, demand over time, probes, and what is predicted of it there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from advisor.domain import (
    PAIR_VALUES,
    CloudNow,
    Effect,
    Histories,
    HostDetail,
    HostNow,
    Instance,
    InstanceObtained,
    ModelCard,
    ProbeReport,
    SlowingHere,
    VmScorePoint,
    WorkloadProfile,
    beside,
    settings_named,
)
from advisor.errors import NotFound
from advisor.service import InventoryService, TelemetryService
from api.html import picture
from api.html.render import page, to_page_of
from api.routes.common import CloudDep, InventoryDep, ModelDep, PathName, TelemetryDep
from api.web import chart, worth
from api.web.cloud import age, known_demand
from profiler.demand import RESOURCES, Demand, Resource
from profiler.observed import INCIDENTAL

# The newest results of probes on a host or an instance, as rows of a table.

MOST = 100  # results on one page


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One result: the probe with its far end or neighbour, its main value, its age, its circumstances."""

    probe: str
    far_end: str
    main: str
    value: str
    unit: str
    age: str
    time: str
    circumstances: str
    marks: tuple[str, ...]
    counts: str


def probe_rows(reports: Sequence[ProbeReport], now: datetime, model: ModelCard) -> list[ProbeRow]:
    """The results in the order of the probes' names; `model` is the one that answers."""
    needed = {str(name).partition(".")[0] for name in model.card.get("probes", ())}
    ordered = sorted(reports, key=lambda report: (report.result.probe, report.peer))
    return [_probe_row(report, now, needed) for report in ordered]


def _probe_row(report: ProbeReport, now: datetime, needed: Collection[str]) -> ProbeRow:
    result = report.result
    value = result.values[result.main]
    shown = {name: text for name, text in result.circumstances.items() if name not in INCIDENTAL - {"load"}}
    return ProbeRow(
        probe=result.probe,
        far_end=report.peer and f"{'beside' if result.probe in PAIR_VALUES else 'to'} {report.peer}",
        main=result.main.replace("_", " "),
        value=f"{value.value:.4g}",
        unit="" if value.unit == "1" else value.unit,
        age=picture.age_since(report.taken_at, now),
        time=report.taken_at.isoformat(timespec="seconds"),
        circumstances=", ".join(f"{name.replace('_', ' ')} {text}" for name, text in shown.items()),
        marks=result.marks,
        counts=f"No: {report.why_not_counted}"
        if report.why_not_counted
        else "Yes"
        if report.instance or result.probe in needed
        else "No: the model that answers was trained without it",
    )


# Demand over time → what a page shows of it: figures with units, and where they are known from; no HTML here.

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
        _demand_row(known[resource], expected.demand.get(resource), anomalous=anomalous)
        for resource in RESOURCES
        if resource in known
    ]


def _demand_row(demand: Demand, expected: Demand | None, *, anomalous: bool) -> DemandRow:
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


ALARMING = 0.1  # a share that is this far below the predicted one is reported
MOST_PAIRS = 10  # of neighbours that slow it, and of neighbours that it slows
Span = Literal["1h", "24h", "7d", "30d"]
SPANS: Mapping[Span, str] = {
    "1h": "the last hour",
    "24h": "the last day",
    "7d": "the last week",
    "30d": "the last thirty days",
}


def instance(
    request: Request,
    cloud: CloudDep,
    inventory: InventoryDep,
    telemetry: TelemetryDep,
    models: ModelDep,
    instance: PathName,
    since: Span = "24h",
) -> HTMLResponse | RedirectResponse:
    """One instance with what is predicted and measured of it; a name of one that is not its id leads there."""
    now = cloud.now()
    place = _place(now, instance)
    it, pending = (place[1], place[2]) if place else (inventory.find_instance(instance), False)
    if it.id != instance:
        return to_page_of(request, "instances", it.id)
    detail = cloud.host(place[0].host.id) if place else None
    histories = telemetry.histories(instance=instance, since=since)
    host_alarms = [alarm for alarm in cloud.alarms() if alarm.host == it.host]
    alarms = [alarm for alarm in host_alarms if alarm.instance == instance]
    probed = telemetry.probes(instance=instance, limit=MOST)
    slowing = _measured_slowing(telemetry, detail)
    pairs = beside(detail.slowing, slowing.found if slowing else ()) if detail else []
    score = cloud.scores().instances.get(instance)
    return page(
        request,
        "instance.html",
        it=it,
        pending=pending,
        score=score,
        score_level=worth.score_level(score.score) if score else "",
        score_words=worth.score_in_words(score) if score else "",
        known_demand=known_demand([detail.now]) if detail else "",
        learned=now.model_version != "analytic",
        row=_row(detail, it),
        age=age(detail.now, cloud.clock()) if detail else None,
        watched=slowing is not None and instance in slowing.watched,
        slowed=[pair for pair in pairs if pair.victim == instance][:MOST_PAIRS],
        slows=[pair for pair in pairs if pair.neighbour == instance][:MOST_PAIRS],
        wants=demand_rows(_stored(inventory, it), it, anomalous=bool(host_alarms)),
        settings=settings_named(it.settings),
        profile=_profile(inventory, it, place[0].host.platform if place else ""),
        histories=histories,
        probes=probe_rows(probed.items, cloud.clock(), models.get(now.model_version)),
        obtained=_obtained(telemetry, instance, since),
        alarms=alarms,
        alarm="" if alarms else _alarm(histories, detail, it),
        charts=(*_scores_over_time(cloud.vm_score_history(it.id, since=since)), *_charts(histories, detail, it)),
        spans=SPANS,
        since=since,
    )


def _scores_over_time(history: Sequence[VmScorePoint]) -> tuple[chart.Chart, ...]:
    drawn = chart.vm_scores(history)
    return (drawn,) if drawn else ()


def _charts(histories: Histories, detail: HostDetail | None, it: Instance) -> tuple[chart.Chart, ...]:
    """Its measured share of CPU time beside the predicted one, then the metrics."""
    share = _expected_share(detail, it)
    shares = chart.shares(histories, {it.id: 0}, {} if share is None else {it.id: share})
    return (*([shares] if shares else []), *chart.charts(histories, {it.id: 0}))


def _alarm(histories: Histories, detail: HostDetail | None, it: Instance) -> str:
    """A sentence where its measured share of CPU time is far below the predicted one; empty = it is not."""
    expected = _expected_share(detail, it)
    shares = (history for history in chart.share_histories(histories) if history.instance == it.id)
    measured = next((history.values for history in shares if history.host == it.host), None)
    if expected is None or measured is None:
        return ""
    share = sum(measured) / len(measured)
    if share > expected - ALARMING:
        return ""
    return (
        f"CPU delivered was {100 * share:.0f} % of demand in this time, and {100 * expected:.0f} % is predicted: it is "
        "held back by something that the inventory does not show, such as a cap of its own or other work on the host."
    )


def _measured_slowing(telemetry: TelemetryService, detail: HostDetail | None) -> SlowingHere | None:
    """Which instances slow which on its host, as measured in a day; None where it is on no stored host."""
    if detail is None:
        return None
    try:
        return telemetry.slowing(detail.now.host.id)
    except NotFound:
        return None


def _obtained(telemetry: TelemetryService, instance: str, since: str) -> InstanceObtained | None:
    """What it obtained; None for a new VM that an answer holds a place for and that is not stored yet."""
    try:
        return telemetry.obtained(instance, since=since)
    except NotFound:
        return None


def _effect(detail: HostDetail | None, it: Instance) -> Effect | None:
    return next((effect for effect in detail.effects if effect.instance == it.id), None) if detail else None


def _expected_share(detail: HostDetail | None, it: Instance) -> float | None:
    effect = _effect(detail, it)
    return effect.cpu.share if effect and effect.cpu else None


def _place(now: CloudNow, name: str) -> tuple[HostNow, Instance, bool] | None:
    """The host that it is on or that an answer holds for it, the instance as it runs there, and whether it is held."""
    return next(
        (
            (host, resident.instance, resident.pending)
            for host in now.hosts
            for resident in host.residents
            if resident.instance.id == name
        ),
        None,
    )


def _row(detail: HostDetail | None, it: Instance) -> picture.IntervalRow | None:
    effect = _effect(detail, it)
    return picture.row(effect, new_vm=False, limit=it.min_throughput_ratio) if effect else None


def _stored(inventory: InventoryService, it: Instance) -> Instance:
    """The instance as stored, without what answers add; as given, where an answer holds a place for a new VM."""
    try:
        return inventory.instance(it.id)
    except NotFound:
        return it


def _profile(inventory: InventoryService, it: Instance, platform: str) -> WorkloadProfile | None:
    """How its workload behaves alone: as measured on this platform, else on any."""
    if not it.workload:
        return None
    for measured_on in (platform, None):
        try:
            return inventory.workload(it.workload, platform=measured_on)
        except NotFound:
            continue
    return None
