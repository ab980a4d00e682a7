"""Schemas of measured profiles: an instance's phases with intervals, load and whether they are enough."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import Field

from advisor.domain import InstanceProfile, MeanEstimate, PhaseProfile
from api.schemas.base import AnswerBody, Figure, Time


class EstimateOut(AnswerBody):
    """A metric's mean in its unit with its 90 % interval; null = too few windows to say."""

    value: float
    lower: Figure
    upper: Figure
    effective_windows: float = Field(description="independent windows that it is worth")

    @classmethod
    def of(cls, estimate: MeanEstimate) -> EstimateOut:
        """From the domain."""
        return cls(
            value=estimate.value, lower=estimate.lower, upper=estimate.upper, effective_windows=estimate.effective
        )


class LoadOut(AnswerBody):
    """Offered load as a fraction of what the instance can do alone (1.0 = saturated), with the range it lies in."""

    value: Figure
    lower: Figure
    upper: Figure
    method: str = Field(description="saturated, relative, busiest, idle or unknown")
    sure: str = Field(description="high, fair or low")
    text: str


class SpanOut(AnswerBody):
    """A stretch of time."""

    begin: Time
    end: Time


class PhaseOut(AnswerBody):
    """What the instance does in one of its phases; a phase may come back."""

    number: int
    share: float = Field(description="of all windows, 0-1")
    spans: list[SpanOut]
    windows: int
    solo_windows: int
    solo: bool = Field(description="the metrics are made of solo windows only")
    effective_windows: float
    load: LoadOut
    metrics: dict[str, EstimateOut]
    metrics_at_full_load: dict[str, float] | None = Field(
        description="extrapolated in proportion to load 1.0; null where it was reached or that would be a guess"
    )
    neighbours: dict[str, float] = Field(description="mean CPU in % of who was active beside it, while anybody was")
    enough: bool = Field(description="good enough to be used as a workload's profile")
    reasons: list[str] = Field(description="why it is not enough")
    remarks: list[str]

    @classmethod
    def of(cls, profile: InstanceProfile, phase: PhaseProfile) -> PhaseOut:
        """From the domain."""
        load, scaled = phase.load, profile.at_full_load(phase, profile.instance)
        return cls(
            number=phase.number,
            share=phase.share,
            spans=[SpanOut(begin=_time(begin), end=_time(end)) for begin, end in phase.spans],
            windows=phase.windows,
            solo_windows=phase.solo_windows,
            solo=phase.solo,
            effective_windows=phase.effective,
            load=LoadOut(
                value=load.value,
                lower=load.lower,
                upper=load.upper,
                method=load.method,
                sure=load.sure,
                text=load.text,
            ),
            metrics={key: EstimateOut.of(one) for key, one in phase.metrics.items()},
            metrics_at_full_load=dict(scaled.metrics) if scaled else None,
            neighbours=dict(phase.neighbours),
            enough=phase.enough,
            reasons=list(phase.reasons),
            remarks=list(phase.remarks),
        )


class ProfileAnswer(AnswerBody):
    """An instance's phases in order of first appearance."""

    instance: str
    host: str
    begin: Time
    end: Time
    windows: int
    window_s: float = Field(description="seconds from one window to the next")
    vcpus: Figure
    phases: list[PhaseOut]
    notes: list[str]

    @classmethod
    def of(cls, profile: InstanceProfile) -> ProfileAnswer:
        """From the domain."""
        windows = profile.windows
        return cls(
            instance=profile.instance,
            host=profile.host,
            begin=_time(float(windows.times[0]) - windows.period_s),
            end=_time(float(windows.times[-1])),
            windows=len(windows),
            window_s=windows.period_s,
            vcpus=profile.vcpus,
            phases=[PhaseOut.of(profile, phase) for phase in profile.phases],
            notes=list(profile.notes),
        )


def _time(time_s: float) -> datetime:
    return datetime.fromtimestamp(max(time_s, 0.0), UTC)  # the first window may begin before the epoch
