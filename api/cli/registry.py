"""The commands `cotenant models`: list, show, gate, activate, rollback, shadow, history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.domain import ModelCard
from advisor.errors import NotFound, RefusedByGate
from advisor.service import Advisor
from api.cli.cards import print_history, print_model, print_verdict
from api.cli.endings import FAILED
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.cli.quality import quality
from api.schemas.registry import ModelOut

Version = Annotated[str, typer.Argument(help="A version from the list.")]

models = typer.Typer(
    help="The registry of learned models: which answers, which may, which did.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@models.command("list")
def list_models(database: Database = None, as_json: AsJson = False) -> None:
    """List every registered model."""
    with Advisor(settings(database=database)) as advisor:
        cards = advisor.models.listing()
    if as_json:
        print_json([ModelOut.of(card) for card in cards])
    else:
        rows = [(card.version, card.status, _gate(card), _created(card), card.origin) for card in cards]
        print_table(("version", "status", "gate", "created (UTC)", "origin"), rows)


@models.command("show")
def show_model(version: Version, database: Database = None, as_json: AsJson = False) -> None:
    """Show one model: card, training data, figures, the gate's verdict, when it answered."""
    with Advisor(settings(database=database)) as advisor:
        model = ModelOut.of(advisor.models.get(version), advisor.models.history(version))
    if as_json:
        print_json(model)
    else:
        print_model(model)


@models.command("gate")
def judge_model(version: Version, database: Database = None, as_json: AsJson = False) -> None:
    """Compare a model with the analytic and the active one on held-out rows; exit code 1 where the gate refuses it."""
    with Advisor(settings(database=database)) as advisor:
        model = advisor.models.judge(version)
    verdict = model.verdict
    if as_json:
        print_json(ModelOut.of(model))
    elif verdict is None:
        say("The analytic model needs no gate: models are compared with it.")
    else:
        print_verdict(verdict)
    if verdict is not None and not verdict["passed"]:
        raise typer.Exit(FAILED)


@models.command("activate")
def activate_model(
    version: Annotated[str, typer.Argument(help="A version from the list, or analytic for the analytic model alone.")],
    force: Annotated[bool, typer.Option("--force", help="Activate it although the gate refuses it.")] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Let this model answer from now on.

    The gate judges it first, against the model that answers now. One that lies in the state folder and is not
    registered yet is registered.
    """
    chosen = settings(database=database)
    with Advisor(chosen) as advisor:
        try:
            advisor.models.get(version)
        except NotFound:
            artifact = chosen.model_dir / version
            if Path(version).name != version or not artifact.is_dir():
                raise
            version = advisor.models.register(artifact).version
        try:
            active = advisor.models.activate(version, force=force)
        except RefusedByGate as error:
            raise RefusedByGate(error.message.replace("activate by force", "activate it with --force")) from error
    _say_active(active, as_json=as_json)


@models.command("rollback")
def roll_back_model(database: Database = None, as_json: AsJson = False) -> None:
    """Let the model answer that did before the one that answers now."""
    with Advisor(settings(database=database)) as advisor:
        active = advisor.models.roll_back()
    _say_active(active, as_json=as_json)


@models.command("shadow")
def shadow_model(
    version: Annotated[str, typer.Argument(help="A version from the list, or analytic for none.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Score this model beside the active one wherever an outcome is observed, without letting it answer."""
    with Advisor(settings(database=database)) as advisor:
        model = advisor.models.shadow(version)
    if as_json:
        print_json(ModelOut.of(model))
    elif model.status == "shadow":
        say(f"Model {model.version} is scored beside the active one from now on.")
    else:
        say("No learned model is scored beside the active one from now on.")


@models.command("history")
def show_history(database: Database = None, as_json: AsJson = False) -> None:
    """Show which model answered when, and by what that changed."""
    with Advisor(settings(database=database)) as advisor:
        changes = list(advisor.models.history())
    if as_json:
        print_json(changes)
    elif changes:
        print_history(changes)
    else:
        say("No learned model has ever been activated here.")


models.command("quality")(quality)


def _say_active(model: ModelCard, *, as_json: bool) -> None:
    if as_json:
        print_json(ModelOut.of(model))
    else:
        say(f"Model {model.version} answers from now on.")


def _gate(model: ModelCard) -> str:
    if model.verdict is None:
        return ""
    return "passed" if model.verdict["passed"] else "refused"


def _created(model: ModelCard) -> str:
    return f"{model.created_at:%Y-%m-%d %H:%M}" if model.card.get("trained", True) else "built in"
