"""`cotenant evaluate`: errors of the model and of every baseline on unseen data, as tables, JSON and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import offline
from api.cli.options import AsJson, ReportOut
from api.cli.output import print_json, print_table, progress, say

FIGURES = (
    "mape", "mae", "mape_slowdown", "mape_interfering", "p90_abs_error", "spearman", "pair_ranking_accuracy",
    "coverage", "interval_width", "rank",
)  # fmt: skip
HEADERS = ("model", "mape", "mae", "mae 95 %", "slowdown", "interfering", "p90", *FIGURES[5:])
DEFAULT = ("unseen_pair", "unseen_workload")


def evaluate(
    dataset: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR", help="Dataset directory; may be repeated, each is evaluated by itself unless --together."
        ),
    ],
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P",
            help="What is left out of training, such as unseen_pair or unseen_workload; may be repeated.",
            show_default="unseen_pair and unseen_workload",
        ),
    ] = None,
    models: Annotated[
        str, typer.Option(metavar="M,...", help="Evaluate only these models, separated by commas.", show_default="all")
    ] = "",
    together: Annotated[
        bool,
        typer.Option("--together", help="All datasets as one, such as one for each platform with unseen_platform."),
    ] = False,
    report: ReportOut = None,
    as_json: AsJson = False,
) -> None:
    """Errors of the model and of every baseline on unseen data."""
    with progress() as advance:
        result = offline.evaluate(
            dataset,
            protocols=protocol or DEFAULT,
            models=[name.strip() for name in models.split(",") if name.strip()],
            together=together,
            report=report,
            progress=advance,
        )
    if as_json:
        print_json(result)
        return
    evaluations = result.get("datasets", [result])
    for evaluation in evaluations:
        _show(evaluation)
    if len(evaluations) > 1:
        say("Mean rank over all of these, 1 is the best")
        ranks = [[name, _figure(rank)] for name, rank in result["average_rank"].items()]
        print_table(("model", "rank"), ranks, right=(1,))
    if report is not None:
        say(f"The report is in {report}.")


def _show(evaluation: Mapping[str, Any]) -> None:
    say(f"{evaluation['dataset']}: {evaluation['rows']} rows")
    for name, results in evaluation["protocols"].items():
        say()
        if "skipped" in results:
            say(f"{name}: skipped, {results['skipped']}")
            continue
        say(name)
        rows = [*_rows(results["models"]), *_rows(results.get("compositions", {}))]
        print_table(HEADERS, rows, right=range(1, len(HEADERS)))
        for sentence in _sentences(results):
            say(sentence)
    say()


def _rows(models: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            name,
            _figure(figures.get("mape")),
            _figure(figures.get("mae")),
            _edges(figures.get("intervals", {}).get("mae")),
            *(_figure(figures.get(figure)) for figure in FIGURES[2:]),
        ]
        for name, figures in models.items()
    ]


def _sentences(results: Mapping[str, Any]) -> list[str]:
    """What a table does not say: the noise, and how far ours is from the best of the others."""
    lines = []
    if noise := results.get("noise"):
        lines.append(
            f"noise of repeats: mae {_figure(noise['mae'])}, mape {_figure(noise['mape'])} ({noise['rows']} rows)"
        )
    for key in ("difference", "difference_to_composition"):
        for figure, row in (results.get(key) or {}).items():
            value = f"{row['value']:+.4g}".replace("-", "−")
            lines.append(f"{figure}: cotenant minus {row['baseline']} is {value} {_edges(row['interval'])}".rstrip())
    return lines


def _edges(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{_figure(interval[0])} to {_figure(interval[1])}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
