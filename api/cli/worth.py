"""`cotenant worth`: what the advice of a week was worth, as sentences, JSON or a report."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor import offline
from advisor.domain import PlacementWorth, PredictedAndMeasured
from advisor.service import Advisor
from api.cli.options import AsJson, Database, ReportOut, settings
from api.cli.output import print_json, print_table, say

COLUMNS = (
    "asked", "instance", "went to", "advised", "predicted", "measured", "windows", "neighbours", "where most is free",
)  # fmt: skip


def worth(
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 24h, 7d, 30d.")] = "7d",
    report: ReportOut = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Say what effect the advice had: followed or not, predicted against measured, beside similar instances.

    Of instances that came to their hosts in this time, in windows that agents measured. Where too few are alike it says
    so in place of a figure.
    """
    if report is not None:
        offline.check_report(report)
    with Advisor(settings(database=database)) as advisor:
        advice = advisor.outcomes.worth(since=since)
    if report is not None:
        offline.write_worth_report(advice, report)
    if as_json:
        print_json(advice)
        return
    for sentence in advice.sentences:
        say(sentence)
    if advice.placements:
        say()
        print_table(COLUMNS, [_cells(placement) for placement in advice.placements], right=(4, 5, 6, 7, 8))
    if report is not None:
        say(f"Report written to {report}.")


def _cells(placement: PlacementWorth) -> list[str]:
    band = placement.band
    free = next((other for other in placement.alternatives if other.why == "most_free"), None)
    return [
        f"{placement.asked_at:%Y-%m-%d %H:%M}",
        placement.instance,
        placement.host,
        placement.advised or "nowhere",
        "" if band is None else f"{band.expected:.2f} ({band.lower:.2f}-{band.upper:.2f})",
        _observed(placement.new_vm),
        "0" if placement.new_vm is None else str(placement.new_vm.windows),
        _observed(placement.residents),
        "" if free is None else f"{free.share:.2f} on {free.host}",
    ]


def _observed(outcome: PredictedAndMeasured | None) -> str:
    return "" if outcome is None else f"{outcome.observed:.2f}"
