"""Schemas of plans: one with its question beside the inventory of now, and one in a listing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from advisor.domain import Plan, PlanAge, PlanEntry, codec
from api.schemas.plan_questions import PlanBody


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer(Plan):
    """A plan with its question, beside the inventory of now."""

    question: Annotated[PlanBody, Field(description="the question as it was understood")]
    stale: Annotated[bool | None, Field(description="the inventory was written since; null = not known, or a file")]
    age: Annotated[PlanAge | None, Field(description="the same with what was written since; null = a file")]

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
    def of(cls, entry: PlanEntry, generation: int) -> PlanItem:
        """Of a plan; `generation` is the inventory's of now."""
        stale = None if entry.generation is None else entry.generation != generation
        return cls(**codec.columns(entry), stale=stale)
