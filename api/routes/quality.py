"""How the predictions of a model held against what was observed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from api.routes.common import OutcomeDep, PathId
from api.schemas.quality import QualityOut

Window = Annotated[int | None, Query(ge=20, le=10_000, description="most rows per group; default: quality_window")]


def get(version: PathId, outcomes: OutcomeDep, window: Window = None) -> QualityOut:
    """Predicted against observed: coverage, error, drift per platform and workload, and the model beside others.

    From what was reported to `POST /v1/colocations` and `POST /v1/placements/{placement}/outcome`.
    """
    return QualityOut.of(outcomes.quality(version, window=window))
