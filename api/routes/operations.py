"""Operations: whether the process is alive, whether it can answer, and its metrics."""

from __future__ import annotations

import logging

from fastapi import Request, Response

from advisor.errors import StorageUnavailable
from api.problems import Stopping
from api.routes.common import AccessDep, CloudDep, CountersDep
from api.schemas.base import Health, Readiness

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
