"""The registry of learned models: list, show, register, activate, roll back, shadow."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from advisor.domain import Activation, QualityReport
from advisor.errors import InvalidInput
from api.routes.common import Cursor, Limit, ModelDep, OutcomeDep, PathId
from api.schemas.base import PageOut
from api.schemas.quality import ActivateBody, ModelBody, ModelOut


def listing(models: ModelDep, cursor: Cursor = None, limit: Limit = 100) -> PageOut[ModelOut]:
    """All registered models, newest first, and last the analytic model, in pages."""
    cards = models.listing()
    versions = [model.version for model in cards]
    if cursor is not None and cursor not in versions:
        raise InvalidInput("cursor was not handed out by this list; leave it out to start over", field="cursor")
    start = 0 if cursor is None else versions.index(cursor) + 1
    end = start + limit
    last = versions[end - 1] if end < len(versions) else None
    return PageOut(items=[ModelOut.of(model) for model in cards[start:end]], next_cursor=last)


def activations(models: ModelDep, cursor: Cursor = None, limit: Limit = 100) -> PageOut[Activation]:
    """Every change of the model that answers, oldest first, in pages."""
    changes = models.history()
    if cursor is not None and not (cursor.isdecimal() and len(cursor) < 10):
        raise InvalidInput("cursor was not handed out by this list; leave it out to start over", field="cursor")
    start = int(cursor or 0)
    end = start + limit
    return PageOut(items=list(changes[start:end]), next_cursor=str(end) if end < len(changes) else None)


def get(version: PathId, models: ModelDep) -> ModelOut:
    """One registered model with its card, the gate's verdict and when it answered."""
    return ModelOut.asked(models, version)


def register(body: ModelBody, models: ModelDep) -> ModelOut:
    """Register an artifact that lies in the service's model directory; it becomes a candidate, not yet active.

    The gate judges it against the analytic model and the active model.
    """
    return ModelOut.of(models.register_named(body.version))


def judge(version: PathId, models: ModelDep) -> ModelOut:
    """Put a model before the gate again, against the model that answers now; the verdict is kept."""
    return ModelOut.of(models.judge(version))


def activate(version: PathId, models: ModelDep, body: ActivateBody | None = None) -> ModelOut:
    """Make a registered model the one that answers; `analytic` stands for the analytic model alone.

    The gate judges it again, against the model that answers now; `force` overrules it.
    """
    return ModelOut.of(models.activate(version, force=body is not None and body.force))


def roll_back(models: ModelDep) -> ModelOut:
    """Activate the previous model again."""
    return ModelOut.of(models.roll_back())


def shadow(version: PathId, models: ModelDep) -> ModelOut:
    """Let a registered model be scored beside the active one, in place of a former one; `analytic` ends that."""
    return ModelOut.of(models.shadow(version))


# How the predictions of a model held against what was observed.

Last = Annotated[
    int | None, Query(ge=20, le=10_000, description="so many observations of each group; default: quality_window")
]


def quality(version: PathId, outcomes: OutcomeDep, last: Last = None) -> QualityReport:
    """Predicted against observed: coverage, error, drift per platform and workload, and the model beside others.

    From what was reported to `POST /v1/colocations` and `POST /v1/placements/{placement}/outcome`, and from windows
    that agents measured.
    """
    return outcomes.quality(version, window=last)
