"""A stored plan for reading: the document that every front end shows, and its report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from advisor.domain import Inventory, ModelCard, Plan
from advisor.prediction.active import ActivePredictor
from advisor.reports import plan_tables
from advisor.reports.parts import ReportDocument, Section
from advisor.reports.plan_background import Background, of_plan


def document(plan: Plan) -> ReportDocument:
    """What every front end shows of a plan: its result, how it was found, and the tables that compare clouds.

    The report (`advisor.reports.plan`) adds what needs the inventory that the plan was made for.
    """
    from advisor.reports import plan_sentences as words  # with the drawing library, which a question does without

    sections = (
        Section("sizing", plan_tables.SIZING, plan_tables.SHORT, tables=[plan_tables.sizing(plan)]),
        Section("runway", "Month by month", tables=[plan_tables.runway(plan)]),
        Section("variants", plan_tables.VARIANTS, tables=[plan_tables.variants(plan)]),
        Section("cloud", "The cloud in figures", tables=() if plan.variants else [plan_tables.sums(plan)]),
        Section("scores", plan_tables.SCORES, tables=() if plan.variants else [plan_tables.scores(plan)]),
    )
    return ReportDocument(
        what="plan",
        title=words.TITLES[plan.request.kind],
        headline=words.headline(plan),
        sentences=(*words.fits(plan), *words.searched(plan)),
        facts=words.facts(plan),
        sections=[section for section in sections if section],
        made_at=plan.created_at,
    )


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
