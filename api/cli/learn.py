"""`cotenant train` and `cotenant evaluate`: fit a model, and compare it with every baseline on unseen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import offline, service
from advisor.errors import AdvisorError, InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from api.cli.lazy import stop_event
from api.cli.options import AsJson, Cluster, Database, ReportOut, settings
from api.cli.output import print_json, print_table, progress, say
from api.cli.registry import print_verdict
from api.schemas.commands import TrainingOut

# `cotenant evaluate`: errors of the model and of every baseline on unseen data, as tables, JSON and a report.

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
            help="What training leaves out, such as unseen_pair or unseen_workload; may be repeated.",
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
    """Evaluate the model and every baseline on unseen data."""
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
        say("Mean rank over all of these (1 = best)")
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


def train(
    dataset: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Dataset directory; may be repeated.",
            show_default="all of datasets/ but those with learn: false",
        ),
    ] = None,
    from_telemetry: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Learn from windows that agents measured in this time, such as 14d, and from what users posted, too.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --from-telemetry: repeat at this interval, such as 1d, until SIGTERM."),
    ] = None,
    auto: Annotated[
        bool,
        typer.Option(
            "--auto",
            help="With --from-telemetry: activate what the gate lets pass, and first roll the active model back "
            "where windows showed it to be worse than the analytic model.",
        ),
    ] = False,
    cluster: Cluster = None,
    register: Annotated[
        bool, typer.Option("--register/--no-register", help="Register the model in the database as a candidate.")
    ] = True,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Fit, calibrate, evaluate and store a model.

    The artifact goes to the state folder, COTENANT_STATE_DIR, and answers after `models activate`.
    """
    chosen = settings(database=database)
    if from_telemetry is None and (every is not None or auto):
        raise InvalidInput("--every and --auto go with --from-telemetry", field="from_telemetry")
    if auto and not register:
        raise InvalidInput("--auto activates, so it needs a model that is registered", field="auto")
    span_s = None if from_telemetry is None else service.span_s(from_telemetry)
    pause_s = None if every is None else service.every_s(every)
    if register:
        Advisor(chosen).close()  # a database that cannot be used is better known before a long training than after it

    def once() -> None:
        folders = list(dataset or _shipped(chosen.datasets_dir, needed=span_s is None))
        if span_s is not None:
            with Advisor(chosen) as advisor:
                if auto:
                    _look_back(advisor, as_json=as_json)
                folders += advisor.telemetry_datasets(span_s)
        with progress() as advance:
            artifact = offline.train(folders, settings=chosen, progress=advance, cluster=cluster)
        _take_in(artifact, chosen, register=register, auto=auto, as_json=as_json)

    if pause_s is None:
        once()
        return
    service.repeat(once, pause_s, stop_event(), "model")


def _look_back(advisor: Advisor, *, as_json: bool) -> None:
    """Roll back what turned out worse, and say so."""
    judged = advisor.roll_back_if_worse()
    if judged is not None and not as_json:
        compared = "worse than" if judged.worse else "no worse than"
        errors = f"mean error of the share {judged.error:.3f} against {judged.prior:.3f} in {judged.scenes} windows"
        say(f"Model {judged.version} turned out {compared} the analytic model: {errors}.")


def _take_in(artifact: Path, chosen: Settings, *, register: bool, auto: bool, as_json: bool) -> None:
    """Register and activate a model as far as that is wanted, and say what became of it."""
    verdict, activated = None, False
    if register:
        with Advisor(chosen) as advisor:
            try:
                verdict = advisor.models.register(artifact).verdict
            except AdvisorError as error:  # what took so long is not lost
                advice = f"it is kept in {artifact}; cotenant models activate {artifact.name} tries again"
                raise type(error)(f"{error.message}; {advice}", field=error.field) from error
            if auto and verdict is not None and verdict["passed"]:
                advisor.models.activate(artifact.name)
                activated = True
    if as_json:
        made = TrainingOut(
            version=artifact.name,
            artifact=str(artifact),
            registered=register,
            verdict=None if verdict is None else dict(verdict),
        )
        print_json(made.model_copy(update={"activated": activated}) if auto else made)
        return
    say(f"Model {artifact.name} is in {artifact}.")
    if verdict is not None:
        print_verdict(verdict)
    if activated:
        say("It is active now.")
        return
    force = "" if verdict is None or verdict["passed"] else " --force"
    say(f"Activate it with: cotenant models activate {artifact.name}{force}")


def _shipped(folder: Path, *, needed: bool) -> Sequence[Path]:
    datasets = offline.datasets_to_learn(folder)
    if not datasets and needed:
        raise InvalidInput(f"no --dataset was given, and there is none in {folder}/ to learn from", field="dataset")
    return datasets
