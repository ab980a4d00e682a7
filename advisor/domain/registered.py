"""Models as they are registered, and which of them answered when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A registered model: `status` is candidate, shadow, active or retired; `card` is the artifact's card.json.

    `verdict` is what the gate last said of it, as plain values of `models.evaluation.gate.GateVerdict`; None for the
    analytic model.
    """

    version: str
    status: str
    created_at: datetime
    origin: str
    card: Mapping[str, Any]
    verdict: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """One change of the model that answers: `before` and `after` are versions, "prior" for the analytic model alone;
    `cause` is activate, force (against the gate) or rollback."""

    at: datetime
    before: str
    after: str
    cause: str
