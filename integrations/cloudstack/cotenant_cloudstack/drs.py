"""CloudStack: migrations as the API call with which its own DRS carries them out."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from advisor.domain import Figure
from advisor.errors import NotFound
from api.routes.common import CloudDep, PathId, PlacementDep
from api.routing import Route
from api.schemas.base import AnswerBody

CLUSTER = "cluster"  # the label that `cotenant sync cloudstack` gives hosts: the cluster's uuid
WITHIN_S = 20.0

Migrations = Annotated[int, Query(ge=1, le=1000, description="most migrations, as in generateClusterDrsPlan")]


class DrsMove(AnswerBody):
    """One migration, and why."""

    virtualmachine: str = Field(description="UUID of the virtual machine")
    source: str = Field(description="UUID of the host that it is on")
    destination: str = Field(description="UUID of the host that it should move to")
    gain: Figure | None = Field(description="harm that it takes away, see `gain` of a plan's steps")
    reason: str = Field(description="why, as a sentence")


class DrsPlan(AnswerBody):
    """Migrations within a cluster that pay beyond uncertainty."""

    cluster: str = Field(description="UUID of the cluster")
    moves: list[DrsMove] = Field(description="migrations, in the order in which they should be made")
    parameters: dict[str, str] = Field(
        description="of the API call executeClusterDrsPlan, to be signed and sent as they are; empty = nothing to move"
    )


def drs_plan(cluster: PathId, cloud: CloudDep, placements: PlacementDep, migrations: Migrations = 10) -> DrsPlan:
    """Which virtual machines of a cluster should move, as the parameters of CloudStack's executeClusterDrsPlan.

    ExecuteClusterDrsPlanCmd.java reads `migrateto[i].vm` and `migrateto[i].host`. CloudStack takes one plan per cluster
    at a time.
    """
    inventory = cloud.inventory()
    hosts = [host.id for host in inventory.hosts if host.labels.get(CLUSTER) == cluster]
    if not hosts:
        raise NotFound(f"the inventory has no hosts of cluster {cluster}")
    inside = set(hosts)
    targets = {instance.id: hosts for instance in inventory.instances if instance.host in inside}
    moves = [
        DrsMove(
            virtualmachine=improvement.instance,
            source=improvement.source,
            destination=improvement.target,
            gain=improvement.gain,
            reason=improvement.why,
        )
        for improvement in placements.improvements(targets, most=migrations, within_s=WITHIN_S)
        if improvement.target
    ]
    parameters = {"command": "executeClusterDrsPlan", "id": cluster} if moves else {}
    for number, move in enumerate(moves):
        parameters[f"migrateto[{number}].vm"] = move.virtualmachine
        parameters[f"migrateto[{number}].host"] = move.destination
    return DrsPlan(cluster=cluster, moves=moves, parameters=parameters)


ROUTES = (Route("GET", "/cloudstack/drs-plan/{cluster}", drs_plan, "schedulers", fails=(404,), lane="long"),)
