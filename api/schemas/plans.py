"""Schemas of plans: the questions, and answers as they are stored and shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Field

from advisor.domain import (
    DeclaredField,
    Find,
    Growth,
    NextKind,
    Page,
    Plan,
    PlanAge,
    PlanEntry,
    PlanKind,
    PlanRequest,
    WhatIf,
    codec,
    fields_of,
    found_in,
)
from advisor.service import InventoryService, PlanService
from api.schemas.base import examples
from api.schemas.declared import AskedInstance, QuestionBody, all_asked, asks
from api.schemas.inventory import HostItem, each_to_domain

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
