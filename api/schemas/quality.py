"""Schemas of how models and VMs do: quality of predictions, the registry of models, scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field

from advisor.domain import (
    NO_SCORES,
    SCORE_BUCKETS,
    Activation,
    CloudScores,
    HostMemory,
    ModelCard,
    ModelQuality,
    ScorePoint,
    ScoreSummary,
    VmScore,
    VmScorePoint,
    codec,
)
from advisor.domain.figures import Figure, Known, Tenths
from advisor.service import CloudService, ModelRegistry
from api.schemas.base import AnswerBody, Flag, Id, Schema, Time, examples


class FiguresOut(AnswerBody):
    """What the rows of a group say; errors are of the ratio, `bias` is observed minus expected."""

    rows: int = Field(description="observed rows")
    scenes: int = Field(description="measured scenes, whose instances err together; they count, not rows")
    since: Time = Field(description="time of the first")
    until: Time = Field(description="time of the last")
    coverage: Known = Field(description="share of observations inside the model's own 90 % interval")
    coverage_low: Known = Field(description="lower end of the coverage's own 90 % interval")
    coverage_high: Known = Field(description="upper end of that interval")
    error: Known = Field(description="mean |observed - expected|")
    bias: Known = Field(description="mean of observed minus expected")
    outside: Known = Field(description="share that lay outside the training data")


class AlarmOut(AnswerBody):
    """Something got worse, since when, and how far."""

    kind: str = Field(description="shift: observations moved away from what is expected; coverage: intervals fail")
    detectors: list[str] = Field(description="who noticed: adwin, page_hinkley, binomial")
    since: Time = Field(description="when it began")
    detected: Time = Field(description="when it was noticed")
    scenes: int = Field(description="scenes seen since then")
    before: Known = Field(description="mean residual in half widths of the interval, or share covered")
    after: Known = Field(description="the same since then")
    off: Known = Field(description="mean observed over expected since then")


class GroupOut(AnswerBody):
    """The rows of one role and target: all of them, one platform's or one workload's."""

    role: str = Field(description="active, shadow or baseline (the analytic model beside a learned model)")
    target: str = Field(description="throughput, latency or jitter")
    scope: str = Field(description="all, platform or workload")
    name: str = Field(description="of the platform or workload")
    figures: FiguresOut = Field(description="its figures")
    alarms: list[AlarmOut] = Field(description="alarms that are raised")
    widening: Figure | None = Field(description="by which intervals on this platform should be widened; 1 = not at all")


class ComparisonOut(AnswerBody):
    """The model beside another one on the same measurements; `difference` below 0 is in its favour."""

    other: str = Field(description="the other model")
    role: str = Field(description="shadow or baseline")
    target: str = Field(description="throughput, latency or jitter")
    rows: int = Field(description="observed rows")
    scenes: int = Field(description="measured scenes")
    difference: Known = Field(description="mean error of this model minus that of the other")
    lower: Figure | None = Field(description="95 % bootstrap interval over scenes; null for a single scene")
    upper: Figure | None = Field(description="upper end of its 95 % interval")
    text: str = Field(description="the comparison as a sentence")


class WindowGroupOut(AnswerBody):
    """How predictions of the share of CPU time that instances get, run / (run + wait), held in windows that agents
    measured on a sample of hosts."""

    platform: str = Field(description="platform of the hosts, or their kind where they have none")
    level: str = Field(
        description="what was known of the instances before the window (see docs/answers.md); empty = all"
    )
    question: str = Field(
        description="forecast: as predicted before the window; window: as predicted with the demand measured in it"
    )
    contended: bool = Field(description="a share below 0.98 was predicted or observed; of the others little is learned")
    rows: int = Field(description="instances in windows")
    scenes: int = Field(description="windows of one host, whose instances err together; older ones count less")
    since: Time = Field(description="when the first ended")
    until: Time = Field(description="when the last ended")
    coverage: Known = Field(description="share inside the model's own 90 % interval")
    coverage_low: Known = Field(description="lower end of the coverage's own 90 % interval")
    coverage_high: Known = Field(description="upper end of that interval")
    error: Known = Field(description="mean |observed - expected|")
    bias: Known = Field(description="mean of observed minus expected")
    scaled: Known = Field(description="by which half widths must be multiplied to hold 90 %; 4 = that or more")
    widening: Figure | None = Field(description="by which intervals are widened for it; null = too few windows")
    short: bool = Field(description="its intervals are too narrow beyond chance")


class QualityOut(AnswerBody):
    """How a model's predictions held of late: `status` is no_data, too_few, ok or drift, `verdict` says it in words."""

    version: str = Field(description="the model")
    last: int = Field(description="most observations of a group that are looked at")
    status: str = Field(description="no_data, too_few, ok or drift")
    verdict: list[str] = Field(description="what was found and what to do, as sentences")
    groups: list[GroupOut] = Field(description="figures by role, target and scope")
    beside: list[ComparisonOut] = Field(description="the model beside others")
    windows: list[WindowGroupOut] = Field(description="how answers held in windows that agents measured")

    @classmethod
    def of(cls, quality: ModelQuality) -> QualityOut:
        """From the domain."""
        fields = asdict(quality)
        return cls.model_validate({"last": fields.pop("window"), **fields})


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


class ScoresIn(AnswerBody):
    """Scores of several VMs."""

    instances: int = Field(description="how many VMs run")
    measured: int = Field(description="of how many the CPU time was measured in the last window; the others: predicted")
    mean: Tenths | None = Field(description="mean score, 0-100; null where no VM runs")
    lowest: Tenths | None = Field(description="lowest score; null where no VM runs")
    buckets: dict[str, int] = Field(description="how many VMs have a score in each fifth; 80-100 holds 100, too")

    @classmethod
    def fields_of(cls, of: ScoreSummary) -> dict[str, object]:
        """The values of these fields."""
        return {
            "instances": of.instances,
            "measured": of.measured,
            "mean": of.mean,
            "lowest": of.lowest,
            "buckets": dict(zip(SCORE_BUCKETS, of.counts, strict=True)),
        }


class HostScoreOut(ScoresIn):
    """Scores of the VMs of one host."""

    host: str = Field(description="the host")


class ScorePointOut(ScoresIn):
    """Scores in one window of five minutes."""

    time: Time = Field(description="when the window ended")


class VmScoresOut(AnswerBody):
    """Scores of one VM."""

    instance: str = Field(description="the VM")
    time: Time = Field(description="as of when")
    now: VmScore | None = Field(description="its score with the factors; null where it does not run")
    history: list[VmScorePoint] = Field(
        description="windows of five minutes, the oldest first; of more than 300 the lowest of each equal step"
    )

    @classmethod
    def asked(cls, cloud: CloudService, instance: str, since: str) -> VmScoresOut:
        """What the service answers now of a VM by id, with a history that far back."""
        now, history = cloud.scores(), list(cloud.vm_score_history(instance, since=since))
        return cls(instance=instance, time=now.time, now=now.instances.get(instance), history=history)


class ScoresOut(AnswerBody):
    """Scores of the cloud."""

    time: Time = Field(description="as of when")
    cloud: ScoresIn = Field(description="of all VMs that run")
    hosts: list[HostScoreOut] = Field(description="hosts with VMs, the lowest mean first, at most 100")
    lowest: list[VmScore] = Field(description="VMs below 60, the lowest first, at most 100")
    history: list[ScorePointOut] = Field(
        description="windows of the cloud, the oldest first; of more than 300 the lowest of each equal step"
    )

    @classmethod
    def asked(cls, cloud: CloudService, since: str) -> ScoresOut:
        """What the service answers now, with a history that far back."""
        return cls.of(cloud.scores(), cloud.score_history(since=since))

    @classmethod
    def of(cls, now: CloudScores, history: Iterable[ScorePoint]) -> ScoresOut:
        """From the domain."""
        return cls.model_validate(
            {
                "time": now.time,
                "cloud": ScoresIn.fields_of(now.cloud),
                "hosts": [
                    {"host": host, **ScoresIn.fields_of(of)} for host, of in now.hosts_lowest_first[:MOST_LISTED]
                ],
                "lowest": [*now.lowest(MOST_LISTED)],
                "history": points(history),
            }
        )


class HostScoresOut(ScoresIn):
    """Scores of one host."""

    host: str = Field(description="the host")
    time: Time = Field(description="as of when")
    memory: HostMemory | None = Field(description="of the host; null = not measured in the last 15 minutes")
    vms: list[VmScore] = Field(description="its VMs, the lowest score first")
    history: list[ScorePointOut] = Field(description="windows of the host, as those of the cloud")

    @classmethod
    def asked(cls, cloud: CloudService, host: str, since: str) -> HostScoresOut:
        """What the service answers now of a host by id, with a history that far back."""
        history, memory = cloud.score_history(host, since=since), cloud.memory().get(host)
        return cls.of_host(cloud.scores(), host, history, memory)

    @classmethod
    def of_host(
        cls, now: CloudScores, host: str, history: Iterable[ScorePoint], memory: HostMemory | None
    ) -> HostScoresOut:
        """From the domain."""
        return cls.model_validate(
            {
                "host": host,
                "time": now.time,
                **ScoresIn.fields_of(now.hosts.get(host, NO_SCORES)),
                "memory": memory,
                "vms": list(now.on(host)),
                "history": points(history),
            }
        )


def points(history: Iterable[ScorePoint]) -> list[dict[str, object]]:
    """A history as the values of ScorePointOut."""
    return [{"time": point.time, **ScoresIn.fields_of(point.scores)} for point in history]
