"""The command `cotenant maintenance`: a host is closed and emptied by a plan, and opened again."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from advisor.domain import Maintenance, RolloutStanding
from advisor.errors import Conflict, InvalidInput
from advisor.service import Advisor
from api.cli.apply import show, show_preview
from api.cli.lazy import FAILED, stop_event
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.schemas.changes import MaintenanceOut, RolloutOut

MOST_NAMED = 10  # instances that stay; --json has all


def maintenance(
    host: Annotated[str | None, typer.Argument(help="The host.", show_default="list all in maintenance")] = None,
    start: Annotated[
        bool, typer.Option("--start", help="Let it take no new instances, and move all of its own away.")
    ] = False,
    end: Annotated[bool, typer.Option("--end", help="Let it take new instances again.")] = False,
    back: Annotated[
        bool, typer.Option("--back", help="With --end: bring the instances back that were moved away.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Carry it out without asking.", show_default="show it, and ask on a terminal")
    ] = False,
    here: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Ids of the hosts that are this machine.", show_default="its host name"),
    ] = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Close a host, move its instances away as a plan says, and open it again.

    Without --start and --end it says how far the maintenance is. --start closes the host in its scheduler, then moves
    its instances one by one. A move that fails ends it there, and nothing is taken back: limits hold after each move;
    --start again plans for who is left. Exit code 1 where instances stay, or it was refused.
    """
    if (start and end) or (back and not end) or (host is None and (start or end)):
        raise InvalidInput("name a host, and one of --start and --end; --back goes with --end", field="start")
    options: dict[str, Any] = {"database": database, "apply_here": here}
    with Advisor(settings(**options)) as advisor:
        if host is None:
            listed = advisor.maintenance.listing()
            if as_json:
                print_json([MaintenanceOut.of(one) for one in listed])
            else:
                rows = [(one.host, one.state, len(one.stays), one.rollout and one.rollout.rollout.id) for one in listed]
                print_table(("host", "state", "instances", "rollout"), rows, right=(2,))
            return
        known = advisor.inventory.find_host(host).id
        carried = not (start or end) or _acted(advisor, known, end=end, back=back, yes=yes, quiet=as_json)
        found = advisor.maintenance.of(known)
    if as_json:
        print_json(MaintenanceOut.of(found))
    else:
        _say(found)
    if not carried or (start and found.state != "reached"):
        raise typer.Exit(FAILED)


def _acted(advisor: Advisor, host: str, *, end: bool, back: bool, yes: bool, quiet: bool) -> bool:
    """Whether what was asked for was carried out."""
    changes = advisor.changes
    if back:
        rollout = advisor.maintenance.of(host).rollout
        if rollout is None or not rollout.rollout.keeps:
            raise Conflict(f"no maintenance of {host} was begun that is not ended: there is no instance to bring back")
        standing = changes.undo(rollout.rollout.id, f"the maintenance of {host} ended")
    else:
        planned = advisor.maintenance.end(host) if end else advisor.maintenance.start(host)
        if not _confirmed(advisor, planned, yes=yes, quiet=quiet):
            return False
        changes.approve(planned.rollout.id)
        standing = changes.carry_out(planned.rollout.id, stop=stop_event().is_set)
    if not quiet:
        show(RolloutOut.of(standing))
    return standing.state == ("taken_back" if back else "carried_out")


def _confirmed(advisor: Advisor, planned: RolloutStanding, *, yes: bool, quiet: bool) -> bool:
    previewed, refused = advisor.changes.preview(planned.rollout)
    reasons = [*(one.why_not for one in previewed if one.why_not), *refused]
    if not quiet:
        show_preview(planned.rollout, [dict(one.now) for one in previewed], reasons)
    if reasons:
        if quiet:
            raise Conflict("; ".join(reasons))
        return False
    return yes or (not quiet and sys.stdin.isatty() and typer.confirm("Carry this out?"))


def _say(found: Maintenance) -> None:
    say(f"Maintenance of {found.host}: {found.state}.")
    if found.rollout is not None:
        for note in found.rollout.rollout.notes[:MOST_NAMED]:
            say(f"  {note}")
    if found.stays and found.state not in ("none", "planned"):
        more = f" and {len(found.stays) - MOST_NAMED} more" if len(found.stays) > MOST_NAMED else ""
        say(f"  still there: {', '.join(found.stays[:MOST_NAMED])}{more}")
