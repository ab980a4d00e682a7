"""Tuning: better settings for all instances of a host that stands as it is, on files or by a service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import offline
from advisor.domain import PlanRequest
from advisor.errors import InvalidInput
from api.cli.asking import SERVER, Server, TokenFile, asked_service
from api.cli.declared import NOTHING, Options, ids_of, with_options
from api.cli.options import AsJson, ModelDir, ReportOut
from api.cli.plan import cloud_of, show_plan


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
    service = asked_service(server, token_file, inventory, model=model, patience_s=asked["time_limit_s"])
    if service is not None:
        cloud = cloud_of(service)
    elif inventory is not None:
        cloud = offline.load_inventory(inventory)
    named = ids_of("HOST", host, cloud.hosts)
    if missing := sorted(set(named or ()) - {one.id for one in cloud.hosts}):
        raise InvalidInput(f"HOST: there is no host {missing[0]}")
    request = PlanRequest(kind="tune", hosts=named, **asked)
    show_plan(service, cloud, request, undo=undo, report=report, as_json=as_json, model=model)
