"""Models as they are registered, and which of them answered when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A registered model."""

    version: Annotated[str, Field(description="the model")]
    status: Annotated[str, Field(description="candidate, shadow, active or retired")]
    created_at: Annotated[datetime, Field(description="when it was registered")]
    origin: Annotated[str, Field(description="where its training data came from")]
    card: Annotated[
        Mapping[str, Any], Field(description="figures, training data and settings, as written by the training")
    ]
    verdict: Annotated[
        Mapping[str, Any] | None,
        Field(
            description="what the gate last said (`models.evaluation.gate.GateVerdict`): `passed`, `refusals` and "
            "`reasons` as sentences, `figures` by target and protocol, `against` which active model; null for the "
            "analytic model"
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Activation:
    """One change of the model that answers."""

    at: Annotated[datetime, Field(description="when")]
    before: Annotated[str, Field(description="the version that answered before; analytic = the analytic model alone")]
    after: Annotated[str, Field(description="the version that answers since; analytic = the analytic model alone")]
    cause: Annotated[str, Field(description="activate, force (against the gate) or rollback")]
