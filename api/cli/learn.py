"""Learning: train, evaluate, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import offline
from advisor.errors import InvalidInput
from advisor.service import Advisor
from api.cli.cards import print_verdict
from api.cli.options import AsJson, Database, ModelDir, settings
from api.cli.output import clean, figure, print_json, print_table, progress, say

FINDING_COLUMNS = ("situation", "paper", "measured (95 % interval)", "agrees", "measured in", "predicted", "agrees")
MOST_PRINTED = 4  # printed figures per finding in the table; --json has all


def train(
    dataset: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Dataset directory; may be repeated.", show_default="all of datasets/"),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Train on the workers of this Dask cluster, tcp://host:port."),
    ] = None,
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
    if register:
        Advisor(chosen).close()  # a database that cannot be used is better known before a long training than after it
    with progress() as advance:
        artifact = offline.train(
            dataset or _shipped(chosen.datasets_dir), settings=chosen, progress=advance, scheduler=scheduler
        )
    verdict = None
    if register:
        with Advisor(chosen) as advisor:
            verdict = advisor.models.register(artifact).verdict
    if as_json:
        found = {"version": artifact.name, "artifact": str(artifact), "registered": register}
        print_json({**found, "verdict": None if verdict is None else dict(verdict)})
        return
    say(f"Model {artifact.name} is in {artifact}.")
    if verdict is not None:
        print_verdict(verdict)
    force = "" if verdict is None or verdict["passed"] else " --force"
    say(f"It answers after: cotenant models activate {artifact.name}{force}")


def findings(as_json: AsJson = False, model: ModelDir = None) -> None:
    """The papers' findings: paper, measured, predicted.

    Without --model each paper is predicted by a model that was trained without that paper's own rows.
    """
    from research.findings import findings as rows_of_findings  # reads all datasets and trains: only who asks waits

    rows = rows_of_findings(settings(), model)
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
            plain = [[figure(row[name]) for name in ("situation", "quantity", "paper")] for row in found]
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
    return [*(figure(cell) for cell in cells), figure(row["agrees"])]


def _shipped(folder: Path) -> Sequence[Path]:
    found = sorted(card.parent for card in folder.glob("*/dataset.yaml"))
    if not found:
        raise InvalidInput(f"no --dataset was given, and there is none in {folder}/", field="dataset")
    return found
