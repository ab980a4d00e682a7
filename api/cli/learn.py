"""`cotenant train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from advisor import offline, service
from advisor.errors import AdvisorError, InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from api.cli.cards import print_verdict
from api.cli.endings import stop_event
from api.cli.options import AsJson, Cluster, Database, settings
from api.cli.output import print_json, progress, say
from api.schemas.commands import TrainingOut


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
        say("It answers from now on.")
        return
    force = "" if verdict is None or verdict["passed"] else " --force"
    say(f"It answers after: cotenant models activate {artifact.name}{force}")


def _shipped(folder: Path, *, needed: bool) -> Sequence[Path]:
    datasets = offline.datasets_to_learn(folder)
    if not datasets and needed:
        raise InvalidInput(f"no --dataset was given, and there is none in {folder}/ to learn from", field="dataset")
    return datasets
