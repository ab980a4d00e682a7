"""How the predictions of a model held against what was observed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from advisor.domain import QualityReport
from api.routes.common import OutcomeDep, PathId

Last = Annotated[
    int | None, Query(ge=20, le=10_000, description="so many observations of each group; default: quality_window")
]


def get(version: PathId, outcomes: OutcomeDep, last: Last = None) -> QualityReport:
    """Predicted against observed: coverage, error, drift per platform and workload, and the model beside others.

    From what was reported to `POST /v1/colocations` and `POST /v1/placements/{placement}/outcome`, and from windows
    that agents measured.
    """
    return outcomes.quality(version, window=last)
