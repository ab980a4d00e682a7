"""Schemas of what is measured: samples, outcomes, co-locations, probes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from advisor.domain import ProbeReport
from advisor.service import SentWindow, WindowRow
from api.schemas.base import (
    Amount,
    AnswerBody,
    Id,
    Name,
    Number,
    Positive,
    Schema,
    Text,
    Time,
    as_input,
    examples,
)
from api.schemas.inventory import CpuList, InstanceItem
from profiler.observed import Colocation, MetricSample, Outcome, ProbeResult, Quantity

Scope = Literal["instance", "driver_domain", "host"]
OutcomeName = Literal["throughput", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent", "runtime_s"]


class SampleBody(Schema):
    """One value of one metric at one time."""

    host: Id = Field(description="the host")
    instance: Id | None = Field(default=None, description="null = of the host or its driver domain")
    scope: Scope | None = Field(default=None, description="default: instance where one is named, else host")
    metric: Id = Field(description="its name")
    value: Number = Field(description="in the metric's unit")
    time: Time = Field(description="when it was measured; of a window, its end")

    def to_domain(self) -> MetricSample:
        """The domain's sample."""
        return MetricSample(
            host=self.host,
            instance=self.instance,
            scope=self.scope or ("instance" if self.instance else "host"),
            metric=self.metric,
            value=self.value,
            time_s=self.time.timestamp(),
        )


class WindowRowBody(Schema):
    """What was measured of an instance, of the host or of its driver domain."""

    instance: Id | None = Field(default=None, description="null = of the host or its driver domain")
    scope: Scope | None = Field(default=None, description="default: instance where one is named, else host")
    values: list[Number | None] = Field(description="one for each of the metrics; null = not measured")
    others: Annotated[dict[Id, Number], Field(max_length=1000)] = Field(
        default={}, description="values of other metrics, by name"
    )

    def to_domain(self) -> WindowRow:
        """The domain's row."""
        scope = self.scope or ("instance" if self.instance else "host")
        return WindowRow(self.instance, scope, self.values, self.others)


class WindowBody(Schema):
    """All that was measured of a host at one time: a row of values for each instance."""

    host: Id = Field(description="the host")
    time: Time = Field(description="when it was measured; of a window, its end")
    metrics: Annotated[list[Id], Field(max_length=1000)] = Field(description="names of the metrics of all rows")
    rows: Annotated[list[WindowRowBody], Field(min_length=1)] = Field(description="who was measured")

    @model_validator(mode="after")
    def _one_value_for_each_metric(self) -> Self:
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError("a metric stands twice among the metrics, so one of its values would be lost")
        for at, row in enumerate(self.rows):
            if len(row.values) != len(self.metrics):
                raise ValueError(f"row {at} has {len(row.values)} values for {len(self.metrics)} metrics")
        return self

    def to_domain(self) -> SentWindow:
        """The domain's window."""
        rows = [row.to_domain() for row in self.rows]
        return SentWindow(self.host, self.time.timestamp(), self.metrics, rows)


class SamplesBody(Schema):
    """Many samples, one by one or as windows of hosts; sending the same one twice does no harm."""

    model_config = examples(
        {
            "samples": [
                {"host": "h3", "instance": "shop-3", "metric": "cpu", "value": 61.5, "time": "2026-01-31T12:00:00Z"}
            ]
        },
        {
            "windows": [
                {
                    "host": "h3",
                    "time": "2026-01-31T12:01:00Z",
                    "metrics": ["cpu", "waiting"],
                    "rows": [
                        {"instance": "shop-3", "values": [61.5, 2.04]},
                        {"instance": "batch-1", "values": [98.2, None], "others": {"sessions": 3}},
                    ],
                }
            ]
        },
    )

    samples: list[SampleBody] = Field(default=[], description="the samples")
    windows: list[WindowBody] = Field(default=[], description="samples of one host and time together, as agents send")


class Dropped(AnswerBody):
    """A sample that was not stored, by its position in the request, and why."""

    index: int = Field(
        description="position in the request, from 0; values of windows count after samples, row by row, first those "
        "of `metrics` and then the others, without null"
    )
    reason: str = Field(description="why, as a sentence")


class SamplesAnswer(AnswerBody):
    """What became of the samples; `reasons` has one entry for each dropped sample."""

    accepted: int = Field(description="samples that were stored")
    duplicate: int = Field(
        description="of a host, instance, scope, metric and time that a sample is stored of; that one stays, "
        "whatever the value of this one"
    )
    dropped: int = Field(description="samples that were not stored")
    reasons: list[Dropped] = Field(description="one entry for each dropped sample")


class OutcomeItem(Schema):
    """One instance of a co-location with what it reached alone and beside the others; null = not measured."""

    instance: InstanceItem = Field(description="the instance")
    outcome: OutcomeName = Field(default="throughput", description="what was measured")
    solo: Positive | None = Field(default=None, description="what it reached alone")
    colocated: Amount | None = Field(default=None, description="what it reached beside the others")
    unit: Text = Field(default="", description="of both values")

    def to_domain(self) -> Outcome:
        """The domain's Outcome."""
        return Outcome(
            instance=self.instance.as_domain(),
            outcome=self.outcome,
            solo=self.solo,
            colocated=self.colocated,
            unit=self.unit,
        )


class ColocationBody(Schema):
    """Who shared a host at the same time, and what came out: it moves the next answers, and is a training example."""

    model_config = examples(
        {
            "run": "2026-01-31-a",
            "platform": "h3",
            "outcomes": [
                {
                    "instance": {"id": "shop-3", "workload": "web-1k"},
                    "solo": 900.0,
                    "colocated": 840.0,
                    "unit": "req/s",
                },
                {"instance": {"id": "batch-1", "workload": "batch"}, "solo": 51.0, "colocated": 49.5, "unit": "1/s"},
            ],
        }
    )

    run: Id = Field(description="name of the measurement")
    repeat: Id = Field(default="1", description="which repeat of it")
    platform: Name = Field(description="a host of the inventory, or a measured platform")
    driver_cpus: CpuList = Field(default=[], description="pCPUs of the driver domain; empty = any")
    outcomes: Annotated[list[OutcomeItem], Field(min_length=1, max_length=1000)] = Field(
        description="all instances that shared the host"
    )

    @as_input
    def to_domain(self) -> Colocation:
        """The domain's Colocation."""
        return Colocation(
            run=self.run,
            platform=self.platform,
            repeat=self.repeat,
            outcomes=tuple(outcome.to_domain() for outcome in self.outcomes),
            driver_cpus=tuple(sorted(set(self.driver_cpus))),
        )


class Recorded(AnswerBody):
    """Whether the co-location is new."""

    run: str = Field(description="name of the measurement")
    repeat: str = Field(description="which repeat of it")
    new: bool = Field(description="false = it was known already")


# Schemas of results of probes on hosts, instances and pairs.

MOST_VALUES = 100  # of one result; the longest of ours has about sixty


class QuantityBody(Schema):
    """A number with its unit."""

    value: Number = Field(description="the number")
    unit: Text = Field(default="", description="its unit; 1 = a count")

    def to_domain(self) -> Quantity:
        """The domain's quantity."""
        return Quantity(self.value, self.unit)


class ProbeBody(Schema):
    """What `cotenant-profiler probe NAME --json` prints, and where it was measured."""

    host: Id = Field(description="the host that was measured, or that the instance is on")
    instance: Id | None = Field(default=None, description="the instance that the probe ran in; null = the host itself")
    peer: Id | None = Field(
        default=None,
        description="the host or instance at its far end; of a probe without one (cpu-share, cpu-work, disk) the "
        "instance on the same host beside which it ran inside of `instance`; null = none, or one in no inventory",
    )
    probe: Id = Field(description="its name, of `cotenant-profiler probe list`")
    values: Annotated[dict[Name, QuantityBody], Field(min_length=1, max_length=MOST_VALUES)] = Field(
        description="what it found, by name"
    )
    main: Name = Field(description="which of the values stands for the probe")
    circumstances: Annotated[dict[Text, Text], Field(max_length=100)] = Field(
        default={}, description="under which it was measured; results of others do not compare"
    )
    marks: Annotated[list[Text], Field(max_length=50)] = Field(default=[], description="reasons to distrust the values")
    time: Time = Field(description="when it was measured")

    @as_input
    def to_domain(self) -> ProbeReport:
        """The domain's report."""
        values = {name: quantity.to_domain() for name, quantity in self.values.items()}
        result = ProbeResult(self.probe, values, self.main, self.circumstances, tuple(self.marks))
        return ProbeReport(self.host, result, self.time, self.instance or "", self.peer or "")


class ProbesBody(Schema):
    """Results of probes; sending the same one twice does no harm."""

    model_config = examples(
        {
            "probes": [
                {
                    "host": "h3",
                    "probe": "cpu-share",
                    "values": {"share": {"value": 76.3, "unit": "%"}, "gaps": {"value": 34, "unit": "1"}},
                    "main": "share",
                    "circumstances": {"kernel": "Linux 6.18"},
                    "marks": [],
                    "time": "2026-01-31T12:00:00Z",
                }
            ]
        }
    )

    probes: Annotated[list[ProbeBody], Field(min_length=1, max_length=1000)] = Field(description="the results")


class ProbesAnswer(AnswerBody):
    """What became of the results; `reasons` has one entry for each that was dropped."""

    accepted: int = Field(description="results that are kept")
    older: int = Field(description="results of which one as new is stored, of the same host, instance, peer and probe")
    dropped: int = Field(description="results that were not taken")
    reasons: list[Dropped] = Field(description="one entry for each dropped result")


class QuantityOut(AnswerBody):
    """A number with its unit."""

    value: float = Field(description="the number")
    unit: str = Field(description="its unit; 1 = a count")


class ProbeOut(AnswerBody):
    """The newest result of a probe of a host, an instance or a pair."""

    host: str = Field(description="the host")
    instance: str | None = Field(description="the instance that the probe ran in; null = the host itself")
    peer: str | None = Field(
        description="the host or instance at its far end, or the instance beside which it ran inside of `instance`"
    )
    probe: str = Field(description="its name")
    values: dict[str, QuantityOut] = Field(description="what it found, by name")
    main: str = Field(description="which of the values stands for the probe")
    circumstances: dict[str, str] = Field(description="under which it was measured")
    marks: list[str] = Field(description="reasons to distrust the values")
    time: datetime = Field(description="when it was measured")
    not_counted: str | None = Field(
        description="why no answer counts with it; null = those of models that learned from such results do, and those "
        "about `instance` beside `peer`"
    )

    @classmethod
    def of(cls, report: ProbeReport) -> ProbeOut:
        """The report as the answer shows it."""
        result = report.result
        return cls(
            host=report.host,
            instance=report.instance or None,
            peer=report.peer or None,
            probe=result.probe,
            values={name: QuantityOut.like(quantity) for name, quantity in result.values.items()},
            main=result.main,
            circumstances=dict(result.circumstances),
            marks=list(result.marks),
            time=report.taken_at,
            not_counted=report.why_not_counted or None,
        )
