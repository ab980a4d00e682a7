"""`cotenant doctor`: what is wrong with the cloud and the service now, in sentences."""

from __future__ import annotations

import typer

from advisor.service import Advisor
from api.cli.endings import FAILED
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, say
from api.schemas.alarms import DoctorOut


def doctor(database: Database = None, as_json: AsJson = False) -> None:
    """Say what is wrong now: hosts without measurements, instances that get little of their CPU time, anomalies.

    Also hosts whose own work takes CPUs from instances, sources that disagree, and a broken model. Exit code 1 where
    anything is.
    """
    with Advisor(settings(database=database)) as advisor:
        found = advisor.cloud.checkup()
    if as_json:
        print_json(DoctorOut.like(found))
    else:
        for sentence in found.problems or (found.looked_at,):
            say(sentence)
    if found.problems:
        raise typer.Exit(FAILED)
