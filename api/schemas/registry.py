"""Schemas of the registry of learned models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from advisor.domain import Activation, ModelCard, codec
from api.schemas.base import Flag, Id, Schema, examples


class ModelBody(Schema):
    """An artifact to register, by the name of its folder in the service's model directory."""

    model_config = examples({"version": "2026-01-31-1200-lab"})

    version: Id = Field(description="name of the folder")


class ActivateBody(Schema):
    """How to activate a model; the body may be left out."""

    model_config = examples({"force": True})

    force: Flag = Field(default=False, description="activate it although the gate refuses it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOut(ModelCard):
    """A registered model with its part of the history."""

    history: Annotated[
        tuple[Activation, ...] | None,
        Field(description="when it began and ceased to answer, oldest first; null in listings"),
    ] = None

    @classmethod
    def of(cls, model: ModelCard, history: Sequence[Activation] | None = None) -> ModelOut:
        """Of a model; with its history where one model is asked for."""
        return cls(**codec.columns(model), history=None if history is None else tuple(history))
