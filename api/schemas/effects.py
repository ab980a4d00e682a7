"""Schemas of predictions: bands, the effect on each instance, and the scene that a question is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from advisor.domain import Effect, Find, Scene, SceneEffects, found_in, waiting_shown
from api.schemas.asked import AskedInstance, all_asked
from api.schemas.base import AnswerBody, Figure, Schema, Score, examples
from api.schemas.inventory import HostItem, WorkloadItem, each_to_domain

LATENCY = "latency over its latency alone; null where it is overloaded"
CPU = "CPU delivered, as a part of its demand; null in answers stored before it was predicted"
CROWDED = "part of the time with more vCPUs ready to run on the host than it has CPUs, 0-1; null = not known"
JITTER = "standard deviation of latency over alone; null in answers stored before it was predicted"


class BandOut(AnswerBody):
    """A predicted ratio with its range; 1.0 = as alone. It is a 90 % interval where outcomes have calibrated it."""

    expected: Figure = Field(description="the expected ratio")
    lower: Figure = Field(description="lower end of the interval")
    upper: Figure = Field(description="upper end of the interval")


class CpuOut(AnswerBody):
    """CPU delivered to an instance, by the analytic model, also where a learned one answers."""

    share: Figure = Field(description="CPU delivered, as a part of its demand: run / (run + wait), 0-1")
    worst_share: Figure = Field(description="the same in the worst twentieth of the time")
    short: Figure = Field(
        description="contended time: the part of the time in which it gets less CPU than its demand, 0-1"
    )
    short_before: Figure = Field(description="the same without the new VM; null for the new VM itself")
    overloaded: bool = Field(
        description="more work arrives at its busy times than it is served; its latency has no finite value"
    )


class BasisOut(AnswerBody):
    """What the T/B of one instance rests on where a learned model answers."""

    support: Figure = Field(description="how much of what was learned applies, 0-1")
    correction: Figure = Field(description="by which part it changed what the analytic model says, -0.04 = 4 % less")
    similar: Figure = Field(description="how many measured co-locations are like it")
    machines: Figure = Field(description="on how many machines those were measured")
    measured: Figure = Field(description="measured co-locations of exactly these instances")
    sentence: str = Field(description="the same in words")


class EffectOut(AnswerBody):
    """What happens to one instance."""

    instance: str = Field(description="the instance")
    before: BandOut | None = Field(default=None, description="without the new VM; null for the new VM itself")
    throughput_ratio: BandOut = Field(description="T/B")
    latency_ratio: BandOut = Field(description=LATENCY)
    jitter_ratio: BandOut | None = Field(default=None, description=JITTER)
    outside_training: bool = Field(
        default=False, description="nothing that was learned applies, or nothing is known of it"
    )
    cpu: CpuOut | None = Field(default=None, description=CPU)
    basis: BasisOut | None = Field(default=None, description="what T/B rests on; null where no learned model answers")

    @classmethod
    def of(cls, effect: Effect) -> EffectOut:
        """From the domain."""
        if not effect.overloaded:
            return cls.like(effect)
        jitter = effect.jitter_ratio and waiting_shown(effect, effect.jitter_ratio)
        return cls.like(replace(effect, latency_ratio=waiting_shown(effect, effect.latency_ratio), jitter_ratio=jitter))


class ModelRef(AnswerBody):
    """Which model answered, and where its training data came from."""

    version: str = Field(description="the model's version, or prior")
    origin: str = Field(description="where its training data came from")


class SceneBody(Schema):
    """A host and the instances that share it; workloads that are not given here are looked up by name."""

    model_config = examples(
        {
            "host": {"id": "h3", "kind": "kvm", "pcpus": 4, "memory_mb": 65536},
            "instances": [
                {"id": "shop-3", "vcpus": 2, "workload": "web-1k"},
                {"id": "batch-1", "vcpus": 2, "workload": "batch"},
            ],
            "workloads": [{"name": "web-1k", "metrics": {"cpu": 62.0}}, {"name": "batch", "metrics": {"cpu": 100.0}}],
        }
    )

    host: HostItem = Field(description="the host")
    instances: Annotated[list[AskedInstance], Field(min_length=1, max_length=1000)] = Field(
        description="the instances that share it"
    )
    workloads: Annotated[list[WorkloadItem], Field(max_length=1000)] = Field(
        default=[], description="profiles that are not stored, or replace stored ones"
    )

    def to_domain(self, find: Find = found_in(())) -> Scene:
        """The domain's Scene; `find` looks up an instance of the inventory. InvalidInput names what is wrong."""
        return Scene(
            host=self.host.as_domain(),
            instances=all_asked(self.instances, find, on=self.host.id),
            workloads=each_to_domain("workloads", self.workloads, WorkloadItem.as_domain),
        )


class SceneAnswer(AnswerBody):
    """What the instances of a scene do to each other, in the scene's order."""

    model: ModelRef = Field(description="which model answered")
    degraded: bool = Field(description="the learned model failed and the analytic model answered")
    combined_score: Score = Field(description="sum of the expected throughput ratios")
    effects: list[EffectOut] = Field(description="what happens to each instance")
    crowded: Figure = Field(default=None, description=CROWDED)

    @classmethod
    def of(cls, answer: SceneEffects) -> SceneAnswer:
        """From the domain."""
        return cls(
            model=ModelRef(version=answer.model_version, origin=answer.model_origin),
            degraded=answer.degraded,
            combined_score=answer.combined_score,
            effects=[EffectOut.of(effect) for effect in answer.effects],
            crowded=answer.crowded,
        )
