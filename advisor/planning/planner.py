"""The entry point for plans, used by the service and the command line.

A request is validated, limited to the time that is left, and answered by the prior if the model fails.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from advisor import deadline, work
from advisor.domain import Plan, PlanRequest
from advisor.planning.cpu_demand import Measured
from advisor.planning.plan_builder import Models, build_plan
from advisor.planning.plan_validation import check
from advisor.planning.rest import MeasuredMoves
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.prediction.cache import PredictionCache
from advisor.progress import Progress
from advisor.snapshot import ClusterSnapshot

SEARCHED = 0.85  # share of the time limit after which the wall clock stops the search; the rest is for its steps
PLANNED = 0.8  # share of the remaining time for the search; the rest is for the work before and after it


def plan(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    request: PlanRequest,
    *,
    now: datetime,
    fresh_s: float,
    generation: int | None = None,
    models: Models,
    measured: Measured = lambda _: {},
    moved: MeasuredMoves = tuple,
    progress: Progress | None = None,
) -> Plan:
    """Plan the whole cloud; InvalidInput names the field that contradicts the request or the cloud.

    `models` finds a model by version; `measured` returns the recent CPU usage of instances, `moved` the
    moves of the last week. The caller's deadline
    limits the time of the request.
    """
    check(snapshot, request)
    wall_s = SEARCHED * min(request.time_limit_s, max(deadline.left_s() * PLANNED, 0.01))
    with work.counted(chosen, wall_s) as counted:
        answer = active.ask(
            counted,
            lambda answering: build_plan(
                snapshot,
                replace(work.counting(answering), remembered=PredictionCache()),
                request,
                now=now,
                fresh_s=fresh_s,
                generation=generation,
                models=models,
                measured=measured,
                moved=moved,
                progress=progress,
            ),
        )
    return replace(answer, request=request)
