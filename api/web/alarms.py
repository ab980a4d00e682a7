"""Anomalies on `/alarms`: instances whose measured CPU delivered is below the predicted range, and the likely cause."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import Anomaly, VmScore
from api.html.render import page
from api.routes.common import CloudDep
from api.web.cloud import PageNumber
from api.web.sorting import PARAMETER, Order, PageSlice, SortColumn, Value

AT_ONCE = 50  # alarms on a page
READS = (PARAMETER,)
COLUMNS: Mapping[str, SortColumn] = {
    "instance": SortColumn("Instance", figure=False, largest_first=False),
    "host": SortColumn("Host", figure=False, largest_first=False),
    "measured": SortColumn("CPU delivered", largest_first=False, help="Measured, run / (run + wait), since then"),
    "predicted": SortColumn("Predicted", largest_first=False),
    "score": SortColumn("Score", largest_first=False, help="Of the VM now, 100 = uncontended"),
    "since": SortColumn("Since (UTC)", figure=False),
    "cause": SortColumn("Likely cause", figure=False, largest_first=False),
}


def listing(request: Request, cloud: CloudDep, number: PageNumber = 1) -> HTMLResponse:
    """Alarms that stand, the newest first unless `sort` names another column."""
    order = Order.read(request.query_params, COLUMNS, "-since")
    every = cloud.alarms()
    of_instances = cloud.scores().instances if every else {}
    part = PageSlice.of(len(every), number, AT_ONCE, "/alarms", {PARAMETER: order.text})
    alarms = order.first(
        part.end, every, lambda alarm: _value(order.key, alarm, of_instances), lambda alarm: alarm.instance
    )
    return page(
        request,
        "alarms.html",
        alarms=part.cut(alarms),
        low=cloud.low_scores()[:AT_ONCE] if number == 1 else (),
        scores=of_instances,
        headings=order.headings(COLUMNS, "/alarms", {}),
        part=part,
    )


def _value(key: str, alarm: Anomaly, of_instances: Mapping[str, VmScore]) -> Value:
    values: Mapping[str, Value] = {
        "instance": alarm.instance,
        "host": alarm.host,
        "measured": alarm.observed,
        "predicted": alarm.expected,
        "score": of_instances[alarm.instance].score if alarm.instance in of_instances else None,
        "since": alarm.since.timestamp(),
        "cause": alarm.antagonist or alarm.cause,
    }
    return values[key]
