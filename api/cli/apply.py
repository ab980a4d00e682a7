"""`cotenant apply`, `changes`, `freeze`: carries changes out, lists them with verdicts, and stops them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.domain import (
    Maintenance,
    Plan,
    PlanRequest,
    Recommendation,
    Rollout,
    RolloutStanding,
    RolloutState,
    plan_from_json,
)
from advisor.errors import Conflict, InvalidInput, NotFound
from advisor.service import Advisor, ChangeService
from advisor.service import standing_of as planned
from api.cli.asking import ServerOrDatabase, TokenFile, asked_cloud
from api.cli.lazy import FAILED, stop_event
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.schemas.changes import FreezeOut, MaintenanceOut, PreviewOut, RolloutOut, StepOut

MOST_BYTES = 64 * 2**20  # of a plan's file
POLL_S = 5.0


def apply(
    source: Annotated[
        str, typer.Argument(help="Id of a plan, answer or rollout, or a file that `--json` of a plan wrote.")
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Carry it out without asking.", show_default="show it, and ask on a terminal")
    ] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would be done.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted rollout.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo a rollout.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Wait for the next windows, and undo the changes if they did harm."),
    ] = False,
    here: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Ids of the hosts that are this machine.", show_default="its host name"),
    ] = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Apply a plan, a tuning or an answer, measure its effect, and undo it.

    Without --yes it shows each change beside what the system has now, and what it would run; on a terminal it asks. The
    setting apply_mode must be ask or act. Each step is a line of the ledger before it is done and one after. A failed
    step takes back what was done before. Exit code 1 where it was refused, failed or taken back.
    """
    if undo and (resume or yes or preview):
        raise InvalidInput("--undo goes with none of --resume, --yes and --preview", field="undo")
    options: dict[str, Any] = {"database": database, "apply_here": here}
    stop = stop_event()
    with Advisor(settings(**options)) as advisor:
        changes = advisor.changes
        if undo:
            standing = changes.undo(source, "by hand")
        elif resume:
            standing = changes.get(source)
            if standing.state != "carried_out":  # else it is only watched
                standing = changes.carry_out(source, stop=stop.is_set)
        else:
            begun = _begun(advisor, source, yes=yes, only_preview=preview, as_json=as_json)
            if begun is None:
                return
            standing = changes.carry_out(begun, stop=stop.is_set)
        if watch:
            standing = _watched(changes, standing, stop, as_json=as_json)
    if as_json:
        print_json(RolloutOut.of(standing))
    else:
        show(RolloutOut.of(standing))
    if standing.state not in ("carried_out", "canary", "taken_back" if undo else "carried_out"):
        raise typer.Exit(FAILED)


def _begun(advisor: Advisor, source: str, *, yes: bool, only_preview: bool, as_json: bool) -> str | None:
    """The id of a rollout that may be carried out; None where it is only shown."""
    rollout, stored = _found(advisor, source)
    previewed, refused = advisor.changes.preview(rollout)
    reasons = [*(one.why_not for one in previewed if one.why_not), *refused]
    asks = not yes and not only_preview and not as_json and not reasons and sys.stdin.isatty()
    if as_json and (only_preview or not yes or reasons):
        print_json(PreviewOut.preview(planned(rollout, ()), previewed, refused))
    elif not as_json:
        show_preview(rollout, [dict(one.now) for one in previewed], reasons)
    if only_preview:
        return None
    if reasons:
        raise typer.Exit(FAILED)
    if not yes and not (asks and typer.confirm("Carry this out?")):
        return None
    if not stored:
        advisor.changes.store(rollout)
        advisor.changes.approve(rollout.id)
    elif advisor.changes.get(rollout.id).state == "planned":
        advisor.changes.approve(rollout.id)
    return rollout.id


def _found(advisor: Advisor, source: str) -> tuple[Rollout, bool]:
    """The rollout, and whether it is stored already."""
    path = Path(source)
    if path.suffix == ".json" or path.is_file():
        return _of(advisor.changes, _read(path)), False
    for get in (advisor.changes.get, advisor.plans.get, advisor.placements.get):
        try:
            found = get(source)
        except NotFound:
            continue
        if isinstance(found, RolloutStanding):
            return found.rollout, True
        return _of(advisor.changes, found), False
    raise NotFound(f"there is no plan, answer or rollout {source}, and no such file")


def _of(changes: ChangeService, found: Plan | Recommendation) -> Rollout:
    return changes.of_plan(found) if isinstance(found, Plan) else changes.of_answer(found)


def _read(path: Path) -> Plan:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", field="source") from error
    if len(text) > MOST_BYTES:
        raise InvalidInput(f"{path} is larger than {MOST_BYTES // 2**20} MiB", field="source")
    try:
        return plan_from_json(json.loads(text), PlanRequest())
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        message = f"{path} is no plan as `cotenant plan --json` or `tune --json` writes it"
        raise InvalidInput(message, field="source") from error


def _watched(changes: ChangeService, standing: RolloutStanding, stop: Any, *, as_json: bool) -> RolloutStanding:
    if not as_json:
        say("Waiting for the next windows; Ctrl-C ends only the waiting.")
    while standing.state in ("carried_out", "canary") and (not standing.effects or standing.state == "canary"):
        if stop.wait(POLL_S):
            break
        standing = changes.watch(standing.rollout.id)
    return standing


def show_preview(rollout: Rollout, now: list[dict[str, str]], reasons: list[str]) -> None:
    """What would be done, beside what the system has now, and why it may not be."""
    rows = []
    for change, texts in zip(rollout.changes, now, strict=True):
        for name, text in change.after.items():
            rows.append((change.number + 1, change.host, change.subject, change.kind, name, texts.get(name, "?"), text))
    print_table(("step", "host", "instance", "kind", "setting", "now", "then"), rows, right=(0,))
    for one in rollout.predicted:
        expected = one.change
        beside = f"beside {len(one.controls)} alike" if one.controls else "beside the time before"
        spread = f"{expected.expected:+.2f} [{expected.lower:+.2f}, {expected.upper:+.2f}]"
        say(f"  {one.instance}: predicted {spread}, {beside}")
    for note in rollout.notes:
        say(f"  note: {note}")
    for reason in reasons:
        say(f"Refused: {reason}.")


def show(rollout: RolloutOut) -> None:
    """What became of a rollout."""
    say(f"Rollout {rollout.id} of {rollout.source}: {rollout.state.replace('_', ' ')}.")
    if rollout.why:
        say(f"  why: {rollout.why}")
    rows = [
        (
            step.number + 1,
            step.host,
            step.instance or ("the host" if step.kind == "host" else "driver domain"),
            step.kind,
            step.state,
            step.why,
        )
        for step in rollout.steps
    ]
    print_table(("step", "host", "instance", "kind", "state", "why"), rows, right=(0,))
    for effect in rollout.effects:
        say(f"  {effect.instance}: {effect.verdict}: {effect.why}")
    if rollout.state in ("carried_out", "canary"):
        say(f"Undo it with: cotenant apply {rollout.id} --undo")
    if rollout.state in ("applying", "undoing"):
        say(f"Resume it with: cotenant apply {rollout.id} --resume")


def _subject(step: StepOut) -> str:
    return step.instance or ("the host" if step.kind == "host" else "driver domain")


# The commands `cotenant changes` and `cotenant freeze`: the ledger, approvals, and the switch that stops all.

RolloutId = Annotated[str, typer.Argument(help="An id from the list.")]

changes = typer.Typer(
    help="Changes that were applied: list them, show one with its ledger, approve one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@changes.command("list")
def list_changes(
    state: Annotated[RolloutState | None, typer.Option(help="Only rollouts in this state.", show_default="all")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of rollouts.")] = 100,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """List rollouts with what they brought, newest first."""
    with asked_cloud(server, token_file, database) as cloud:
        listed = cloud.every(
            RolloutOut,
            lambda advisor: map(RolloutOut.of, advisor.changes.page(state=state, limit=limit).items),
            "changes",
            most=limit,
            state=state,
        )
    if as_json:
        print_json(listed)
        return
    rows = [
        (
            one.id,
            f"{one.created_at:%Y-%m-%d %H:%M}",
            one.source,
            len(one.steps),
            one.state.replace("_", " "),
            one.verdict if one.effects else "",
        )
        for one in listed
    ]
    print_table(("rollout", "made (UTC)", "of", "changes", "state", "verdict"), rows, right=(3,))


@changes.command("show")
def show_changes(
    rollout: RolloutId,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show a rollout, what it brought, and every line of its ledger."""
    with asked_cloud(server, token_file, database) as cloud:
        standing = cloud.ask(
            RolloutOut, lambda advisor: RolloutOut.of(advisor.changes.get(rollout)), "changes", rollout
        )
    if as_json:
        print_json(standing)
        return
    show(standing)
    rows = [
        (
            line.line,
            f"{line.at:%Y-%m-%d %H:%M:%S}",
            line.actor,
            line.event.replace("_", " "),
            "" if line.change is None else line.change + 1,
            ", ".join(f"{name} {value}" for name, value in line.detail.items() if name != "effects")[:120],
        )
        for line in standing.lines
    ]
    print_table(("line", "at (UTC)", "actor", "event", "step", "detail"), rows, right=(0, 4))


@changes.command("approve")
def approve_changes(
    rollout: RolloutId,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Approve a rollout that is planned; `cotenant apply ID --yes` carries it out."""
    with asked_cloud(server, token_file, database) as cloud:
        standing = cloud.ask(
            RolloutOut,
            lambda advisor: RolloutOut.of(advisor.changes.approve(rollout)),
            *("changes", rollout, "approve"),
            method="POST",
        )
    if as_json:
        print_json(standing)
    else:
        say(f"Rollout {rollout} is approved.")


@changes.command("run")
def run_changes(
    once: Annotated[bool, typer.Option("--once", help="Go over everything once, and end.")] = False,
    here: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Ids of the hosts that are this machine.", show_default="its host name"),
    ] = None,
    database: Database = None,
) -> None:
    """Act by itself, as the settings apply_* allow: carry out what is approved, end what was interrupted, measure what
    was carried out, and take back what did harm.

    In mode ask it makes rollouts that wait for an approval; in mode act it carries out those whose kinds and hosts are
    allowed. It needs the database, and what it changes: it is a process of its own, not the service.
    """
    options: dict[str, Any] = {"database": database, "apply_here": here}
    stop = stop_event()
    with Advisor(settings(**options)) as advisor:
        while not stop.is_set():
            for sentence in advisor.autopilot.step(stop.is_set):
                say(sentence)
            if once or stop.wait(POLL_S):
                return


def freeze(
    reason: Annotated[str, typer.Argument(metavar="[REASON]", help="Why, for other people.")] = "",
    off: Annotated[bool, typer.Option("--off", help="Let changes be applied again.")] = False,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Freeze changes: none is applied until they are thawed; applied ones can be undone."""
    with asked_cloud(server, token_file, database) as cloud:
        if not off:
            frozen = cloud.ask(
                FreezeOut,
                lambda advisor: FreezeOut.of(advisor.changes.freeze(reason)),
                "freeze",
                method="PUT",
                body={"reason": reason},
            )
        else:
            cloud.delete(lambda advisor: advisor.changes.thaw(), "freeze")
            frozen = cloud.ask(FreezeOut, lambda advisor: FreezeOut.of(advisor.changes.frozen()), "freeze")
    if as_json:
        print_json(frozen)
    else:
        say("Changes are frozen." if frozen.frozen else "Changes may be applied.")


# The command `cotenant maintenance`: a host is closed and emptied by a plan, and opened again.

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
