"""A stored plan as people read it: what becomes of the cloud and how the search ended, in sentences; its report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from advisor.domain import Inventory, ModelCard, Plan
from advisor.prediction.active import ActivePredictor
from advisor.reports.plan_background import Background, of_plan


def sentences(plan: Plan) -> tuple[str, ...]:
    """The headline, then how the search ended and how far the best may be from it."""
    from advisor.reports import plan_sentences  # with the drawing library, which a question does without

    return (plan_sentences.headline(plan), *plan_sentences.searched(plan))


STALE = (
    "The inventory was written since this plan was made: look whether it still holds. Pressure and who hurts whom are "
    "of the cloud as it is now."
)


def as_html(inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool) -> str:
    """The report on the cloud of now; what is computed anew for it is left out where another model answers now."""
    from advisor import reports

    return reports.plan_as_html(*_behind(inventory, plan, chosen, card, stale=stale))


def as_data(
    inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool
) -> dict[str, Any]:
    """The same report as its words and numbers."""
    from advisor import reports

    return reports.plan_as_data(*_behind(inventory, plan, chosen, card, stale=stale))


def _behind(
    inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool
) -> tuple[Inventory, Plan, Background]:
    if stale:
        plan = replace(plan, notes=(STALE, *plan.notes))
    return inventory, plan, of_plan(inventory, plan, chosen.predictor, card.card if card else None)
