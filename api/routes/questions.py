"""The questions: what would these do to each other, where should this go, where should all of these go."""

from __future__ import annotations

from fastapi import Response

from api.routes.common import AdvisorDep, PathId, SettingsDep, TelemetryDep, check_batch
from api.schemas.effects import SceneAnswer, SceneBody
from api.schemas.placements import OutcomeBody, PlacementAnswer, PlacementBody
from api.schemas.plans import PlanAnswer, PlanBody


def predict(body: SceneBody, advisor: AdvisorDep, telemetry: TelemetryDep) -> SceneAnswer:
    """What co-located instances would do to each other on a host."""
    answer = advisor.predict(body.to_domain())
    telemetry.predicted(answer)
    return SceneAnswer.of(answer)


def place(body: PlacementBody, advisor: AdvisorDep, telemetry: TelemetryDep, response: Response) -> PlacementAnswer:
    """Where should this instance go, so that nobody on that host suffers?"""
    answer = advisor.place(body.to_domain())
    telemetry.placed(answer)
    response.headers["Location"] = f"/v1/placements/{answer.id}"
    return PlacementAnswer.of(answer)


def placement(placement: PathId, advisor: AdvisorDep) -> PlacementAnswer:
    """The stored answer to a placement question."""
    return PlacementAnswer.of(advisor.recommendation(placement))


def outcome(placement: PathId, body: OutcomeBody, advisor: AdvisorDep) -> None:
    """Report what really happened after a placement."""
    advisor.record_outcome(placement, body.host, body.throughput_ratios)


def plan(body: PlanBody, advisor: AdvisorDep, settings: SettingsDep) -> PlanAnswer:
    """Where should all of these instances go, one after another?"""
    check_batch(body.instances, settings, "instances")
    return PlanAnswer.of(advisor.plan(body.to_domain(), objective=body.objective))
