"""Schemas of a model's quality: figures per group, alarms, and the model beside others."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from advisor.domain import ModelQuality
from advisor.domain.figures import Figure, Known
from api.schemas.base import AnswerBody, Time


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
