"""Schemas of how models and VMs do: the registry of models, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field

from advisor.domain import (
    NO_SCORES,
    Activation,
    HostMemory,
    HostScore,
    ModelCard,
    ScorePoint,
    ScoreSummary,
    VmScore,
    VmScorePoint,
    codec,
)
from advisor.service import CloudService, ModelRegistry
from api.schemas.base import Flag, Id, Schema, examples

# Schemas of the registry of learned models.


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
    def asked(cls, models: ModelRegistry, version: str) -> ModelOut:
        """What the service answers of one model; NotFound where there is none."""
        return cls.of(models.get(version), models.history(version))

    @classmethod
    def of(cls, model: ModelCard, history: Sequence[Activation] | None = None) -> ModelOut:
        """Of a model; with its history where one model is asked for."""
        return cls(**codec.columns(model), history=None if history is None else tuple(history))


# Schemas of scores: one number from 0 to 100 for each VM, and histograms for hosts and the cloud.

MOST_LISTED = 100  # hosts, and VMs of the cloud


@dataclass(frozen=True, slots=True)
class VmScoresOut:
    """Scores of one VM."""

    instance: Annotated[str, Field(description="the VM")]
    time: Annotated[datetime, Field(description="as of when")]
    now: Annotated[VmScore | None, Field(description="its score with the factors; null where it does not run")]
    history: Annotated[
        tuple[VmScorePoint, ...],
        Field(description="windows of five minutes, the oldest first; of more than 300 the lowest of each equal step"),
    ]

    @classmethod
    def asked(cls, cloud: CloudService, instance: str, since: str) -> VmScoresOut:
        """What the service answers now of a VM by id, with a history that far back."""
        now, history = cloud.scores(), cloud.vm_score_history(instance, since=since)
        return cls(instance, now.time, now.instances.get(instance), history)


@dataclass(frozen=True, slots=True)
class ScoresOut:
    """Scores of the cloud."""

    time: Annotated[datetime, Field(description="as of when")]
    cloud: Annotated[ScoreSummary, Field(description="of all VMs that run")]
    hosts: Annotated[tuple[HostScore, ...], Field(description="hosts with VMs, the lowest mean first, at most 100")]
    lowest: Annotated[tuple[VmScore, ...], Field(description="VMs below 60, the lowest first, at most 100")]
    history: Annotated[
        tuple[ScorePoint, ...],
        Field(description="windows of the cloud, the oldest first; of more than 300 the lowest of each equal step"),
    ]

    @classmethod
    def asked(cls, cloud: CloudService, since: str) -> ScoresOut:
        """What the service answers now, with a history that far back."""
        now = cloud.scores()
        hosts = (HostScore(**codec.columns(of), host=host) for host, of in now.hosts_lowest_first[:MOST_LISTED])
        return cls(now.time, now.cloud, tuple(hosts), tuple(now.lowest(MOST_LISTED)), cloud.score_history(since=since))


@dataclass(frozen=True, slots=True)
class HostScoresOut(HostScore):
    """Scores of one host."""

    time: Annotated[datetime, Field(description="as of when")]
    memory: Annotated[HostMemory | None, Field(description="of the host; null = not measured in the last 15 minutes")]
    vms: Annotated[tuple[VmScore, ...], Field(description="its VMs, the lowest score first")]
    history: Annotated[tuple[ScorePoint, ...], Field(description="windows of the host, as those of the cloud")]

    @classmethod
    def asked(cls, cloud: CloudService, host: str, since: str) -> HostScoresOut:
        """What the service answers now of a host by id, with a history that far back."""
        now = cloud.scores()
        return cls(
            **codec.columns(now.hosts.get(host, NO_SCORES)),
            host=host,
            time=now.time,
            memory=cloud.memory().get(host),
            vms=tuple(now.on(host)),
            history=cloud.score_history(host, since=since),
        )
