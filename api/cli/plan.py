"""`cotenant plan`, `plans` and `tune`: what should become of a whole cloud or of one host, and plans that were made."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import offline
from advisor.domain import (
    Effect,
    Inventory,
    IsolationSettings,
    Plan,
    PlanAge,
    PlanKind,
    PlanRequest,
    PlanStep,
    WhatIf,
    duration_in_words,
    fields_of,
    found_in,
    settings_in_words,
)
from advisor.errors import InvalidInput
from api.cli.ask import ratio, sizes_only
from api.cli.asking import (
    SERVER,
    Server,
    ServerOrDatabase,
    Service,
    TokenFile,
    asked_cloud,
)
from api.cli.files import FileCloud, asked_questions
from api.cli.lazy import NO_HOST
from api.cli.options import (
    NOTHING,
    AsJson,
    Database,
    InventoryUnlessServer,
    ModelDir,
    Options,
    ReportOut,
    asked_of,
    by_option,
    ids_of,
    settings,
    with_options,
)
from api.cli.output import print_json, print_table, progress, say
from api.schemas.placements import PlanAnswer, PlanItem

# A plan on a terminal: steps by stage, commands, and the document that every front end shows.

DONE = {
    "place": "place", "move": "move", "settings": "set", "resize": "resize", "remove": "take away",
    "driver_domain": "set",
}  # fmt: skip


def show_words(plan: Plan, *, undo: bool) -> None:
    """Everything that a plan says, with the steps back where they are wanted."""
    document = offline.plan_document(plan)
    show_steps(plan.steps, plan.after, "T/B after the plan (range)")
    if max(Counter(step.host for step in plan.steps if step.host and step.new_vm).values(), default=0) > 1:
        say("Reasons are those of the step itself; later steps change more.")
    for sentence in (document.headline, *document.sentences):
        say(sentence)
    for fact, value in document.facts.items():
        say(f"{fact}: {value}.")
    for table in offline.text_tables(*document.sections):
        print_table(table.headings, table.rows, right=tuple(table.numeric))
    for note in plan.notes:
        say(f"Note: {note}")
    show_commands(plan.steps)
    if undo and plan.undo:
        say("")
        say("To undo:")
        show_steps(plan.undo, plan.before, "T/B as before (range)")
        show_commands(plan.undo)
    effects = chain.from_iterable(plan.after.values())
    say(offline.answered_by(plan.model_version, plan.model_origin, degraded=plan.degraded, effects=effects))


def show_steps(steps: Sequence[PlanStep], after: Mapping[str, Sequence[Effect]], heading: str) -> None:
    """One line for each step, those of one stage together; `after` are the effects, by host, once all are done."""
    if not steps:
        return
    effects = {effect.instance: effect for effect in chain.from_iterable(after.values())}
    ranked = any(step.new_vm for step in steps)  # only who is placed anew stands in a ranking
    copied = any(step.duration_s for step in steps)
    rows = [
        (
            step.stage + 1 if step.host or step.action == "remove" else "",
            DONE[step.action],
            step.subject,
            step.source or "",
            step.host or ("" if step.action == "remove" else "none"),
            *([ratio(effects[step.instance]) if step.instance in effects else ""] if ranked else []),
            *([duration_in_words(step.duration_s) if step.duration_s else ""] if copied else []),
            _what(step),
        )
        for step in steps
    ]
    ratios = [heading] if ranked else []
    takes = ["takes"] if copied else []
    print_table(("stage", "step", "instance", "from", "to", *ratios, *takes, "why"), rows, right=(0,))


def _what(step: PlanStep) -> str:
    """The reason, or why there is no host; with the new size or settings where these are the step."""
    if step.rejected and step.host is None:
        first = step.rejected[0]
        more = f" (and {len(step.rejected) - 1} more hosts refuse)" if len(step.rejected) > 1 else ""
        return f"{first.host}: {first.reason}{more}"
    size = "" if step.vcpus is None else f"to {step.vcpus} vCPU{'s' if step.vcpus > 1 else ''}"
    settings = "" if step.settings in {None, IsolationSettings()} else settings_in_words(step.settings)
    return "; ".join(part for part in (size, settings, step.why) if part)


def show_commands(steps: Sequence[PlanStep]) -> None:
    """The commands of each step, with what must be known."""
    for step in steps:
        for note in step.notes:
            say(f"{step.subject}: {note}")
        for command in step.commands:
            if not command.argv:
                continue
            say(f"# stage {step.stage + 1}, {step.subject}{f': {command.note}' if command.note else ''}")
            say(shlex.join(command.argv))
            if command.undo:
                say(f"#   undo: {shlex.join(command.undo)}")


# The commands `cotenant plans`: plans that the service made, listed and shown with their age.

MOST_NAMED = 5

plans = typer.Typer(
    help="Stored plans: list them, show one with its age.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@plans.command("list")
def list_plans(
    kind: Annotated[PlanKind | None, typer.Option(help="Only plans of this kind.", show_default="all")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of plans.")] = 100,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """List plans that were made, newest first."""
    with asked_cloud(server, token_file, database) as cloud:
        listed = cloud.every(
            PlanItem,
            lambda advisor: PlanItem.asked(advisor.plans, advisor.inventory, kind=kind, limit=limit).items,
            "plans",
            most=limit,
            kind=kind,
        )
    if as_json:
        print_json(listed)
        return
    rows = [
        (item.id, item.kind, f"{item.created_at:%Y-%m-%d %H:%M}", item.model_version, _stale(item.stale))
        for item in listed
    ]
    print_table(("plan", "kind", "made (UTC)", "model", "stale"), rows)


@plans.command("show")
def show_made_plan(
    plan: Annotated[str, typer.Argument(help="An id from the list.")],
    undo: Annotated[bool, typer.Option("--undo", help="Also print the steps that take the plan back.")] = False,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show a plan that was made, and what was written to the inventory since."""
    with asked_cloud(server, token_file, database) as cloud:
        found = cloud.ask(PlanAnswer, lambda advisor: PlanAnswer.asked(advisor.plans, plan), "plans", plan)
    if as_json:
        print_json(found)
        return
    show_words(found, undo=undo)
    if found.age is not None:
        say(_age(found.age, found.generation))


def _stale(stale: bool | None) -> str:
    return "unknown" if stale is None else "yes" if stale else "no"


def _age(age: PlanAge, generation: int | None) -> str:
    """One sentence."""
    if age.stale is None:
        return "For which inventory it was made is not known: it may be stale."
    if not age.stale:
        return f"The inventory was not written since (generation {age.generation})."
    start = f"Stale: it was made for generation {generation} of the inventory, which is at {age.generation} now"
    if age.hosts is None or age.instances is None:
        return f"{start}; what changed since is no longer known. Ask again."
    changed = [*(f"host {name}" for name in age.hosts), *(f"instance {name}" for name in age.instances)]
    named = ", ".join(changed[:MOST_NAMED]) or "workloads only"
    more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
    return f"{start}; changed since: {named}{more}. Ask again."


# Tuning: better settings for all instances of a host that stands as it is, on files or by a service.


@with_options
def tune(
    inventory: Annotated[
        Path | None,
        typer.Argument(metavar="[INVENTORY.yaml]", help="Hosts, instances and workloads; left out with --server."),
    ] = None,
    host: Annotated[str | None, typer.Argument(metavar="[HOST]", help="The host; several as A,B.")] = None,
    every: Annotated[bool, typer.Option("--all", help="The whole cloud, worst hosts first.")] = False,
    asked: Annotated[
        Mapping[str, Any], Options(PlanRequest, ("objective", "allow", "commands", "time_limit_s", "seed"))
    ] = NOTHING,
    undo: Annotated[bool, typer.Option("--undo", help="Also print the steps that take the plan back.")] = False,
    report: ReportOut = None,
    as_json: AsJson = False,
    model: ModelDir = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Find better settings for all instances of a host as it stands.

    Pins or their removal, the CPUs and the weight of the driver domain, weights, caps, traffic classes and disk limits:
    the fewest and mildest changes, one after the other, so that no instance is worse off on the way than before or
    after where there is such an order. Nothing moves, and nothing is carried out. The same as `plan --kind tune`.
    """
    asks_service = server is not None or (SERVER in os.environ and inventory is not None and not inventory.is_file())
    if asks_service and inventory is not None and host is None:
        inventory, host = None, str(inventory)
    if (host is None) != every:
        raise InvalidInput("name a host, or give --all for the whole cloud", field="host")
    asking = asked_questions(server, token_file, inventory, model=model, patience_s=asked["time_limit_s"])
    cloud = asking.inventory()
    named = ids_of("HOST", host, cloud.hosts)
    if missing := sorted(set(named or ()) - {one.id for one in cloud.hosts}):
        raise InvalidInput(f"HOST: there is no host {missing[0]}")
    request = PlanRequest(kind="tune", hosts=named, **asked)
    show_plan(asking, cloud, request, undo=undo, report=report, as_json=as_json, model=model)


@with_options
def plan(
    inventory: InventoryUnlessServer = None,
    kind: Annotated[
        PlanKind | None,
        typer.Option(
            help="Which question the plan answers.",
            show_default="what_if with --what-if, evacuate with --empty, capacity with growth, else admit",
        ),
    ] = None,
    add: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML file with the instances to place, or the mix of which more are to fit."
        ),
    ] = None,
    what_if: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"YAML file with what is different: {', '.join(fields_of(WhatIf))}."),
    ] = None,
    asked: Annotated[Mapping[str, Any], Options(PlanRequest, apart=("kind", "instances", "what_if"))] = NOTHING,
    undo: Annotated[bool, typer.Option("--undo", help="Also print the steps that take the plan back.")] = False,
    report: ReportOut = None,
    as_json: AsJson = False,
    model: ModelDir = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Plan a whole cloud: placements, rebalancing, evacuation, capacity and more.

    Places instances (admit), restores limits with the fewest moves (rebalance), empties hosts (evacuate), needs fewer
    hosts (consolidate), says how many more instances fit (capacity), compares with an imagined cloud (what_if), suits
    sizes and caps to what is used (right_size), or finds better settings on hosts as they stand (tune). With a file no
    server and no database are needed. Nothing is carried out. The exit code is 3 where an instance finds no host.
    """
    asking = asked_questions(server, token_file, inventory, model=model, patience_s=asked["time_limit_s"])
    cloud = asking.inventory()
    question = asked_of(PlanRequest, asked, cloud)
    request = PlanRequest(
        kind=kind or _kind(question, what_if),
        instances=offline.load_instances(add, found_in(cloud.instances)) if add else (),
        what_if=offline.load_what_if(what_if) if what_if else None,
        **question,
    )
    show_plan(asking, cloud, request, undo=undo, report=report, as_json=as_json, model=model)


def show_plan(
    asking: Service | FileCloud,
    cloud: Inventory,
    request: PlanRequest,
    *,
    undo: bool,
    report: Path | None,
    as_json: bool,
    model: Path | None,
) -> None:
    """Plan here or by a service, and print the answer; the exit code is 3 where an instance finds no host."""
    if report:
        offline.check_report(report)
    try:
        with progress() as advance:
            answer = asking.plan(request, advance)
    except InvalidInput as error:
        raise by_option(PlanRequest, error) from error
    if report:
        offline.write_plan_report(
            cloud, answer, report, model=model, settings=settings() if isinstance(asking, FileCloud) else None
        )
    if as_json:
        print_json(PlanAnswer.of(answer))
    else:
        _show(cloud, answer, undo=undo, report=report)
    if any(step.host is None and step.rejected for step in answer.steps):
        raise typer.Exit(NO_HOST)


def _show(cloud: Inventory, answer: Plan, *, undo: bool, report: Path | None) -> None:
    show_words(answer, undo=undo)
    is_noted = answer.search is not None and answer.search.ended == "already fine"
    if not is_noted and (unknown := sizes_only(cloud)):
        say(
            f"Known of {unknown} of {len(cloud.instances)} instances: only their sizes. They are estimated from "
            "similar ones where at least three are known, else as 10 % of their vCPUs."
        )
    if report:
        say(f"Report written to {report}.")


def _kind(question: Mapping[str, Any], what_if: Path | None) -> PlanKind:
    """The kind that goes with what was given."""
    if what_if is not None:
        return "what_if"
    return "evacuate" if "empty" in question else "capacity" if "growth" in question else "admit"
