"""Operations: is the process alive, can it answer, and what does it count."""

from __future__ import annotations

from fastapi import Request, Response

from advisor.errors import StorageUnavailable
from api.problems import Stopping
from api.routes.common import AdvisorDep, TelemetryDep
from api.schemas.pages import Health, Readiness


async def healthz() -> Health:
    """The process is alive; asks nothing else, and waits for no thread."""
    return Health(status="ok")


def readyz(request: Request, advisor: AdvisorDep) -> Readiness:
    """The database answers and a model is loaded; 503 until then, and once the service was told to stop.

    It asks for no token, so that it tells no more than this where tokens are needed.
    """
    if getattr(request.app.state, "draining", False):
        raise Stopping("the service was told to stop; it finishes what it has begun")
    try:
        state = advisor.ready()
        advisor.tokens.refresh()
    except StorageUnavailable as error:
        if advisor.guarded:
            raise type(error)("the service cannot answer: its database cannot be used") from error
        raise
    return Readiness(status="ready", **({} if advisor.guarded else state))


def metrics(request: Request, telemetry: TelemetryDep) -> Response:
    """Metrics for Prometheus."""
    text, content_type = telemetry.exposition(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type})
