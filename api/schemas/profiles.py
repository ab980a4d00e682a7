"""Schemas of measured profiles: an instance's phases with intervals, load and whether they are enough."""

from __future__ import annotations

from pydantic import Field

from advisor.domain import InstanceProfile, MeanEstimate, PhaseProfile
from advisor.domain.figures import Figure, Known, utc_time
from api.schemas.base import AnswerBody, Time


class EstimateOut(AnswerBody):
    """A metric's mean in its unit with its 90 % interval; null = too few windows to say."""

    value: Known = Field(description="mean")
    lower: Figure | None = Field(description="lower end of its 90 % interval")
    upper: Figure | None = Field(description="upper end of its 90 % interval")
    effective_windows: Known = Field(description="independent windows that it is worth")

    @classmethod
    def of(cls, estimate: MeanEstimate) -> EstimateOut:
        """From the domain."""
        return cls(
            value=estimate.value, lower=estimate.lower, upper=estimate.upper, effective_windows=estimate.effective
        )


class LoadOut(AnswerBody):
    """Offered load as a fraction of what the instance can do alone (1.0 = saturated), with the range it lies in."""

    value: Figure | None = Field(description="the load, 1.0 = saturated")
    lower: Figure | None = Field(description="lowest that it may be")
    upper: Figure | None = Field(description="highest that it may be")
    method: str = Field(description="saturated, relative, busiest, idle or unknown")
    sure: str = Field(description="high, fair or low")
    text: str = Field(description="the load as a sentence")


class SpanOut(AnswerBody):
    """A stretch of time."""

    begin: Time = Field(description="when it begins")
    end: Time = Field(description="when it ends")


class PhaseOut(AnswerBody):
    """What the instance does in one of its phases; a phase may come back."""

    number: int = Field(description="1 is the first to appear")
    share: Known = Field(description="of all windows, 0-1")
    spans: list[SpanOut] = Field(description="when it was seen")
    windows: int = Field(description="its windows")
    solo_windows: int = Field(description="windows in which the instance was alone")
    solo: bool = Field(description="the metrics are made of solo windows only")
    effective_windows: Known = Field(description="independent windows that they are worth")
    load: LoadOut = Field(description="the load level")
    metrics: dict[str, EstimateOut] = Field(description="by name")
    metrics_at_full_load: dict[str, Known] | None = Field(
        description="extrapolated in proportion to load 1.0; null where it was reached or that would be a guess"
    )
    neighbours: dict[str, Known] = Field(description="mean CPU in % of who was active beside it, while anybody was")
    enough: bool = Field(description="good enough to be used as a workload's profile")
    reasons: list[str] = Field(description="why it is not enough")
    remarks: list[str] = Field(description="what else to know")

    @classmethod
    def of(cls, profile: InstanceProfile, phase: PhaseProfile) -> PhaseOut:
        """From the domain."""
        scaled = profile.at_full_load(phase, profile.instance)
        return cls(
            number=phase.number,
            share=phase.share,
            spans=[SpanOut(begin=utc_time(begin), end=utc_time(end)) for begin, end in phase.spans],
            windows=phase.windows,
            solo_windows=phase.solo_windows,
            solo=phase.solo,
            effective_windows=phase.effective,
            load=LoadOut.like(phase.load),
            metrics={name: EstimateOut.of(estimate) for name, estimate in phase.metrics.items()},
            metrics_at_full_load=dict(scaled.metrics) if scaled else None,
            neighbours=dict(phase.neighbours),
            enough=phase.enough,
            reasons=list(phase.reasons),
            remarks=list(phase.remarks),
        )


class ProfileAnswer(AnswerBody):
    """An instance's phases in order of first appearance."""

    instance: str = Field(description="the instance")
    host: str = Field(description="where it was measured")
    begin: Time = Field(description="time of the first window")
    end: Time = Field(description="time of the last window")
    windows: int = Field(description="number of windows")
    window_s: float = Field(description="seconds from one window to the next")
    vcpus: float | None = Field(description="its vCPUs")
    phases: list[PhaseOut] = Field(description="its phases")
    notes: list[str] = Field(description="what else to know")

    @classmethod
    def of(cls, profile: InstanceProfile) -> ProfileAnswer:
        """From the domain."""
        windows = profile.windows
        return cls(
            instance=profile.instance,
            host=profile.host,
            begin=utc_time(float(windows.times[0]) - windows.period_s),
            end=utc_time(float(windows.times[-1])),
            windows=len(windows),
            window_s=windows.period_s,
            vcpus=profile.vcpus,
            phases=[PhaseOut.of(profile, phase) for phase in profile.phases],
            notes=list(profile.notes),
        )
