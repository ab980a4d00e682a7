"""`cotenant doctor`: what is wrong with the cloud and the service now, in sentences."""

from __future__ import annotations

import typer

from advisor.domain import Checkup, codec
from advisor.service import Advisor
from api.cli.asking import ServerOrDatabase, TokenFile, service_or_database
from api.cli.endings import FAILED
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, say


def doctor(
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Say what is wrong now: hosts without measurements, instances that get little of their CPU time, anomalies.

    Also hosts whose own work takes CPUs from instances, sources that disagree, and a broken model. Exit code 1 where
    anything is.
    """
    service = service_or_database(server, token_file, database)
    if service is not None:
        with service.read_as("checkup"):
            found = codec.decode(Checkup, service.get("checkup"))
    else:
        with Advisor(settings(database=database)) as advisor:
            found = advisor.cloud.checkup()
    if as_json:
        print_json(found)
    else:
        for sentence in found.problems or (found.looked_at,):
            say(sentence)
    if found.problems:
        raise typer.Exit(FAILED)
