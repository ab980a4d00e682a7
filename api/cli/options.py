"""Options that several commands share, and the settings that come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from advisor.domain import PLAN_LIMITS, Growth, Objective
from advisor.errors import InvalidInput
from advisor.settings import Settings
from api.messages import own_words


def bounded(name: str, **more: Any) -> Any:
    """An option for a number of a plan's question, with the limits that it has at every door."""
    least, most = PLAN_LIMITS[name]
    return typer.Option(min=least, max=most, **more)


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
        help="Name of the cloud in clouds.yaml, or of the section in ~/.cloudstack.ini, ~/.proxmox.ini or "
        "~/.xenserver.ini, or of the context in the kubeconfig.",
        show_default="what the environment says",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With proxmox and xapi: PEM of who signed its certificate, such as pve-root-ca.pem."
    ),
]
Fingerprint = Annotated[
    str | None,
    typer.Option(
        metavar="SHA256", help="With proxmox and xapi: its certificate's fingerprint, in place of a check by CA."
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
        show_default="the newest in the state folder that the gate let pass, else the queueing prior",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Database URL.", show_default="COTENANT_DATABASE, else sqlite:///var/cotenant.sqlite3"
    ),
]
ObjectiveName = Annotated[
    Objective,
    typer.Option(help="worst: best for the worst-off instance; total: best combined score; pack: fewest hosts."),
]
InstanceGrowth = Annotated[
    float | None,
    bounded(
        "growth.instances_per_month",
        metavar="N",
        help="Instances of the mix that come each month (capacity).",
    ),
]
LoadGrowth = Annotated[
    float,
    bounded(
        "growth.load_percent_per_month",
        metavar="PERCENT",
        help="How much the load of all instances grows each month.",
    ),
]
Months = Annotated[
    int | None,
    bounded("growth.months", help="How many months to look ahead.", show_default=str(Growth().months)),
]
GrowthUncertain = Annotated[
    float,
    bounded(
        "growth.uncertain_percent",
        metavar="PERCENT",
        help="By how much of itself growth may be more or less.",
    ),
]
SpareHosts = Annotated[
    int,
    bounded(
        "spare_hosts",
        metavar="N",
        help="So many hosts may fail together and everybody still has one (capacity).",
    ),
]
SpareLabel = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL",
        help="Not single hosts fail but all hosts of so many values of this label, such as rack.",
        show_default="single hosts",
    ),
]
KeepRatio = Annotated[
    float,
    bounded("keep_ratio", help="T/B that an instance without a limit of its own must keep; less counts as below."),
]
MoveGain = Annotated[
    float,
    bounded(
        "move_gain",
        help="What a move must gain at least: part of its speed and time that the worst-off keeps more, and 0.3 of "
        "what all others keep more.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Run on the workers of this Dask cluster, tcp://host:port; needs cotenant[cluster].",
        show_default="processes of this machine",
    ),
]
Seed = Annotated[int, bounded("seed", help="Seed of random choices; the same seed gives the same answer.")]
ReportOut = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT", help="Write a report: OUT.html, or a folder with its data, too.", show_default="no report"
    ),
]
TimeLimit = Annotated[
    float,
    bounded(
        "time_limit_s",
        metavar="SECONDS",
        help="Stop the search for a plan after this time and answer the best one found.",
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
