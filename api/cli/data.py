"""The database: loading an inventory into it, and its upgrades."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import service
from advisor.service import Advisor
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, say

db = typer.Typer(help="Administration of the database.", no_args_is_help=True, rich_markup_mode=None)


def sync(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Inventory file: hosts, instances and workloads.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Keep hosts and instances that the file does not name.")
    ] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Load an inventory file into the database.

    Hosts and instances that the file does not name go away, unless --merge is given.
    """
    cloud = service.load_inventory(file)
    with Advisor(settings(database=database)) as advisor:
        generation = advisor.put_inventory(cloud, mode="merge" if merge else "replace", generation=None)
    counts = {"hosts": len(cloud.hosts), "instances": len(cloud.instances), "workloads": len(cloud.workloads)}
    if as_json:
        print_json({"generation": generation, **counts})
    else:
        loaded = ", ".join(f"{number} {what}" for what, number in counts.items())
        say(f"Loaded {loaded}; the inventory is at generation {generation}.")


@db.command("upgrade")
def upgrade(database: Database = None, as_json: AsJson = False) -> None:
    """Bring the database to the newest tables; safe to repeat."""
    with Advisor(settings(database=database)) as advisor:
        revision = advisor.upgrade_database()
    if as_json:
        print_json({"revision": revision})
    else:
        say(f"The database is at revision {revision}.")
