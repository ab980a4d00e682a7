"""`cotenant models quality`: how a model's predictions held against what was observed."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.service import Advisor
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.schemas.quality import GroupOut, QualityOut, WindowGroupOut

COLUMNS = ("role", "target", "of", "rows", "scenes", "in 90 % interval", "error", "bias", "outside", "widen", "drift")
OF_WINDOWS = (
    "windows", "asked", "of", "known as", "rows", "number", "in 90 % interval", "error", "bias", "90 % at", "widen",
)  # fmt: skip


def quality(
    version: Annotated[
        str | None, typer.Argument(help="A version from the list.", show_default="the one that answers")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=20, max=10_000, metavar="N", help="Number of observed rows per group at most.", show_default="200"
        ),
    ] = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Predicted against observed: coverage, error and drift of a model.

    Per platform and workload, of what was reported to POST /v1/colocations and POST /v1/placements/{placement}/outcome;
    and of windows that agents measured, by kind of host and by what was known of the instances.
    """
    with Advisor(settings(database=database)) as advisor:
        shown = QualityOut.of(advisor.outcomes.quality(version, window=last))
    if as_json:
        print_json(shown)
        return
    say(f"Model {shown.version}, the last {shown.last} observations of each group:")
    for sentence in shown.verdict:
        say(f"  {sentence}")
    if shown.groups:
        say()
        print_table(COLUMNS, [_cells(group) for group in shown.groups], right=range(3, 10))
    if shown.windows:
        say()
        say("How well answers held here, in windows that agents measured:")
        print_table(OF_WINDOWS, [_of_windows(group) for group in shown.windows], right=range(4, 11))
    for other in shown.beside:
        say(f"{other.text}")


def _cells(group: GroupOut) -> list[str]:
    figures = group.figures
    share = f"{figures.coverage:.0%} ({figures.coverage_low:.0%}-{figures.coverage_high:.0%})"
    return [
        group.role,
        group.target,
        "all" if group.scope == "all" else f"{group.scope} {group.name or 'unknown'}",
        str(figures.rows),
        str(figures.scenes),
        share,
        f"{figures.error:.3f}",
        f"{figures.bias:+.3f}",
        f"{figures.outside:.0%}",
        "" if group.widening is None else f"x {group.widening:.2f}",
        ", ".join(f"{alarm.kind} since {alarm.since:%Y-%m-%d %H:%M}" for alarm in group.alarms),
    ]


def _of_windows(group: WindowGroupOut) -> list[str]:
    return [
        "contended" if group.contended else "calm",
        "before" if group.question == "forecast" else "with its demand",
        group.platform,
        group.level or "all",
        str(group.rows),
        str(group.scenes),
        f"{group.coverage:.0%} ({group.coverage_low:.0%}-{group.coverage_high:.0%})",
        f"{group.error:.3f}",
        f"{group.bias:+.3f}",
        f"x {group.scaled:.2f}",
        "" if group.widening is None else f"x {group.widening:.2f}",
    ]
