"""Schemas of what is asked of a whole cloud: the question, how demand grows, and a cloud that is only imagined."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from advisor.domain import (
    PLAN_LIMITS,
    Find,
    Growth,
    Objective,
    PinningPolicy,
    PlanFor,
    PlanKind,
    PlanRequest,
    WhatIf,
    found_in,
)
from api.schemas.asked import AskedInstance, all_asked
from api.schemas.base import WHOLE, Flag, Id, Positive, Schema, examples
from api.schemas.inventory import HostItem, each_to_domain


def _number(name: str) -> Any:
    least, most = PLAN_LIMITS[name]
    return Field(strict=True, allow_inf_nan=False, ge=least, le=most)


def _count(name: str) -> Any:
    least, most = PLAN_LIMITS[name]
    return Field(strict=True, ge=int(least), le=int(most))


Then = Literal["admit", "rebalance", "consolidate", "capacity"]
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:-][A-Za-z0-9._:-]*$", max_length=255)]
Ids = Annotated[list[Id], Field(max_length=100_000)]


class GrowthBody(Schema):
    """How demand grows."""

    instances_per_month: Annotated[float, _number("growth.instances_per_month")] = Field(
        default=0.0, description="of the mix in `instances`"
    )
    load_percent_per_month: Annotated[float, _number("growth.load_percent_per_month")] = Field(
        default=0.0, description="of everybody, compounded"
    )
    months: Annotated[int, _count("growth.months"), WHOLE] = Field(default=24, description="how far is looked ahead")
    uncertain_percent: Annotated[float, _number("growth.uncertain_percent")] = Field(
        default=0.0, description="by how much of itself growth may be more or less"
    )

    def to_domain(self) -> Growth:
        """The domain's Growth."""
        return Growth(**dict(self))


class WhatIfBody(Schema):
    """A cloud that is only imagined."""

    hosts: list[HostItem] = Field(default=[], description="in addition, or instead of the one of the same id")
    remove: Ids = Field(default=[], description="hosts that are gone; who was there is placed anew")
    cpu_overcommit: Positive | None = Field(default=None, description="on every host; null = as it is")
    memory_overcommit: Positive | None = Field(default=None, description="on every host; null = as it is")
    pinning: PinningPolicy = Field(
        default="as_it_is", description="unpinned: nobody is; own: everybody has pCPUs of its own where they suffice"
    )
    model: Version | None = Field(default=None, description="version of the model that is asked instead")

    def to_domain(self) -> WhatIf:
        """The domain's WhatIf; InvalidInput names the host that is wrong."""
        hosts = each_to_domain("what_if.hosts", self.hosts, HostItem.as_domain)
        return WhatIf(**{**dict(self), "hosts": hosts, "remove": tuple(self.remove)})

    @classmethod
    def of(cls, imagined: WhatIf) -> WhatIfBody:
        """From the domain, unchecked."""
        same: dict[str, Any] = {
            name: getattr(imagined, name) for name in cls.model_fields if name not in {"hosts", "remove"}
        }
        hosts = [HostItem.of(host) for host in imagined.hosts]
        return cls.model_construct(**same, hosts=hosts, remove=list(imagined.remove))


def _asks(*kinds: str) -> dict[str, Any]:
    """In JSON Schema: one of these is asked, of this cloud or of an imagined one. Without `kind` it is admit."""
    here = {"properties": {"kind": {"enum": kinds}}, "required": [] if "admit" in kinds else ["kind"]}
    imagined = {"properties": {"kind": {"const": "what_if"}, "then": {"enum": kinds}}, "required": ["kind", "then"]}
    return {"anyOf": [here, imagined]}


# Which fields go with which kind; advisor.planning.plan_validation refuses what is against it.
_RULES = [
    {
        "if": _asks("admit", "capacity"),
        "then": {"required": ["instances"], "properties": {"instances": {"minItems": 1}}},
        "else": {"properties": {"instances": {"maxItems": 0}}},
    },
    {
        "if": {"properties": {"kind": {"const": "evacuate"}}, "required": ["kind"]},
        "then": {"required": ["empty"], "properties": {"empty": {"minItems": 1}}},
        "else": {"properties": {"empty": {"maxItems": 0}}},
    },
    {
        "if": {"properties": {"kind": {"const": "what_if"}}, "required": ["kind"]},
        "then": {"required": ["what_if"], "properties": {"what_if": {"type": "object", "minProperties": 1}}},
        "else": {"properties": {"what_if": {"type": "null"}, "then": {"type": "null"}}},
    },
    {
        "if": {"not": _asks("capacity")},
        "then": {"properties": {"growth": {"type": "null"}, "spare_hosts": {"const": 0}}},
    },
    {
        "if": {"properties": {"spare_label": {"type": "string"}}, "required": ["spare_label"]},
        "then": {"properties": {"spare_hosts": {"minimum": 1}}, "required": ["spare_hosts"]},
    },
    {
        "if": {"properties": {"kind": {"const": "tune"}}, "required": ["kind"]},
        "then": {"properties": {"objective": {"enum": ["worst", "total"]}}},
    },
    {
        "if": {"not": _asks("rebalance", "evacuate", "consolidate")},
        "then": {"properties": {"movable": {"type": "null"}, "max_moves": {"type": "null"}}},
    },
]


class PlanBody(Schema):
    """What should become of the whole cloud? Without `kind`: place `instances`."""

    model_config = examples(
        {"instances": [{"id": "shop-8", "vcpus": 2, "workload": "web-1k"}, {"id": "shop-9", "like": "shop-3"}]},
        {"kind": "evacuate", "empty": ["h3"], "commands": True},
        {
            "kind": "capacity",
            "instances": [{"id": "shop", "vcpus": 2, "memory_mb": 4096, "workload": "web-1k"}],
            "growth": {"instances_per_month": 5},
        },
        allOf=_RULES,
    )

    kind: PlanKind = Field(default="admit", description="which question, see docs/planning.md")
    instances: list[AskedInstance] = Field(
        default=[],
        description="to place, or the mix of which more should fit; a known id means that instance, or in a mix more "
        "of its form",
    )
    empty: Ids = Field(default=[], description="hosts to be emptied (evacuate)")
    hosts: Ids | None = Field(
        default=None, description="hosts that may be used; null = all", json_schema_extra={"minItems": 1}
    )
    movable: Ids | None = Field(
        default=None, description="instances that may move; null = all whose pinning the caller did not give"
    )
    objective: Objective = Field(
        default="worst", description="worst: best worst-off instance; total: combined score; pack: fewest hosts"
    )
    plan_for: PlanFor = Field(
        default="hours",
        description="demand that counts: as it varies over the hours, or its mean or a percentile all the time",
    )
    keep_ratio: Annotated[float, _number("keep_ratio")] = Field(
        default=0.8, description="T/B that who has no limit of its own must keep"
    )
    max_moves: Annotated[int, _count("max_moves"), WHOLE] | None = Field(
        default=None, description="most moves; null = any number"
    )
    move_gain: Annotated[float, _number("move_gain")] = Field(
        default=0.02, description="what a move must gain at least (see `gain` of a step), beside what is uncertain"
    )
    at_once: Annotated[int, _count("at_once"), WHOLE] = Field(default=8, description="moves in one stage")
    at_once_per_host: Annotated[int, _count("at_once_per_host"), WHOLE] = Field(
        default=4, description="moves in one stage to or from one host"
    )
    at_once_per_rack: Annotated[int, _count("at_once_per_rack"), WHOLE] | None = Field(
        default=None, description="moves in one stage to or from the hosts of one rack; null = any number"
    )
    rack_label: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        default="rack", description="the label of hosts that names their rack"
    )
    migration_mbit: Annotated[float, _number("migration_mbit")] | None = Field(
        default=None,
        description="Mbit/s of each host's network for its moves; null = its label `migration_mbit`, else all of it",
    )
    rack_mbit: Annotated[float, _number("rack_mbit")] | None = Field(
        default=None, description="Mbit/s out of, and into, each rack for all moves together; null = not limited"
    )
    growth: GrowthBody | None = Field(default=None, description="how demand grows (capacity)")
    spare_hosts: Annotated[int, _count("spare_hosts"), WHOLE] = Field(
        default=0, description="so many hosts may fail together and everybody still has a host (capacity)"
    )
    spare_label: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None, description="not hosts fail, but all hosts of so many values of this label, such as rack"
    )
    what_if: WhatIfBody | None = Field(default=None, description="the imagined cloud (what_if)")
    then: Then | None = Field(
        default=None, description="asked of the imagined cloud: admit, rebalance, consolidate or capacity"
    )
    commands: Flag = Field(default=False, description="give the commands of every step")
    time_limit_s: Annotated[float, _number("time_limit_s")] = Field(
        default=30.0, description="after it the best so far is answered; the request's own deadline ends it sooner"
    )
    seed: Annotated[int, _count("seed"), WHOLE] = Field(default=1, description="the same seed finds the same plan")

    def to_domain(self, find: Find = found_in(())) -> PlanRequest:
        """The domain's request; `find` looks up an instance of the inventory. InvalidInput names what is wrong."""
        converted = {
            "instances": all_asked(self.instances, find),
            "empty": tuple(self.empty),
            "hosts": None if self.hosts is None else tuple(self.hosts),
            "movable": None if self.movable is None else tuple(self.movable),
            "growth": self.growth.to_domain() if self.growth else None,
            "what_if": self.what_if.to_domain() if self.what_if else None,
        }
        return PlanRequest(**{**dict(self), **converted})

    @classmethod
    def of(cls, request: PlanRequest) -> PlanBody:
        """From the domain, unchecked."""
        lists: dict[str, Any] = {
            "instances": [AskedInstance.of(instance) for instance in request.instances],
            "empty": list(request.empty),
            "hosts": None if request.hosts is None else list(request.hosts),
            "movable": None if request.movable is None else list(request.movable),
            "growth": None if request.growth is None else GrowthBody.model_construct(
                **{name: getattr(request.growth, name) for name in GrowthBody.model_fields}
            ),
            "what_if": None if request.what_if is None else WhatIfBody.of(request.what_if),
        }  # fmt: skip
        same: dict[str, Any] = {name: getattr(request, name) for name in cls.model_fields if name not in lists}
        return cls.model_construct(**same, **lists)
