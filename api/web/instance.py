"""One instance on a page: where it is, how it runs, what is predicted of it there, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import (
    CloudNow,
    Histories,
    HostDetail,
    HostNow,
    Instance,
    ObtainedHere,
    SlowingHere,
    WorkloadProfile,
)
from advisor.errors import NotFound
from advisor.service import InventoryService, TelemetryService
from api.html.render import page
from api.routes.common import CloudDep, InventoryDep, ModelDep, PathId, TelemetryDep
from api.schemas.slowing import beside
from api.web import chart, picture
from api.web.cloud import age
from api.web.demand import demand_rows
from api.web.probes import MOST, probe_rows

ALARMING = 0.1  # by so much less than is predicted of the share is an alarm
MOST_PAIRS = 10  # of those who slow it, and of those whom it slows
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
    instance: PathId,
    since: Span = "24h",
) -> HTMLResponse:
    """One instance with what is predicted and measured of it."""
    now = cloud.now()
    there = _there(now, instance)
    it, pending = (there[1], there[2]) if there else (inventory.instance(instance), False)
    detail = cloud.host(there[0].host.id) if there else None
    told = telemetry.histories(instance=instance, since=since)
    here = [one for one in cloud.alarms() if it.host == one.host]
    mine = [one for one in here if one.instance == instance]
    probed = telemetry.probes(instance=instance, limit=MOST)
    measured = _measured(telemetry, detail)
    pairs = beside(detail.slowing, measured.found if measured else ()) if detail else []
    return page(
        request,
        "instance.html",
        it=it,
        pending=pending,
        learned=now.model_version != "prior",
        row=_row(detail, it) if detail else None,
        age=age(detail.now, cloud.clock()) if detail else None,
        watched=measured is not None and instance in measured.watched,
        slowed=[pair for pair in pairs if pair.victim == instance][:MOST_PAIRS],
        slows=[pair for pair in pairs if pair.neighbour == instance][:MOST_PAIRS],
        wants=demand_rows(_stored(inventory, it), it, contradicted=bool(here)),
        settings=picture.settings_in_words(it.settings),
        profile=_profile(inventory, it, there[0].host.platform if there else ""),
        told=told,
        probes=probe_rows(probed.items, cloud.clock(), models.get(now.model_version)),
        obtained=_obtained(telemetry, instance, since),
        alarms=mine,
        alarm="" if mine else _alarm(told, detail, it),
        charts=_charts(told, detail, it),
        chart=chart,
        spans=SPANS,
        since=since,
        picture=picture,
    )


def _charts(told: Histories, detail: HostDetail | None, it: Instance) -> tuple[chart.Chart, ...]:
    """What it got beside what is predicted, then the metrics."""
    share = _expected(detail, it)
    first = chart.shares(told, {it.id: 0}, {} if share is None else {it.id: share})
    return (*([first] if first else []), *chart.charts(told, {it.id: 0}))


def _alarm(told: Histories, detail: HostDetail | None, it: Instance) -> str:
    """A sentence where it got much less of the CPU time that it wanted than is predicted; empty = it did not."""
    share, found = _expected(detail, it), chart.share_histories(told)
    mine = next((one for one in found if one.instance == it.id and it.host == one.host), None)
    if share is None or mine is None:
        return ""
    got = sum(mine.values) / len(mine.values)
    if got > share - ALARMING:
        return ""
    return (
        f"It got {got:.2f} of the CPU time that it wanted in this time, and {share:.2f} is predicted: something holds "
        "it back that is not known here, such as a cap of its own, or work on the host that nobody told of."
    )


def _measured(telemetry: TelemetryService, detail: HostDetail | None) -> SlowingHere | None:
    """Who slows whom on its host by the windows of a day; None where it is on no host that is stored."""
    if detail is None:
        return None
    try:
        return telemetry.slowing(detail.now.host.id)
    except NotFound:
        return None


def _obtained(telemetry: TelemetryService, instance: str, since: str) -> ObtainedHere | None:
    """What it obtained; None of a newcomer that an answer holds a place for and that is not stored yet."""
    try:
        return telemetry.obtained(instance, since=since)
    except NotFound:
        return None


def _expected(detail: HostDetail | None, it: Instance) -> float | None:
    mine = next((one for one in detail.effects if one.instance == it.id), None) if detail else None
    return mine.cpu.share if mine and mine.cpu else None


def _there(told: CloudNow, name: str) -> tuple[HostNow, Instance, bool] | None:
    """The host that it is on, or that an answer holds for it; as it runs there."""
    return next(
        (
            (host, resident.instance, resident.pending)
            for host in told.hosts
            for resident in host.residents
            if resident.instance.id == name
        ),
        None,
    )


def _row(detail: HostDetail, it: Instance) -> picture.IntervalRow | None:
    mine = next((effect for effect in detail.effects if effect.instance == it.id), None)
    return picture.row(mine, newcomer=False, limit=it.min_throughput_ratio) if mine else None


def _stored(inventory: InventoryService, it: Instance) -> Instance:
    """It as it is stored, without what answers add; a newcomer that an answer holds a place for is not stored yet."""
    try:
        return inventory.instance(it.id)
    except NotFound:
        return it


def _profile(inventory: InventoryService, it: Instance, platform: str) -> WorkloadProfile | None:
    """How its workload behaves alone: as measured on this platform, else as anywhere."""
    if not it.workload:
        return None
    for wanted in (platform, None):
        try:
            return inventory.workload(it.workload, platform=wanted)
        except NotFound:
            continue
    return None
