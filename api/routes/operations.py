"""Operations: is the process alive, can it answer, and what does it count."""

from __future__ import annotations

from fastapi import Request, Response

from api.routes.common import AdvisorDep, TelemetryDep
from api.schemas.pages import Health, Readiness


async def healthz() -> Health:
    """The process is alive; asks nothing else, and waits for no thread."""
    return Health(status="ok")


def readyz(advisor: AdvisorDep) -> Readiness:
    """The database answers and a model is loaded; 503 until then."""
    return Readiness(status="ready", **advisor.ready())


def metrics(request: Request, telemetry: TelemetryDep) -> Response:
    """Metrics for Prometheus."""
    text, content_type = telemetry.exposition(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type})
