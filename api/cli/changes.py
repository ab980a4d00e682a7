"""The commands `cotenant changes` and `cotenant freeze`: the ledger, approvals, and the switch that stops all."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from advisor.domain import RolloutState
from advisor.service import Advisor
from api.cli.apply import POLL_S, show
from api.cli.endings import stop_event
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.schemas.changes import FreezeOut, RolloutOut

RolloutId = Annotated[str, typer.Argument(help="An id from the list.")]

changes = typer.Typer(
    help="Changes that were carried out: the list with verdicts, one with its ledger, approvals.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@changes.command("list")
def list_changes(
    state: Annotated[RolloutState | None, typer.Option(help="Only rollouts in this state.", show_default="all")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of rollouts at most.")] = 100,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List rollouts with what they brought, newest first."""
    with Advisor(settings(database=database)) as advisor:
        listed = advisor.changes.page(state=state, limit=limit).items
    if as_json:
        print_json([RolloutOut.of(one) for one in listed])
        return
    rows = [
        (
            one.rollout.id,
            f"{one.rollout.created_at:%Y-%m-%d %H:%M}",
            one.rollout.source,
            len(one.rollout.changes),
            one.state.replace("_", " "),
            one.verdict if one.effects else "",
        )
        for one in listed
    ]
    print_table(("rollout", "made (UTC)", "of", "changes", "state", "verdict"), rows, right=(3,))


@changes.command("show")
def show_changes(rollout: RolloutId, database: Database = None, as_json: AsJson = False) -> None:
    """Show a rollout, what it brought, and every line of its ledger."""
    with Advisor(settings(database=database)) as advisor:
        standing = advisor.changes.get(rollout)
    if as_json:
        print_json(RolloutOut.of(standing))
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
def approve_changes(rollout: RolloutId, database: Database = None, as_json: AsJson = False) -> None:
    """Approve a rollout that is planned; `cotenant apply ID --yes` carries it out."""
    with Advisor(settings(database=database)) as advisor:
        standing = advisor.changes.approve(rollout)
    if as_json:
        print_json(RolloutOut.of(standing))
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
) -> None:
    """Stop all changes: no controller applies any from now on; what was applied can be taken back."""
    with Advisor(settings(database=database)) as advisor:
        if off:
            advisor.changes.thaw()
        else:
            advisor.changes.freeze(reason)
        frozen = FreezeOut.of(advisor.changes.frozen())
    if as_json:
        print_json(frozen)
    else:
        say("Changes are frozen." if frozen.frozen else "Changes may be applied.")
