"""`cotenant doctor`: what is wrong with the cloud and the service now, in sentences."""

from __future__ import annotations

import typer

from advisor.service import Advisor
from api.cli.endings import FAILED
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, say
from api.schemas.alarms import ContradictionOut, DoctorOut


def doctor(database: Database = None, as_json: AsJson = False) -> None:
    """Say what is wrong now: contradictions, hosts without data, sources that disagree, a broken model.

    Exit code 1 where anything is.
    """
    with Advisor(settings(database=database)) as advisor:
        alarms, vitals = advisor.cloud.alarms(), advisor.cloud.vitals()
    problems = [alarm.text for alarm in alarms]
    if vitals.hosts_without_data:
        problems.append(
            f"{vitals.hosts_without_data} of {vitals.hosts} hosts sent nothing of late and get no instances: look at "
            "their agents."
        )
    problems += [f"Sources disagree on {host}: {text}." for host, text in sorted(vitals.disagreements.items())]
    if vitals.degraded:
        problems.append("The active model cannot be read, and the queueing prior stands in: look at cotenant models.")
    if as_json:
        print_json(DoctorOut(problems=problems, alarms=[ContradictionOut.like(alarm) for alarm in alarms]))
    else:
        for sentence in problems or [f"Nothing is wrong with {vitals.hosts} hosts that is known here."]:
            say(sentence)
    if problems:
        raise typer.Exit(FAILED)
