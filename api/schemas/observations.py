"""Schemas of what was measured: metric samples and co-located outcomes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.base import Amount, AnswerBody, Id, Name, Number, Positive, Schema, Text, Time, as_input, examples
from api.schemas.inventory import CpuList, InstanceItem
from profiler.observed import Colocation, MetricSample, Outcome

Scope = Literal["instance", "driver_domain", "host"]
OutcomeName = Literal["throughput", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent", "runtime_s"]


class SampleBody(Schema):
    """One value of one metric at one time."""

    host: Id
    instance: Id | None = Field(default=None, description="null = of the host or its driver domain")
    scope: Scope | None = Field(default=None, description="default: instance where one is named, else host")
    metric: Id
    value: Number
    time: Time

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


class SamplesBody(Schema):
    """Many samples; sending the same one twice does no harm."""

    model_config = examples(
        {
            "samples": [
                {"host": "h3", "instance": "shop-3", "metric": "cpu", "value": 61.5, "time": "2026-01-31T12:00:00Z"}
            ]
        }
    )

    samples: Annotated[list[SampleBody], Field(min_length=1)]


class Dropped(AnswerBody):
    """A sample that was not stored, by its position in the request, and why."""

    index: int
    reason: str


class SamplesAnswer(AnswerBody):
    """What became of the samples; `reasons` has one entry for each dropped sample."""

    accepted: int
    duplicate: int = Field(
        description="of a host, instance, scope, metric and time that a sample is stored of; that one stays, "
        "whatever the value of this one"
    )
    dropped: int
    reasons: list[Dropped]


class OutcomeItem(Schema):
    """One instance of a co-location with what it reached alone and beside the others; null = not measured."""

    instance: InstanceItem
    outcome: OutcomeName = "throughput"
    solo: Positive | None = None
    colocated: Amount | None = None
    unit: Text = ""

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
    """Who shared a host at the same time, and what came out: a training example."""

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

    run: Id
    repeat: Id = "1"
    platform: Name
    driver_cpus: CpuList = Field(default=[])
    outcomes: Annotated[list[OutcomeItem], Field(min_length=1, max_length=1000)]

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

    run: str
    repeat: str
    new: bool
