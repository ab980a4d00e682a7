"""Schemas of the registry of learned models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from advisor.domain import Activation, ModelCard
from api.schemas.base import AnswerBody, Flag, Id, Schema, Time, examples


class ModelBody(Schema):
    """An artifact to register, by the name of its folder in the service's model directory."""

    model_config = examples({"version": "2026-01-31-1200-lab"})

    version: Id = Field(description="name of the folder")


class ActivateBody(Schema):
    """How to activate a model; the body may be left out."""

    model_config = examples({"force": True})

    force: Flag = Field(default=False, description="activate it although the gate refuses it")


class ActivationOut(AnswerBody):
    """One change of the model that answers; `cause` is activate, force (against the gate) or rollback."""

    at: Time = Field(description="when")
    before: str = Field(description="the version that answered before; prior = the analytic model alone")
    after: str = Field(description="the version that answers since; prior = the analytic model alone")
    cause: str = Field(description="activate, force or rollback")


class ModelOut(AnswerBody):
    """A registered model: `status` is candidate, shadow, active or retired; `card` is the artifact's card."""

    version: str = Field(description="the model")
    status: str = Field(description="candidate, shadow, active or retired")
    created_at: Time = Field(description="when it was registered")
    origin: str = Field(description="where its training data came from")
    card: dict[str, Any] = Field(description="figures, training data and settings, as written by the training")
    verdict: dict[str, Any] | None = Field(
        default=None,
        description="what the gate last said: `passed`, `refusals` and `reasons` as sentences, `figures` by target and "
        "protocol, `against` which active model; null for the analytic model",
    )
    history: list[ActivationOut] | None = Field(
        default=None, description="when it began and ceased to answer, oldest first; where one model is asked for"
    )

    @classmethod
    def with_history(cls, model: ModelCard, history: Sequence[Activation]) -> ModelOut:
        """From the domain, with its part of the history."""
        activations = [ActivationOut.like(activation) for activation in history]
        return cls.like(model).model_copy(update={"history": activations})
