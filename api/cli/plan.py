"""Plans on files: what should become of a whole cloud, as steps by stage, figures before and after, commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import offline
from advisor.domain import Inventory, Plan, PlanKind, PlanRequest, WhatIf, fields_of, found_in, plan_from_json
from advisor.errors import InvalidInput
from api.cli import plan_words
from api.cli.answers import sizes_only
from api.cli.asking import Server, Service, TokenFile, asked_service
from api.cli.declared import NOTHING, Options, asked_of, by_option, with_options
from api.cli.endings import NO_HOST
from api.cli.options import AsJson, InventoryUnlessServer, ModelDir, ReportOut, settings
from api.cli.output import print_json, progress, say
from api.schemas.inventory import HostItem, InstanceItem, WorkloadItem
from api.schemas.plan_questions import PlanBody
from api.schemas.plans import PlanAnswer


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
    """Say what should become of a whole cloud.

    Places instances (admit), restores limits with the fewest moves (rebalance), empties hosts (evacuate), needs fewer
    hosts (consolidate), says how many more instances fit (capacity), compares with an imagined cloud (what_if), suits
    sizes and caps to what is used (right_size), or finds better settings on hosts as they stand (tune). With a file no
    server and no database are needed. Nothing is carried out. The exit code is 3 where an instance finds no host.
    """
    service = asked_service(server, token_file, inventory, model=model, patience_s=asked["time_limit_s"])
    if service is not None:
        cloud = cloud_of(service)
    elif inventory is not None:
        cloud = offline.load_inventory(inventory)
    question = asked_of(PlanRequest, asked, cloud)
    request = PlanRequest(
        kind=kind or _kind(question, what_if),
        instances=offline.load_instances(add, found_in(cloud.instances)) if add else (),
        what_if=offline.load_what_if(what_if) if what_if else None,
        **question,
    )
    show_plan(service, cloud, request, undo=undo, report=report, as_json=as_json, model=model)


def show_plan(
    service: Service | None,
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
            answer = (
                offline.plan(cloud, request, model=model, settings=settings(), progress=advance)
                if service is None
                else planned_by(service, request)
            )
    except InvalidInput as error:
        raise by_option(PlanRequest, error) from error
    if report:
        offline.write_plan_report(cloud, answer, report, model=model, settings=settings() if service is None else None)
    if as_json:
        print_json(PlanAnswer.of(answer))
    else:
        _show(cloud, answer, undo=undo, report=report)
    if any(step.host is None and step.rejected for step in answer.steps):
        raise typer.Exit(NO_HOST)


def _show(cloud: Inventory, answer: Plan, *, undo: bool, report: Path | None) -> None:
    plan_words.show(answer, undo=undo)
    is_noted = answer.search is not None and answer.search.ended == "already fine"
    if not is_noted and (unknown := sizes_only(cloud)):
        say(
            f"Known of {unknown} of {len(cloud.instances)} instances: only their sizes. They are estimated from "
            "similar ones where at least three are known, else as 10 % of their vCPUs."
        )
    if report:
        say(f"Report written to {report}.")


def cloud_of(service: Service) -> Inventory:
    """Hosts, instances and workloads that a service knows; errors as of `Service.get`, ServiceFailed for nonsense."""
    with service.read_as("inventory"):
        return Inventory(
            hosts=tuple(HostItem.model_validate(item).as_domain() for item in service.all_of("hosts")),
            instances=tuple(InstanceItem.model_validate(item).as_domain() for item in service.all_of("instances")),
            workloads=tuple(WorkloadItem.model_validate(item).as_domain() for item in service.all_of("workloads")),
        )


def planned_by(service: Service, request: PlanRequest) -> Plan:
    """What a service plans, as if it had been planned here."""
    body = PlanBody.of(request).model_dump(mode="json")
    with service.read_as("plan"):
        return plan_from_json(service.post("plans", body=body), request)


def _kind(question: Mapping[str, Any], what_if: Path | None) -> PlanKind:
    """The kind that goes with what was given."""
    if what_if is not None:
        return "what_if"
    return "evacuate" if "empty" in question else "capacity" if "growth" in question else "admit"
