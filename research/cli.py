"""`cotenant-research`: what papers found, beside what was measured and what is predicted."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from api.cli import Cotenant, run_program
from api.cli.lazy import Listed


class Research(Cotenant):
    """The commands; what the advisor refuses is one sentence."""

    program = "cotenant-research"
    listed = (
        Listed("findings", "research.findings.command:findings", "The papers' findings: paper, measured, predicted."),
    )


app = typer.Typer(
    name=Research.program,
    cls=Research,
    help="What papers found, beside what was measured and what is predicted.\n\n"
    "Settings come from COTENANT_* variables; options win. Exit codes: 0 done, 1 failed, 2 wrong usage or input.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{Research.program} {version('cotenant-research')}")
        raise typer.Exit


@app.callback()
def _root(
    shown: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del shown


def main() -> None:
    """Entry point."""
    run_program(app, Research.program)
