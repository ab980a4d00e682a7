"""`cotenant report` and `snapshot`: files of a whole cloud, for people and for commands on files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import offline, service
from advisor.domain import Find, PlanKind, PlanRequest, found_in
from advisor.errors import InvalidInput
from advisor.service import Advisor, Reported
from api.cli.asking import ServerOrDatabase, TokenFile, asked_cloud, asked_service, service_or_database
from api.cli.options import NOTHING, AsJson, Database, ModelDir, Options, asked_of, settings, with_options
from api.cli.output import print_json, progress, say
from api.schemas.commands import ReportOut, SnapshotOut

KEEP = 30


@with_options
def report(
    out: Annotated[
        Path,
        typer.Option(metavar="OUT", help="OUT.html, or a folder in which each report is a dated folder."),
    ],
    inventory: Annotated[
        Path | None,
        typer.Argument(
            metavar="INVENTORY.yaml",
            help="Inventory file to read instead of the database.",
            show_default="the database, or the service of --server",
        ),
    ] = None,
    database: Database = None,
    kind: Annotated[
        PlanKind, typer.Option(help=f"Question that the plan in the report answers: {', '.join(service.REPORT_KINDS)}.")
    ] = "rebalance",
    add: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with the mix of which more should fit (capacity).")
    ] = None,
    asked: Annotated[
        Mapping[str, Any],
        Options(PlanRequest, ("growth", "spare_hosts", "spare_label", "keep_ratio", "time_limit_s")),
    ] = NOTHING,
    keep: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many of the newest reports in the folder to keep.")
    ] = KEEP,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report's path as JSON.")] = False,
    model: ModelDir = None,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Write a report of the whole cloud: hosts, pressure, most affected instances, age of the data, effect of a plan.

    Each is a folder with a page that needs no other file, and with all of its numbers as JSON and CSV, whole or not at
    all. Nothing is carried out.
    """
    if kind not in service.REPORT_KINDS:
        raise InvalidInput(
            f"--kind {kind} is none of {', '.join(service.REPORT_KINDS)}; ask it with plan", field="kind"
        )
    if inventory is not None and database is not None:
        raise InvalidInput("--database goes without a file; leave one of them out", field="database")
    if inventory is None and model is not None:
        raise InvalidInput("--model goes with a file; else the active model answers", field="model")
    if inventory is not None:
        service_asked = asked_service(server, token_file, inventory, model=model)
    else:
        service_asked = service_or_database(server, token_file, database, patience_s=asked["time_limit_s"])
    chosen = settings(database=database)
    question = PlanRequest(kind=kind, commands=True, **asked_of(PlanRequest, asked))

    def request(find: Find) -> PlanRequest:
        return replace(question, instances=offline.load_instances(add, find) if add else ())

    with progress() as advance:
        if inventory is not None:
            cloud = offline.load_inventory(inventory)
            made = offline.write_cloud_report(
                cloud,
                request(found_in(cloud.instances)),
                out,
                keep=keep,
                model=model,
                settings=chosen,
                progress=advance,
            )
        elif service_asked is not None:
            cloud = service_asked.inventory()
            planned = service_asked.plan(request(found_in(cloud.instances)))
            made = offline.write_planned_report(cloud, planned, out, keep=keep)
        else:
            with Advisor(chosen) as advisor:
                made = advisor.plans.write_report(request(advisor.inventory.instance), out, keep=keep, progress=advance)
    _tell(made, as_json=as_json)


def _tell(made: Reported, *, as_json: bool) -> None:
    headline = " ".join(made.headline.split())  # a page keeps figure and unit together, a line need not
    if as_json:
        print_json(ReportOut(report=str(made.path), headline=headline, removed=list(made.removed)))
        return
    say(headline)
    page = made.path / "index.html" if made.path.is_dir() else made.path
    say(f"Report written to {page}.")
    if made.removed:
        say(f"{len(made.removed)} older report{'' if len(made.removed) == 1 else 's'} deleted.")


# `cotenant snapshot`: a live cloud as one inventory file, for support, comparisons and questions elsewhere.


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
    with asked_cloud(server, token_file, database) as asked:
        cloud = asked.here.inventory.whole() if asked.service is None else asked.service.inventory()
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
