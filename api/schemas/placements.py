"""Schemas of placements and of predicted scenes: questions and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from advisor.domain import (
    BatchOrder,
    Constraints,
    Find,
    Instance,
    PlacementRequest,
    Scene,
    WorkloadProfile,
    found_in,
)
from advisor.errors import InvalidInput
from api.schemas.base import Id, Labels, Metrics, Positive, Schema, as_input, examples
from api.schemas.declared import Asked, AskedInstance, QuestionBody, all_asked, asks
from api.schemas.inventory import HostItem, WorkloadItem, each_to_domain
from profiler.host_kinds import HostKind

MOST_SEARCHED_S = 60  # seconds for a joint search: it uses a CPU, and no request lasts longer
MOST_AT_ONCE = 200  # instances of one batch: each of them is ranked on the cloud with those before it


def _both(field: str, kind: Mapping[str, Any], other: str, other_kind: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of an object that has both fields."""
    return {"required": [field, other], "properties": {field: dict(kind), other: dict(other_kind)}}


class NewInstance(Asked):
    """The instance to place; `profile` may replace `workload`; with neither, and no demand for CPUs, it counts as using
    10 % of its vCPUs, as virtual machines of public traces do, and nothing else, with a wide range."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "anyOf": [
                    _both("workload", {"type": "string"}, "profile", {"type": "object"}),
                    _both("like", {"type": "string"}, "workload", {"type": "string", "minLength": 1}),
                    _both("like", {"type": "string"}, "profile", {"type": "object", "minProperties": 1}),
                    _both("like", {"type": "string"}, "demand", {"type": "object", "minProperties": 1}),
                ]
            }
        }
    )

    profile: Metrics | None = Field(default=None, description="its solo metrics at load 1.0, instead of a workload")

    def to_domain(self, find: Find) -> tuple[Instance, WorkloadProfile | None]:
        """The domain's Instance, and its own profile where one was given; `find` looks up one of the inventory."""
        if self.workload is not None and self.profile is not None:
            raise InvalidInput("give workload or profile, not both", field="instance.profile")
        try:
            return self.asked(find), self._own_profile()
        except InvalidInput as error:
            raise InvalidInput(error.message, field=f"instance.{error.field}" if error.field else None) from error

    def _given(self) -> dict[str, Any]:
        return {**super()._given(), "workload": None} if self.profile is not None else super()._given()

    @as_input
    def _own_profile(self) -> WorkloadProfile | None:
        return None if self.profile is None else WorkloadProfile(name=self.id, metrics=self.profile)


@asks(Constraints, labels=Labels, kind=HostKind)
class ConstraintsBody(QuestionBody):
    """What a candidate host must satisfy."""


@asks(PlacementRequest, instance=NewInstance, constraints=ConstraintsBody)
class PlacementBody(QuestionBody):
    """Where should this instance go?"""

    model_config = examples(
        {
            "instance": {
                "id": "shop-7",
                "vcpus": 2,
                "memory_mb": 4096,
                "workload": "web-1k",
                "service": "latency",
                "min_throughput_ratio": 0.9,
            },
            "constraints": {"labels": {"zone": "a"}, "exclude": ["h9"], "anti_affinity": ["shop-3"]},
            "objective": "worst",
            "limit": 5,
            "commands": True,
        }
    )

    if TYPE_CHECKING:
        instance: NewInstance
        dry_run: bool = False

    def to_domain(self, find: Find = found_in(())) -> PlacementRequest:
        """The domain's request; `find` looks up an instance of the inventory."""
        instance, profile = self.instance.to_domain(find)
        return PlacementRequest(**{**self.converted(), "instance": instance, "profile": profile})


@asks(
    PlacementRequest, "hosts", "constraints", "objective", "limit", "explain", "dry_run",
    defaults={"limit": 1, "explain": False}, constraints=ConstraintsBody,
)  # fmt: skip
class BatchBody(QuestionBody):
    """Where should each of these go, when the ones before it have gone where they should?"""

    model_config = examples(
        {
            "instances": [
                {"id": "web-1", "vcpus": 2, "memory_mb": 2048, "workload": "web-1k"},
                {"id": "web-2", "vcpus": 2, "memory_mb": 2048, "workload": "web-1k"},
            ],
            "constraints": {"labels": {"zone": "a"}},
            "dry_run": True,
        }
    )

    instances: Annotated[list[NewInstance], Field(min_length=1, max_length=MOST_AT_ONCE)] = Field(
        description="the instances to place, in the order in which they are answered"
    )
    order: BatchOrder = Field(
        default="given",
        description="given: each counts in for the next, as they stand; joint: other orders and plans are tried, and "
        "the answers that harm least together are kept",
    )
    time_limit_s: Annotated[float, Field(strict=True, gt=0, le=MOST_SEARCHED_S)] = Field(
        default=5.0, description="after it a joint search tries nothing more; the request's own deadline ends it sooner"
    )

    if TYPE_CHECKING:
        limit: int = 1
        dry_run: bool = False

    def requests(self, find: Find) -> list[PlacementRequest]:
        """The domain's requests, in their order; `find` looks up an instance of the inventory.

        InvalidInput where an instance stands twice, and where a joint answer should have several candidates.
        """
        names = [instance.id for instance in self.instances]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidInput(f"instance {twice[0]} stands twice", field="instances")
        if self.order == "joint" and self.limit > 1:
            raise InvalidInput("a joint answer has one candidate for each instance; leave limit out", field="limit")
        shared = self.converted()
        asked = [instance.to_domain(find) for instance in self.instances]
        return [PlacementRequest(instance, profile, **shared) for instance, profile in asked]


class OutcomeBody(Schema):
    """What really happened after a placement: measured T/B of each instance on the host it went to."""

    model_config = examples({"host": "h3", "throughput_ratios": {"shop-7": 0.93, "batch-1": 0.98}})

    host: Id = Field(description="the host that it went to")
    throughput_ratios: Annotated[dict[Id, Positive], Field(min_length=1, max_length=10_000)] = Field(
        description="measured T/B by instance"
    )


# Schema of the scene that a prediction is about.


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
