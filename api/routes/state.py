"""The cloud as it stands: scores, alarms, the check-up, the audit log, and whether the service can answer."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request, Response

from advisor.domain import Alarms, AuditEntry, Checkup
from advisor.errors import StorageUnavailable
from api.problems import Stopping
from api.routes.common import AccessDep, CloudDep, CountersDep, Cursor, InventoryDep, Limit, PathId, QueryId
from api.routes.inventory import Since
from api.schemas.base import TEXT_PATTERN, Health, PageOut, Readiness
from api.schemas.quality import HostScoresOut, ScoresOut, VmScoresOut


def cloud_scores(cloud: CloudDep, since: Since = "24h") -> ScoresOut:
    """The scores of all VMs now, and of the cloud over time: 100 = uncontended.

    Measured where a window of the last 15 minutes is stored, else predicted.
    """
    return ScoresOut.asked(cloud, since)


def instance_scores(instance: PathId, cloud: CloudDep, inventory: InventoryDep, since: Since = "24h") -> VmScoresOut:
    """The score of one VM now with its factors, and over time; kept as long as samples are."""
    return VmScoresOut.asked(cloud, inventory.find_instance(instance).id, since)


def host_scores(host: PathId, cloud: CloudDep, inventory: InventoryDep, since: Since = "24h") -> HostScoresOut:
    """The scores of the VMs of one host now, the state of its memory, and its scores over time."""
    return HostScoresOut.asked(cloud, inventory.host(host).id, since)


MOST_LOW = 100  # VMs with low scores in one answer


def list_alarms(cloud: CloudDep) -> Alarms:
    """Which instances get less CPU time than predicted, who is likely behind it, and which have a low measured score.

    An alarm takes several windows in a row. The audit log also says when alarms are raised and when they end.
    """
    standing = cloud.alarms()
    scores = cloud.scores().instances if standing else {}
    return Alarms(
        tuple(
            replace(alarm, score=scores[alarm.instance].score) if alarm.instance in scores else alarm
            for alarm in standing
        ),
        cloud.low_scores()[:MOST_LOW],
    )


def checkup(cloud: CloudDep) -> Checkup:
    """What is wrong with the cloud and the service now, in sentences, as `cotenant doctor` says it."""
    return cloud.checkup()


QueryName = Annotated[
    str | None, Query(alias="object", pattern=TEXT_PATTERN, min_length=1, max_length=255, description="an id in it")
]


def list_audit(
    access: AccessDep, actor: QueryId = None, named: QueryName = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[AuditEntry]:
    """Who changed something or got an answer, newest first, in pages; all, or of one actor, or about one object."""
    page = access.audit(actor=actor, named=named, cursor=cursor, limit=limit)
    return PageOut(items=list(page.items), next_cursor=page.next_cursor)


log = logging.getLogger("cotenant.errors")


async def healthz() -> Health:
    """The process is alive; it looks at nothing else, and waits for no thread."""
    return Health(status="ok")


def readyz(request: Request, access: AccessDep, cloud: CloudDep) -> Readiness:
    """The database answers and a model is loaded; 503 until then, and once the service is stopping.

    It needs no token. So only the log says why the database cannot be used, and where other requests need tokens the
    answer leaves the state out.
    """
    if getattr(request.app.state, "draining", False):
        raise Stopping("the service is stopping; it finishes the requests under way")
    try:
        state = cloud.ready()
        access.tokens.refresh()
    except StorageUnavailable as error:
        log.warning("not ready: %s", error.message, extra={"request_id": getattr(request.state, "request_id", "")})
        raise type(error)("the service cannot answer: its database cannot be used; the log says why") from error
    return Readiness(status="ready", **({} if access.guarded else state))


def metrics(request: Request, counters: CountersDep) -> Response:
    """Metrics for Prometheus."""
    text, content_type = counters.exposition(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type})
