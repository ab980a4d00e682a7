"""The command line `cotenant`: the list of commands, and how every error becomes one sentence and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from advisor.errors import AdvisorError, InvalidInput
from api.cli import (
    ask,
    data,
    evaluate,
    learn,
    measure,
    plan,
    plans,
    probe,
    quality,
    registry,
    replay,
    report,
    serve,
    sync,
    tokens,
)

__all__ = ["app", "main"]

FAILED, WRONG_USAGE = 1, 2


class Cotenant(TyperGroup):
    """The root of all commands; what the advisor refuses is told in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except AdvisorError as error:
            typer.echo(f"cotenant: {one_line(error.message)}", err=True)
            raise typer.Exit(WRONG_USAGE if isinstance(error, InvalidInput) else FAILED) from error


app = typer.Typer(
    name="cotenant",
    cls=Cotenant,
    help="Where should this VM go, and with which settings, so that nobody on that host suffers?\n\n"
    "Settings come from COTENANT_* variables; options win. Exit codes: 0 done, 1 failed, 2 wrong usage or input.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cotenant {version('cotenant')}")
        raise typer.Exit


@app.callback()
def _root(
    shown: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del shown


app.command("serve")(serve.serve)
app.command("where")(ask.where)
app.command("predict")(ask.predict)
app.command("plan")(plan.plan)
app.command("report")(report.report)
app.command("probe-plan")(probe.probe_plan)
app.command("replay")(replay.replay)
app.command("profile")(measure.profile)
app.command("train")(learn.train)
app.command("evaluate")(evaluate.evaluate)
app.command("findings")(learn.findings)
app.command("sync")(sync.sync)
registry.models.command("quality")(quality.quality)
app.add_typer(plans.plans, name="plans")
app.add_typer(registry.models, name="models")
app.add_typer(data.db, name="db")
app.add_typer(tokens.tokens, name="token")
app.command("audit")(tokens.show_audit)


def main() -> None:
    """Entry point. Also the last resort for what nobody foresaw, and for a reader that closed the pipe."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter complains at its end
        sys.exit(FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort
        if os.environ.get("COTENANT_LOG_LEVEL", "").lower() == "debug":
            traceback.print_exc()
        hint = "set COTENANT_LOG_LEVEL=debug to see where, and report it"
        typer.echo(f"cotenant: internal error, {type(error).__name__}: {one_line(str(error))} ({hint})", err=True)
        sys.exit(FAILED)


def one_line(text: str) -> str:
    """An error as one line without control characters, for it may quote a hostile file."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
