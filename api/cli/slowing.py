"""`cotenant slowing`: which instances slow which on a host, predicted beside measured."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.domain import HostSlowing, SlowingPair, codec
from advisor.service import Advisor
from api.cli.asking import ServerOrDatabase, TokenFile, service_or_database
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say


def slowing(
    host: Annotated[str, typer.Argument(help="The host, by id or name.")],
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 90m, 24h, 7d.")] = "24h",
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Say which instances of a host slow which, predicted beside measured.

    Measured by the run queue where the agent watches it (cotenant-profiler run --run-queue), else by correlation of
    windows: the instance waits more while a certain other one runs.
    """
    service = service_or_database(server, token_file, database)
    if service is not None:
        with service.read_as("answer"):
            name = service.named("hosts", host)["id"]
            shown = codec.decode(HostSlowing, service.get("hosts", name, "slowing", since=since))
    else:
        with Advisor(settings(database=database)) as advisor:
            name = advisor.inventory.find_host(host).id
            shown = HostSlowing.of(advisor.telemetry.slowing(name, since=since), advisor.cloud.host(name).slowing)
    if as_json:
        print_json(shown)
        return
    if shown.pairs:
        print_table(
            ("instance", "loses to", "predicted", "measured", "by"),
            [_cells(pair) for pair in shown.pairs],
            right=(2, 3),
        )
    else:
        say("No noticeable slowdown is predicted or measured.")
    if shown.elsewhere:
        say("Another store has the samples (COTENANT_PROMETHEUS_URL), so nothing measured is shown.")
    elif not shown.watched:
        say(f"No run queue is watched; correlations had {shown.windows} windows of five minutes.")


def _cells(pair: SlowingPair) -> list[str]:
    by = "" if pair.source is None else pair.source
    return [pair.victim, pair.neighbour, _figure(pair.predicted), _figure(pair.measured), by]


def _figure(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.2f}"
