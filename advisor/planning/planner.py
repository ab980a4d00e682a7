"""The question for a plan, as service and command line both put it.

It is checked, has its time, and is asked again of the prior where the model fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from advisor import deadline
from advisor.domain import Plan, PlanRequest, Usage
from advisor.planning.plan_builder import make
from advisor.planning.plan_validation import check
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.prediction.cache import PredictionCache
from advisor.snapshot import ClusterSnapshot

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)
PLANNED = 0.8  # of the time that a request has left: the rest is for what comes before and after the search


def plan(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    request: PlanRequest,
    *,
    now: datetime,
    fresh_s: float,
    generation: int | None = None,
    models: Callable[[str], ActivePredictor],
    measured: Callable[[Sequence[str]], Mapping[str, Usage]] = lambda _: {},
    progress: Progress | None = None,
) -> Plan:
    """What should become of the whole cloud; InvalidInput says what contradicts itself or the cloud.

    `models` finds a model by its version, `measured` the CPUs that instances used lately, where that was
    measured. The time that is left for whoever asks limits that of the request.
    """
    check(snapshot, request)
    most_s = max(deadline.left_s() * PLANNED, 0.01)
    timely = replace(request, time_limit_s=min(request.time_limit_s, most_s))
    made = active.ask(
        chosen,
        lambda answering: make(
            snapshot,
            replace(answering, remembered=PredictionCache()),
            timely,
            now=now,
            fresh_s=fresh_s,
            generation=generation,
            models=models,
            measured=measured,
            progress=progress,
        ),
    )
    return replace(made, request=request)
