"""The database: its upgrades, backups and what is kept in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import service
from advisor.errors import Conflict
from advisor.service import Advisor
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, say
from api.schemas.commands import BackupOut, PruneOut, RevisionOut

db = typer.Typer(help="Administration of the database.", no_args_is_help=True, rich_markup_mode=None)


@db.command("upgrade")
def upgrade(database: Database = None, as_json: AsJson = False) -> None:
    """Bring the database to the newest tables; safe to repeat."""
    with Advisor(settings(database=database)) as advisor:
        revision = advisor.upgrade_database()
    if as_json:
        print_json(RevisionOut(revision=revision))
    else:
        say(f"The database is at revision {revision}.")


@db.command("prune")
def prune(database: Database = None, as_json: AsJson = False) -> None:
    """Roll up old samples and forget what expired, now.

    A service at work does so by itself; COTENANT_KEEP_SAMPLES_DAYS, COTENANT_KEEP_ROLLUPS_DAYS,
    COTENANT_KEEP_RECOMMENDATIONS_DAYS and COTENANT_KEEP_PLANS_DAYS say when.
    """
    with Advisor(settings(database=database)) as advisor:
        removed = advisor.prune()
    if as_json:
        print_json(PruneOut.model_validate(removed))
    else:
        expired = f"{removed['rollups']} roll-ups expired, {removed['series']} series ended"
        answers = f"{removed['recommendations']} recommendations and {removed['plans']} plans expired"
        say(f"Rolled up {removed['samples']} samples; {expired}; {answers}.")


@db.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; an existing one is replaced.")],
    no_samples: Annotated[
        bool, typer.Option("--no-samples", help="Leave out samples, which are by far the largest part.")
    ] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write everything in the database to one file, as it is at one moment; the service may go on meanwhile.

    Model artifacts lie in the state folder: copy that too.
    """
    backed_up = service.backup_database(settings(database=database), file, samples=not no_samples)
    if as_json:
        print_json(BackupOut.model_validate(backed_up))
    else:
        say(f"{sum(backed_up['rows'].values())} rows of {len(backed_up['rows'])} tables are in {file}.")


@db.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `cotenant db backup` wrote.")],
    replace: Annotated[bool, typer.Option("--replace", help="Delete what the database holds first.")] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Bring a backup back, all of it or nothing, into a database of either kind.

    So this is the way from SQLite to PostgreSQL, too.
    """
    try:
        backed_up = service.restore_database(settings(database=database), file, replace=replace)
    except Conflict as error:
        raise Conflict(f"{error.message} (--replace)", field=error.field) from error
    if as_json:
        print_json(BackupOut.model_validate(backed_up))
    else:
        say(f"The database is as it was at {backed_up['made_at']}: {sum(backed_up['rows'].values())} rows.")
