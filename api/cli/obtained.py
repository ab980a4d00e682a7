"""`cotenant obtained`: what an instance got of the CPU time that it wanted, and its stalls at disks and networks."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.domain import InstanceObtained, codec
from advisor.service import Advisor
from api.cli.asking import ServerOrDatabase, TokenFile, service_or_database
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say


def obtained(
    instance: Annotated[str, typer.Argument(help="The instance, by id or name.")],
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 90m, 24h, 7d.")] = "24h",
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Say what an instance obtained as measured: CPU time, and its stalls at disks and networks.

    By windows of five minutes; 95 % of them were no worse than the second figure. What its host does not measure is
    left out (cotenant-profiler check says why).
    """
    service = service_or_database(server, token_file, database)
    if service is not None:
        with service.read_as("answer"):
            name = service.named("instances", instance)["id"]
            measured = codec.decode(InstanceObtained, service.get("instances", name, "obtained", since=since))
    else:
        with Advisor(settings(database=database)) as advisor:
            name = advisor.inventory.find_instance(instance).id
            measured = advisor.telemetry.obtained(name, since=since)
    if as_json:
        print_json(measured)
        return
    if not measured.outcomes:
        say(f"Nothing was measured of {instance} in the last {since}.")
        return
    print_table(
        ("outcome", "unit", "mean", "95 % no worse", "worst", "windows", "is"),
        [
            (
                outcome.metric,
                outcome.unit,
                *(f"{value:.3g}" for value in (outcome.mean, outcome.tail, outcome.worst)),
                str(outcome.windows),
                outcome.help,
            )
            for outcome in measured.outcomes
        ],
        right=(2, 3, 4, 5),
    )
