"""One instance on a page: where it is, its settings, what is predicted of it there, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from advisor.domain import (
    CloudNow,
    Effect,
    Histories,
    HostDetail,
    HostNow,
    Instance,
    InstanceObtained,
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
from api.web import chart, scores
from api.web.cloud import age, known_demand
from api.web.demand import demand_rows
from api.web.probes import MOST, probe_rows

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
        score_level=scores.level(score.score) if score else "",
        score_words=scores.in_words(score) if score else "",
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
