"""The commands `cotenant plans`: plans that the service made, listed and shown with their age."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.domain import PlanAge, PlanKind
from advisor.service import Advisor
from api.cli import plan_words
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.schemas.plans import PlanAnswer, PlanItem

MOST_NAMED = 5

plans = typer.Typer(
    help="Plans that the service made: the list, and one of them with its age.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@plans.command("list")
def list_plans(
    kind: Annotated[PlanKind | None, typer.Option(help="Only plans of this kind.", show_default="all")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of plans at most.")] = 100,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List plans that were made, newest first."""
    with Advisor(settings(database=database)) as advisor:
        generation = advisor.inventory.generation()
        listed = [PlanItem.of(item, generation) for item in advisor.plans.page(kind=kind, limit=limit).items]
    if as_json:
        print_json(listed)
        return
    rows = [
        (item.id, item.kind, f"{item.created_at:%Y-%m-%d %H:%M}", item.model_version, _stale(item.stale))
        for item in listed
    ]
    print_table(("plan", "kind", "made (UTC)", "model", "stale"), rows)


@plans.command("show")
def show_plan(
    plan: Annotated[str, typer.Argument(help="An id from the list.")],
    undo: Annotated[bool, typer.Option("--undo", help="Also print the steps that take the plan back.")] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show a plan that was made, and what was written to the inventory since."""
    with Advisor(settings(database=database)) as advisor:
        stored = advisor.plans.get(plan)
        age = advisor.plans.age(stored)
    if as_json:
        print_json(PlanAnswer.of(stored, age))
        return
    plan_words.show(stored, undo=undo)
    say(_age(age, stored.generation))


def _stale(stale: bool | None) -> str:
    return "unknown" if stale is None else "yes" if stale else "no"


def _age(age: PlanAge, generation: int | None) -> str:
    """One sentence."""
    if age.stale is None:
        return "For which inventory it was made is not known: it may be stale."
    if not age.stale:
        return f"The inventory was not written since (generation {age.generation})."
    start = f"Stale: it was made for generation {generation} of the inventory, which is at {age.generation} now"
    if age.hosts is None or age.instances is None:
        return f"{start}; what changed since is no longer known. Ask again."
    changed = [*(f"host {name}" for name in age.hosts), *(f"instance {name}" for name in age.instances)]
    named = ", ".join(changed[:MOST_NAMED]) or "workloads only"
    more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
    return f"{start}; changed since: {named}{more}. Ask again."
