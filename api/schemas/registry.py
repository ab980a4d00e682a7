"""Schemas of the registry of learned models."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from advisor.domain import ModelCard
from api.schemas.base import Answer, Id, Schema, Time, examples


class ModelBody(Schema):
    """An artifact to register, by the name of its folder in the service's model directory."""

    model_config = examples({"version": "2026-01-31-1200-lab"})

    version: Id


class ModelOut(Answer):
    """A registered model: `status` is candidate, active or retired; `card` is the artifact's card."""

    version: str
    status: str
    created_at: Time
    origin: str
    card: dict[str, Any] = Field(description="figures, training data and settings, as written by the training")

    @classmethod
    def of(cls, model: ModelCard) -> ModelOut:
        """From the domain."""
        return cls(
            version=model.version,
            status=model.status,
            created_at=model.created_at,
            origin=model.origin,
            card=dict(model.card),
        )
