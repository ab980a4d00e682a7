"""Schemas of plans: many instances placed one after another, with what is predicted for everybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from advisor.domain import Effect, Instance, Objective, Plan, PlanStep
from api.schemas.base import Answer, Figure, Schema, Time, examples
from api.schemas.effects import EffectOut, ModelRef
from api.schemas.inventory import InstanceItem, each_to_domain
from api.schemas.placements import RejectionOut
from api.schemas.settings import Isolation, SettingsOut, pinning_map


class PlanBody(Schema):
    """Instances to place, in this order."""

    model_config = examples(
        {"instances": [{"id": "shop-8", "workload": "web-1k"}, {"id": "shop-9", "workload": "web-1k"}]}
    )

    instances: Annotated[list[InstanceItem], Field(min_length=1)]
    objective: Objective = "worst"

    def to_domain(self) -> tuple[Instance, ...]:
        """The domain's instances; InvalidInput names the one that is wrong."""
        return each_to_domain("instances", self.instances, InstanceItem.as_domain)


class PlanStepOut(Answer):
    """One placement; `host` null = no host could take it, for the reasons in `rejected`."""

    instance: str
    host: str | None
    score: Figure = Field(default=None, description="of that host at that step; absent where there is no host")
    tied_with: list[str] = Field(default=[])
    pinning: dict[str, list[int]] | None = None
    isolation: Isolation | None = None
    changes: dict[str, SettingsOut] = Field(default={}, description="settings that neighbours get, by instance")
    rejected: list[RejectionOut]

    @classmethod
    def of(cls, step: PlanStep) -> PlanStepOut:
        """From the domain; what happens to whom stands in the plan's `after`."""
        rejected = [RejectionOut(host=one.host, code=one.code, reason=one.reason) for one in step.rejected]
        there = step.candidate
        if there is None:
            return cls(instance=step.instance, host=step.host, rejected=rejected)
        return cls(
            instance=step.instance,
            host=step.host,
            score=there.score,
            tied_with=list(there.tied_with),
            pinning=pinning_map(there.pinning),
            isolation=Isolation.of(there.isolation),
            changes={name: SettingsOut.of(settings) for name, settings in there.changes.items()},
            rejected=rejected,
        )


class PlanAnswer(Answer):
    """A plan, with the predicted effect on each host's instances before and after."""

    id: str
    created_at: Time
    model: ModelRef
    steps: list[PlanStepOut]
    before: dict[str, list[EffectOut]]
    after: dict[str, list[EffectOut]]

    @classmethod
    def of(cls, plan: Plan) -> PlanAnswer:
        """From the domain."""
        return cls(
            id=plan.id,
            created_at=plan.created_at,
            model=ModelRef(version=plan.model_version, origin=plan.model_origin),
            steps=[PlanStepOut.of(step) for step in plan.steps],
            before=_by_host(plan.before),
            after=_by_host(plan.after),
        )


def _by_host(effects: Mapping[str, tuple[Effect, ...]]) -> dict[str, list[EffectOut]]:
    return {host: [EffectOut.of(effect) for effect in there] for host, there in effects.items()}
