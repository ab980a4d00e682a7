"""Schemas of placements, predicted scenes and plans: questions, and answers as they are stored and shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import ConfigDict, Field

from advisor.domain import (
    BatchOrder,
    Constraints,
    DeclaredField,
    Find,
    Growth,
    Instance,
    NextKind,
    Page,
    PlacementRequest,
    Plan,
    PlanAge,
    PlanEntry,
    PlanKind,
    PlanRequest,
    Scene,
    WhatIf,
    WorkloadProfile,
    codec,
    fields_of,
    found_in,
)
from advisor.errors import InvalidInput
from api.schemas.base import Id, Labels, Metrics, Positive, Schema, as_input, examples
from api.schemas.declared import Asked, AskedInstance, QuestionBody, all_asked, asks
from api.schemas.inventory import HostItem, WorkloadItem, each_to_domain
from profiler.host_kinds import HostKind

if TYPE_CHECKING:
    from advisor.service import InventoryService, PlanService  # a question on a file does without the service

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
        limit: int = 5
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


# Schemas of what is asked of a whole cloud: the question, how demand grows, and a cloud that is only imagined.

Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:-][A-Za-z0-9._:-]*$", max_length=255)]


@asks(Growth)
class GrowthBody(QuestionBody):
    """How demand grows."""

    if TYPE_CHECKING:

        def to_domain(self) -> Growth: ...


@asks(WhatIf, hosts=list[HostItem], model=Version)
class WhatIfBody(QuestionBody):
    """A cloud that is only imagined."""

    if TYPE_CHECKING:
        hosts: list[HostItem] = []

    def to_domain(self) -> WhatIf:
        """The domain's WhatIf; InvalidInput names the host that is wrong."""
        hosts = each_to_domain("what_if.hosts", self.hosts, HostItem.as_domain)
        return WhatIf(**{**self.converted(), "hosts": hosts})

    @classmethod
    def written(cls, name: str, value: Any) -> Any:
        """Hosts as the inventory has them, all else as it is."""
        return [HostItem.of(host) for host in value] if name == "hosts" else super().written(name, value)


def _asks(*kinds: str) -> dict[str, Any]:
    """In JSON Schema: one of these is asked, of this cloud or of an imagined one. Without `kind` it is admit."""
    here = {"properties": {"kind": {"enum": kinds}}, "required": [] if "admit" in kinds else ["kind"]}
    there = [kind for kind in kinds if kind in get_args(NextKind)]
    imagined = {"properties": {"kind": {"const": "what_if"}, "then": {"enum": there}}, "required": ["kind", "then"]}
    return {"anyOf": [here, imagined]} if there else here


def _rules() -> Iterator[dict[str, Any]]:
    """Which fields go with which kind; advisor.planning.planner refuses what is against it."""
    only = {name: field for name, field in fields_of(PlanRequest).items() if field.declared.only}
    for kinds in dict.fromkeys(field.declared.kinds for field in only.values()):
        fields = {name: field for name, field in only.items() if field.declared.kinds == kinds}
        rule: dict[str, Any] = {"if": _asks(*kinds)}
        if needed := {name: _something(field) for name, field in fields.items() if field.declared.needed is True}:
            rule["then"] = {"required": list(needed), "properties": needed}
        for name, field in fields.items():
            if isinstance(field.declared.needed, tuple):
                then = {"required": [name], "properties": {name: _something(field)}}
                yield {"if": _asks(*field.declared.needed), "then": then}
        yield {**rule, "else": {"properties": {name: _nothing(field) for name, field in fields.items()}}}
    yield {
        "if": {"properties": {"spare_label": {"type": "string"}}, "required": ["spare_label"]},
        "then": {"properties": {"spare_hosts": {"minimum": 1}}, "required": ["spare_hosts"]},
    }
    yield {
        "if": {"properties": {"kind": {"const": "tune"}}, "required": ["kind"]},
        "then": {"properties": {"objective": {"enum": ["worst", "total"]}}},
    }


def _something(field: DeclaredField) -> dict[str, Any]:
    return {"minItems": 1} if field.lists else {"type": "object", "minProperties": 1}


def _nothing(field: DeclaredField) -> dict[str, Any]:
    if field.optional:
        return {"type": "null"}
    return {"maxItems": 0} if field.lists else {"const": field.default}


@asks(PlanRequest, instances=list[AskedInstance], growth=GrowthBody, what_if=WhatIfBody)
class PlanBody(QuestionBody):
    """What should become of the whole cloud? Without `kind`: place `instances`."""

    model_config = examples(
        {"instances": [{"id": "shop-8", "vcpus": 2, "workload": "web-1k"}, {"id": "shop-9", "like": "shop-3"}]},
        {"kind": "evacuate", "empty": ["h3"], "commands": True},
        {
            "kind": "capacity",
            "instances": [{"id": "shop", "vcpus": 2, "memory_mb": 4096, "workload": "web-1k"}],
            "growth": {"instances_per_month": 5},
        },
        allOf=list(_rules()),
    )

    if TYPE_CHECKING:
        instances: list[AskedInstance] = []
        what_if: WhatIfBody | None = None

    def to_domain(self, find: Find = found_in(())) -> PlanRequest:
        """The domain's request; `find` looks up an instance of the inventory. InvalidInput names what is wrong."""
        return PlanRequest(**{**self.converted(), "instances": all_asked(self.instances, find)})

    @classmethod
    def written(cls, name: str, value: Any) -> Any:
        """Instances as a question has them, all else as it is."""
        return [AskedInstance.of(there) for there in value] if name == "instances" else super().written(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer(Plan):
    """A plan with its question, beside the inventory of now."""

    question: Annotated[PlanBody, Field(description="the question as it was understood")]
    stale: Annotated[bool | None, Field(description="the inventory was written since; null = not known, or a file")]
    age: Annotated[PlanAge | None, Field(description="the same with what was written since; null = a file")]

    @classmethod
    def asked(cls, plans: PlanService, plan: str) -> PlanAnswer:
        """What the service answers of a stored plan; NotFound where there is none."""
        stored = plans.get(plan)
        return cls.of(stored, plans.age(stored))

    @classmethod
    def of(cls, plan: Plan, age: PlanAge | None = None) -> PlanAnswer:
        """Of a plan; `age` where it is beside an inventory."""
        question, stale = PlanBody.of(plan.request), None if age is None else age.stale
        return cls(**codec.columns(plan), question=question, stale=stale, age=age)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem(PlanEntry):
    """A plan in a listing, beside the inventory of now."""

    stale: Annotated[bool | None, Field(description="the inventory was written since; null = not known")]

    @classmethod
    def asked(
        cls,
        plans: PlanService,
        inventory: InventoryService,
        *,
        kind: PlanKind | None,
        limit: int,
        cursor: str | None = None,
    ) -> Page[PlanItem]:
        """What the service lists, newest first."""
        page, generation = plans.page(kind=kind, cursor=cursor, limit=limit), inventory.generation()
        return Page(tuple(cls.of(item, generation) for item in page.items), page.next_cursor)

    @classmethod
    def of(cls, entry: PlanEntry, generation: int) -> PlanItem:
        """Of a plan; `generation` is the inventory's of now."""
        stale = None if entry.generation is None else entry.generation != generation
        return cls(**codec.columns(entry), stale=stale)
