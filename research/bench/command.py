"""`cotenant-research bench`: one table of Cotenant beside baselines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor import offline
from advisor.errors import InvalidInput
from api.cli.options import AsJson, ReportOut, settings
from api.cli.output import print_json, print_table, progress, say
from research.bench.comparisons import FULL, QUESTIONS, QUICK, Comparison, compared
from research.bench.report import COLUMNS, cells, headline, write
from research.benchmarks.measuring import circumstances


@dataclass(frozen=True, slots=True)
class Bench:
    """What `--json` prints: when and where, how long it took in seconds, and every comparison."""

    date: str
    machine: str
    quick: bool
    seconds: float
    headline: str
    comparisons: Sequence[Comparison]


Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="QUESTION",
        help=f"Ask this question alone: {', '.join(QUESTIONS)}. May be repeated.",
        show_default="all four",
    ),
]
Peers = Annotated[
    Path,
    typer.Option(
        "--peers",
        metavar="DIR",
        help="Environments of ProxLB, Watcher and Kronos, as `make peers` makes them; those that are there take part.",
    ),
]


def bench(
    only: Only = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer cases: two minutes, wide intervals.")] = False,
    peers: Peers = Path("var/peers"),
    report: ReportOut = None,
    as_json: AsJson = False,
) -> None:
    """Cotenant beside baselines: prediction, placement, planning and speed in one table.

    Takes up to ten minutes on two slow CPUs. Every seed is fixed. Of each figure less is better; intervals are of 95 %
    by bootstrap over campaigns, clouds or questions. Training and prediction need the datasets of the repository.
    """
    if report is not None:
        offline.check_report(report)
    unknown = {*(only or ())} - {*QUESTIONS}
    if unknown:
        raise InvalidInput(f"--only {min(unknown)} is no question: write one of {', '.join(QUESTIONS)}", field="only")
    wanted, extent = [one for one in QUESTIONS if not only or one in only], QUICK if quick else FULL
    begin = time.monotonic()
    with progress() as advance:
        found = list(compared(wanted, extent, settings().datasets_dir, peers.resolve(), advance))
    result = Bench(
        **circumstances(),
        quick=quick,
        seconds=round(time.monotonic() - begin, 1),
        headline=headline(found),
        comparisons=found,
    )
    if report is not None:
        write(result, report)
    if as_json:
        print_json(result)
        return
    print_table(COLUMNS, [cells(one) for one in found], right=(2, 4))
    say()
    say(result.headline)
    say(f"{result.date}, {result.machine}; it took {result.seconds:.0f} s.")
    if report is not None:
        say(f"Report written to {report}.")
