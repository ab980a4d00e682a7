"""A stored plan for reading: its result and search in sentences, and its report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from advisor.domain import Inventory, ModelCard, Plan
from advisor.prediction.active import ActivePredictor
from advisor.reports.plan_background import Background, of_plan


def sentences(plan: Plan) -> tuple[str, ...]:
    """The headline, then how the search ended and the distance to the bound."""
    from advisor.reports import plan_sentences  # with the drawing library, which a question does without

    return (plan_sentences.headline(plan), *plan_sentences.searched(plan))


STALE = (
    "The inventory was written since this plan was made: look whether it still holds. Pressure and antagonists "
    "are those of the inventory as it is now."
)


def as_html(inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool) -> str:
    """The report on the current cloud; newly computed parts are left out where another model is active now."""
    from advisor import reports

    return reports.plan_as_html(*_behind(inventory, plan, chosen, card, stale=stale))


def as_data(
    inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool
) -> dict[str, Any]:
    """The same report as text and numbers."""
    from advisor import reports

    return reports.plan_as_data(*_behind(inventory, plan, chosen, card, stale=stale))


def _behind(
    inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool
) -> tuple[Inventory, Plan, Background]:
    if stale:
        plan = replace(plan, notes=(STALE, *plan.notes))
    return inventory, plan, of_plan(inventory, plan, chosen.predictor, card.card if card else None)
