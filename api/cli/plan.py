"""Plans on files: what should become of a whole cloud, as steps by stage, figures before and after, commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import offline
from advisor.domain import Growth, Inventory, Plan, PlanFor, PlanKind, PlanRequest, found_in, plan_from_json
from advisor.errors import InvalidInput
from api.cli import plan_words
from api.cli.answers import sizes_only
from api.cli.ask import ids_of
from api.cli.asking import Server, Service, TokenFile, asked_service
from api.cli.endings import NO_HOST
from api.cli.options import (
    AsJson,
    GrowthUncertain,
    InstanceGrowth,
    InventoryUnlessServer,
    KeepRatio,
    LoadGrowth,
    ModelDir,
    Months,
    MoveGain,
    ObjectiveName,
    ReportOut,
    Seed,
    SpareHosts,
    SpareLabel,
    TimeLimit,
    bounded,
    settings,
)
from api.cli.output import print_json, progress, say
from api.schemas.inventory import HostItem, InstanceItem, WorkloadItem
from api.schemas.plans import PlanAnswer, PlanBody

STANDARD = PlanRequest()
# Options that are not called as their fields are.
OPTIONS = {
    "instances": "--add", "what_if": "--what-if", "growth.instances_per_month": "--growth",
    "growth.load_percent_per_month": "--load-growth", "growth.months": "--months",
    "growth.uncertain_percent": "--growth-uncertain",
    "time_limit_s": "--time-limit",
}  # fmt: skip


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
    empty: Annotated[str | None, typer.Option(metavar="A,B", help="Hosts to be emptied (evacuate).")] = None,
    hosts: Annotated[str | None, typer.Option(metavar="A,B", help="Use only these hosts.", show_default="all")] = None,
    movable: Annotated[
        str | None, typer.Option(metavar="A,B", help="Instances that may move.", show_default="all without a pinning")
    ] = None,
    growth: InstanceGrowth = None,
    load_growth: LoadGrowth = 0.0,
    months: Months = None,
    growth_uncertain: GrowthUncertain = 0.0,
    spare_hosts: SpareHosts = STANDARD.spare_hosts,
    spare_label: SpareLabel = None,
    what_if: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file with what is different: hosts, remove, cpu_overcommit, memory_overcommit, pinning, model.",
        ),
    ] = None,
    then: Annotated[
        PlanKind | None,
        typer.Option(
            help="Which question to answer for the imagined cloud: admit, rebalance, consolidate or capacity."
        ),
    ] = None,
    objective: ObjectiveName = "worst",
    plan_for: Annotated[
        PlanFor,
        typer.Option(
            help="Which demand counts: as it varies over the hours, or of each its mean or a percentile all the time."
        ),
    ] = STANDARD.plan_for,
    keep_ratio: KeepRatio = STANDARD.keep_ratio,
    max_moves: Annotated[
        int | None,
        bounded("max_moves", help="Number of moves at most.", show_default="any number"),
    ] = None,
    move_gain: MoveGain = STANDARD.move_gain,
    at_once: Annotated[int, bounded("at_once", help="Number of moves in one stage at most.")] = STANDARD.at_once,
    at_once_per_host: Annotated[
        int,
        bounded("at_once_per_host", help="Number of moves in one stage to or from one host at most."),
    ] = STANDARD.at_once_per_host,
    at_once_per_rack: Annotated[
        int | None,
        bounded(
            "at_once_per_rack",
            help="Number of moves in one stage to or from the hosts of one rack at most.",
            show_default="any number",
        ),
    ] = None,
    rack_label: Annotated[
        str, typer.Option(metavar="LABEL", help="The label of hosts that names their rack.")
    ] = STANDARD.rack_label,
    migration_mbit: Annotated[
        float | None,
        bounded(
            "migration_mbit",
            metavar="MBIT/S",
            help="How much of each host's network its moves may use.",
            show_default="its label migration_mbit, else all of it",
        ),
    ] = None,
    rack_mbit: Annotated[
        float | None,
        bounded(
            "rack_mbit",
            metavar="MBIT/S",
            help="How much all moves together may send out of a rack, or into it.",
            show_default="any amount",
        ),
    ] = None,
    commands: Annotated[bool, typer.Option("--commands", help="Print the commands of every step.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Also print the steps that take the plan back.")] = False,
    time_limit: TimeLimit = STANDARD.time_limit_s,
    seed: Seed = STANDARD.seed,
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
    server and no database are needed. Nothing is carried out. The exit code is 3 where somebody finds no host.
    """
    service = asked_service(server, token_file, inventory, model=model, patience_s=time_limit)
    if service is not None:
        cloud = cloud_of(service)
    elif inventory is not None:
        cloud = offline.load_inventory(inventory)
    grows = growth_of(growth, load_growth, months, growth_uncertain)
    wanted = _kind(kind, empty, grows, what_if)
    request = PlanRequest(
        kind=wanted,
        instances=offline.load_instances(add, found_in(cloud.instances)) if add else (),
        empty=ids_of("--empty", empty, cloud.hosts) or (),
        hosts=ids_of("--hosts", hosts, cloud.hosts),
        movable=ids_of("--movable", movable, cloud.instances),
        objective=objective,
        plan_for=plan_for,
        keep_ratio=keep_ratio,
        max_moves=max_moves,
        move_gain=move_gain,
        at_once=at_once,
        at_once_per_host=at_once_per_host,
        at_once_per_rack=at_once_per_rack,
        rack_label=rack_label,
        migration_mbit=migration_mbit,
        rack_mbit=rack_mbit,
        growth=grows,
        spare_hosts=spare_hosts,
        spare_label=spare_label,
        what_if=offline.load_what_if(what_if) if what_if else None,
        then=then,
        commands=commands,
        time_limit_s=time_limit,
        seed=seed,
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
        raise by_option(error) from error
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


def by_option(error: InvalidInput) -> InvalidInput:
    """The same refusal with the option that the field is given by."""
    field = error.field or ""
    option = OPTIONS.get(field) or OPTIONS.get(field.partition(".")[0]) or f"--{field.replace('_', '-')}"
    known = field in OPTIONS or field.partition(".")[0] in {*OPTIONS, *PlanRequest.__dataclass_fields__}
    return InvalidInput(f"{option}: {error.message}", field=field) if known else error


def _kind(given: PlanKind | None, empty: str | None, growth: Growth | None, what_if: Path | None) -> PlanKind:
    if given is not None:
        return given
    if what_if is not None:
        return "what_if"
    if empty is not None:
        return "evacuate"
    return "capacity" if growth is not None else "admit"


def growth_of(instances: float | None, load: float, months: int | None = None, uncertain: float = 0.0) -> Growth | None:
    """How demand grows as the options say it; None = it does not."""
    if instances is not None or load:
        return Growth(instances or 0.0, load, months or Growth().months, uncertain)
    if uncertain:
        message = "--growth-uncertain is about growth; name it with --growth or --load-growth"
        raise InvalidInput(message, field="growth")
    if months is not None:
        raise InvalidInput("--months is about growth; name it with --growth or --load-growth", field="growth")
    return None
