"""`cotenant snapshot`: a live cloud as one inventory file, for support, comparisons and questions elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import offline
from advisor.errors import InvalidInput
from advisor.service import Advisor
from api.cli.asking import ServerOrDatabase, TokenFile, service_or_database
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, say
from api.cli.plan import cloud_of
from api.schemas.commands import SnapshotOut


def snapshot(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT.yaml", help="File to write, - for the standard output; an existing one is replaced."
        ),
    ],
    rename: Annotated[
        bool,
        typer.Option(
            "--rename",
            help="Make up names of hosts, VMs, workloads and platforms, and texts of labels.",
        ),
    ] = False,
    database: Database = None,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Write a cloud as one file that every command on files reads.

    The file has hosts, VMs with their settings and demand, and profiles, as the database or a service has them now.
    Measured windows and answers are not in it.
    """
    to_output = str(out) == "-"
    if to_output and as_json:
        raise InvalidInput("--json reports on a file; it does not go with -", field="json")
    asked = service_or_database(server, token_file, database)
    if asked is not None:
        cloud = cloud_of(asked)
    else:
        with Advisor(settings(database=database)) as advisor:
            cloud = advisor.inventory.whole()
    text = offline.snapshot_text(cloud, rename=rename)
    if to_output:
        typer.echo(text, nl=False)
        return
    offline.write_snapshot(out, text)
    counts = {"hosts": len(cloud.hosts), "instances": len(cloud.instances), "workloads": len(cloud.workloads)}
    if as_json:
        print_json(SnapshotOut(file=str(out), renamed=rename, **counts))
        return
    numbers = f"{len(cloud.hosts)} hosts, {len(cloud.instances)} VMs and {len(cloud.workloads)} profiles"
    say(f"{numbers} written to {out}{' with made-up names' if rename else ''}.")
