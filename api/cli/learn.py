"""Learning: train, evaluate, findings, and the registry of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import service
from advisor.domain import ModelCard
from advisor.errors import InvalidInput, NotFound
from advisor.service import Advisor
from api.cli.options import AsJson, Database, ModelDir, settings
from api.cli.output import clean, print_json, print_table, progress, say
from api.schemas.registry import ModelOut

FINDING_COLUMNS = ("situation", "paper", "measured (95 % interval)", "agrees", "measured in", "predicted", "agrees")
MOST_PRINTED = 4  # printed figures per finding in the table; --json has all
FIGURES = ("mape", "mae", "p90_abs_error", "spearman", "pair_ranking_accuracy", "coverage", "interval_width")

models = typer.Typer(
    help="The registry of learned models: list, show, activate.", no_args_is_help=True, rich_markup_mode=None
)


def train(
    dataset: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Dataset directory; may be repeated.", show_default="all of datasets/"),
    ] = None,
    register: Annotated[
        bool, typer.Option("--register/--no-register", help="List the model in the database as a candidate.")
    ] = True,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Fit, calibrate, evaluate and store a model.

    The artifact goes to the state folder, COTENANT_STATE_DIR, and answers after `models activate`.
    """
    chosen = settings(database=database)
    with progress() as advance:
        artifact = service.train(dataset or _shipped(chosen.datasets_dir), settings=chosen, progress=advance)
    if register:
        with Advisor(chosen) as advisor:
            advisor.register_model(artifact)
    if as_json:
        print_json({"version": artifact.name, "artifact": str(artifact), "registered": register})
    else:
        say(f"Model {artifact.name} is in {artifact}.")
        say(f"It answers after: cotenant models activate {artifact.name}")


def evaluate(
    dataset: Annotated[Path, typer.Option(metavar="DIR", help="Dataset directory.")],
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P",
            help="What is left out of training: unseen_pair, unseen_workload, ...; may be given several times.",
            show_default="unseen_pair and unseen_workload",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Errors of the model and of every baseline on unseen data."""
    with progress() as advance:
        found = service.evaluate(
            dataset, protocols=protocol or ("unseen_pair", "unseen_workload"), settings=settings(), progress=advance
        )
    if as_json:
        print_json(found)
        return
    say(f"{found['dataset']}: {found['rows']} rows")
    for name, results in found["protocols"].items():
        say()
        say(f"{name}: skipped, {results['skipped']}" if "skipped" in results else name)
        if not results["models"]:
            continue
        rows = [
            [model, *(_figure(errors.get(figure)) for figure in FIGURES)] for model, errors in results["models"].items()
        ]
        print_table(("model", *FIGURES), rows, right=range(1, len(FIGURES) + 1))


def findings(as_json: AsJson = False, model: ModelDir = None) -> None:
    """The papers' findings: paper, measured, predicted.

    Without --model each paper is predicted by a model that was trained without that paper's own rows.
    """
    rows = service.findings(settings(), model=model)
    if as_json:
        print_json([dict(row) for row in rows])
        return
    for finding, group in groupby(rows, key=lambda row: str(row["finding"])):
        found = list(group)
        shown = [row for row in found if row["kind"] == "prediction" or row["repeats"]]
        say(f"{finding}  {clean(found[0]['title'])}")
        if shown:
            print_table(FINDING_COLUMNS, [_finding(row) for row in shown])
        else:
            plain = [[_figure(row[name]) for name in ("situation", "quantity", "paper")] for row in found]
            print_table(("printed", "quantity", "paper"), plain[:MOST_PRINTED])
        hidden = len(found) - (len(shown) or MOST_PRINTED)
        if hidden > 0:
            say(f"   and {hidden} more printed figures: --json")
        if found[0]["remark"]:
            say(f"   {clean(found[0]['remark'])}")
        say()


def _finding(row: Mapping[str, Any]) -> list[str]:
    """Cells of FINDING_COLUMNS; a prediction's row has no verdict but for orders and directions."""
    where = row["source"] or ""
    cells = [row["situation"], row["paper"], row["measured"], row["measured_agrees"], where, row["predicted"]]
    return [*(_figure(cell) for cell in cells), _figure(row["agrees"])]


@models.command("list")
def list_models(database: Database = None, as_json: AsJson = False) -> None:
    """List every registered model."""
    with Advisor(settings(database=database)) as advisor:
        found = advisor.models()
    if as_json:
        print_json([_as_json(ModelOut.of(one)) for one in found])
    else:
        rows = [(one.version, one.status, _created(one), one.origin) for one in found]
        print_table(("version", "status", "created (UTC)", "origin"), rows)


@models.command("show")
def show_model(
    version: Annotated[str, typer.Argument(help="A version from the list.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show one model with its card."""
    with Advisor(settings(database=database)) as advisor:
        found = ModelOut.of(advisor.model(version))
    if as_json:
        print_json(_as_json(found))
    else:
        rows = [("version", found.version), ("status", found.status), ("origin", found.origin)]
        print_table(("", ""), [*rows, *_flat(found.card)])


@models.command("activate")
def activate_model(
    version: Annotated[str, typer.Argument(help="A version from the list, or prior for the queueing prior alone.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Let this model answer from now on.

    One that lies in the state folder and is not registered yet is registered first.
    """
    chosen = settings(database=database)
    with Advisor(chosen) as advisor:
        try:
            active = advisor.activate_model(version)
        except NotFound:
            artifact = chosen.model_dir / version
            if Path(version).name != version or not artifact.is_dir():
                raise
            active = advisor.activate_model(advisor.register_model(artifact).version)
    if as_json:
        print_json(_as_json(ModelOut.of(active)))
    else:
        say(f"Model {active.version} answers from now on.")


def _created(model: ModelCard) -> str:
    return f"{model.created_at:%Y-%m-%d %H:%M}" if model.card.get("trained", True) else "built in"


def _shipped(folder: Path) -> Sequence[Path]:
    found = sorted(card.parent for card in folder.glob("*/dataset.yaml"))
    if not found:
        raise InvalidInput(f"no --dataset was given, and there is none in {folder}/", field="dataset")
    return found


def _as_json(model: ModelOut) -> dict[str, Any]:
    return model.model_dump(mode="json")


def _flat(card: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in card.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _figure(value)))
    return rows


def _figure(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else clean(value)
