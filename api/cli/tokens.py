"""`cotenant db`, `token`, `audit`: administration of the database and of who may use the service."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import service
from advisor.domain import AuditEntry, Token, TokenScope
from advisor.errors import Conflict, InvalidInput
from advisor.service import Advisor
from api.cli.asking import ServerOrDatabase, TokenFile, asked_cloud
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.schemas.commands import BackupOut, PruneOut, RevisionOut, TokenMade, TokenOut
from profiler.files import read_secret

# The database: its upgrades, backups and what is kept in it.

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
        bool, typer.Option("--no-samples", help="Leave out samples, the largest part by far.")
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


Scope = Annotated[
    TokenScope,
    typer.Option(
        help="read: questions that store nothing; write: also inventory, samples, placements; admin: also models; act: "
        "orders to the agent of one host (--host), and nothing else."
    ),
]
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
tokens = typer.Typer(help="Tokens of the REST service.", no_args_is_help=True, rich_markup_mode=None)


@tokens.command("create")
def create(
    name: Annotated[str, typer.Option(metavar="NAME", help="Person or program that the token is for.")],
    scope: Scope = "read",
    host: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Make a token for the agent of this host: it may send what belongs to that host, and nothing else.",
            show_default=False,
        ),
    ] = "",
    expires: Annotated[
        str, typer.Option(metavar="TIME", help="Validity of the token, such as 12h or 90d, or never.")
    ] = "365d",
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Make a token; it is shown this once.

    Standard output has the token alone, so that it can go into a file. Once there is a token, requests without one are
    refused for good.
    """
    lasts = _lasts(expires)
    with Advisor(settings(database=database)) as advisor:
        allowed: TokenScope = "write" if host and scope != "act" else scope
        token, text = advisor.access.tokens.create(name, allowed, lasts=lasts, host=host)
    if as_json:
        print_json(TokenMade.model_validate({**dict(_described(token)), "token": text}))
        return
    what = f"for the agent of host {token.host}" if token.host else f"of scope {token.scope}"
    typer.echo(f"Token {token.id} {what} {_until(token)}. It is shown this once:", err=True)
    say(text)


@tokens.command("accept")
def accept(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File with the token alone, mode 640 or less.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Person or program that the token is for.")],
    scope: Scope = "read",
    database: Database = None,
) -> None:
    """Accept a token that was made elsewhere, such as one in a Secret of Kubernetes that its client reads, too.

    Accepting it again changes nothing.
    """
    try:
        text = read_secret(file).strip()
    except ValueError as error:
        raise InvalidInput(str(error), field="file") from error
    with Advisor(settings(database=database)) as advisor:
        token = advisor.access.tokens.accept(text, name, scope)
    say(f"Token {token.id} of {token.name} is accepted, scope {token.scope}.")


@tokens.command("list")
def list_tokens(database: Database = None, as_json: AsJson = False) -> None:
    """List every token, also revoked ones, without their secrets, which are not stored."""
    with Advisor(settings(database=database)) as advisor:
        listed = advisor.access.tokens.listing()
    if as_json:
        print_json([_described(token) for token in listed])
        return
    rows = [
        (token.id, token.name, _scope(token), _state(token), _shown(token.created_at), _shown(token.expires_at))
        for token in listed
    ]
    print_table(("id", "name", "scope", "state", "created (UTC)", "expires (UTC)"), rows)


@tokens.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="An id from the list.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """End a token, on every server within a second."""
    with Advisor(settings(database=database)) as advisor:
        token = advisor.access.tokens.revoke(token_id)
    if as_json:
        print_json(_described(token))
    else:
        say(f"Token {token.id} ({token.name}) is revoked.")


def show_audit(
    actor: Annotated[
        str | None, typer.Option(metavar="ACTOR", help="Only entries of this actor: local, token:ID or keystone:USER.")
    ] = None,
    named: Annotated[
        str | None, typer.Option("--object", metavar="ID", help="Only entries that name this object.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of entries, the newest first.")
    ] = 100,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show changes and refused requests by user, newest first."""
    with asked_cloud(server, token_file, database) as cloud:
        entries = cloud.every(
            AuditEntry,
            lambda advisor: advisor.access.audit(actor=actor, named=named, limit=limit).items,
            "audit",
            most=limit,
            actor=actor,
            object=named,
        )
        listed = () if cloud.advisor is None else cloud.advisor.access.tokens.listing()  # REST names no token
    names = {f"token:{token.id}": f"token:{token.id} ({token.name})" for token in listed}
    if as_json:
        print_json(entries)
        return
    rows = [
        (
            f"{entry.at:%Y-%m-%d %H:%M:%S}",
            names.get(entry.actor, entry.actor),
            entry.operation,
            " ".join(entry.objects),
            _said(entry.detail),
        )
        for entry in entries
    ]
    print_table(("when (UTC)", "who", "what", "of", "with"), rows)


def _lasts(text: str) -> timedelta | None:
    if text == "never":
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if not match:
        raise InvalidInput(f"--expires {text[:40]!r} is not a duration; write 12h, 90d or never", field="expires")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _described(token: Token) -> TokenOut:
    return TokenOut.model_validate(asdict(token) | {"host": token.host or None, "state": _state(token)})


def _scope(token: Token) -> str:
    return f"{'changes on' if token.scope == 'act' else 'agent of'} {token.host}" if token.host else token.scope


def _state(token: Token) -> str:
    if token.revoked_at is not None and token.revoked_at != token.expires_at:
        return "revoked"
    over = token.expires_at is not None and token.expires_at <= (token.revoked_at or datetime.now(UTC))
    return "expired" if over else "valid"


def _until(token: Token) -> str:
    return f"lasts until {_shown(token.expires_at)} UTC" if token.expires_at else "never expires"


def _shown(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M}" if time else ""


def _said(detail: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in detail.items() if value is not None)
