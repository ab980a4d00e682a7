"""Options that several commands share, and the settings that come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from advisor.domain import Objective, PlanRequest
from advisor.errors import InvalidInput
from advisor.settings import Settings
from api.cli.declared import declared_option
from api.messages import own_words

InventoryFile = Annotated[Path, typer.Argument(metavar="INVENTORY.yaml", help="Hosts, instances and workloads.")]
InventoryUnlessServer = Annotated[
    Path | None,
    typer.Argument(metavar="[INVENTORY.yaml]", help="Hosts, instances and workloads; left out with --server."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
CloudName = Annotated[
    str | None,
    typer.Option(
        "--cloud",
        metavar="NAME",
        help="Name of the cloud in clouds.yaml, of the context in the kubeconfig, or of the section in the file of "
        "accounts of another system.",
        show_default="what the environment says",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With a system that takes it: PEM of the CA of its certificate."),
]
Fingerprint = Annotated[
    str | None,
    typer.Option(
        metavar="SHA256", help="With a system that takes it: its certificate's fingerprint, in place of a check by CA."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
ModelDir = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Model artifact that answers.",
        show_default="the newest in the state folder that the gate let pass, else the analytic model",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Database URL.", show_default="COTENANT_DATABASE, else sqlite:///var/cotenant.sqlite3"
    ),
]
ObjectiveName = Annotated[Objective, declared_option(PlanRequest, "objective")]
KeepRatio = Annotated[float, declared_option(PlanRequest, "keep_ratio")]
Seed = Annotated[int, declared_option(PlanRequest, "seed")]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Run on the workers of this Dask cluster, tcp://host:port; needs cotenant[cluster].",
        show_default="processes of this machine",
    ),
]
ReportOut = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT", help="Write a report: OUT.html, or a folder with its data, too.", show_default="no report"
    ),
]


def settings(**options: Any) -> Settings:
    """The settings from environment and options; an option that was not given changes nothing."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        source = f"--{name}" if name in given else f"COTENANT_{name.upper()}"
        raise InvalidInput(f"{source}: {own_words(first['msg'])}", field=name) from error
