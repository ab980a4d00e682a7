"""The moves that Cotenant plans for the part of a cloud that Watcher audits; uses none of Watcher's classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cotenant_client import Client, CotenantError

Places = Mapping[str, str]
"""The host of each instance."""


class NoPlan(Exception):  # noqa: N818 - reads as what it says at the raise
    """Cotenant gave no plan; the message says why and what to do, without secrets."""


@dataclass(frozen=True)
class Move:
    """A live migration; those of one stage may run together, the next stage begins when all of them are done."""

    instance: str
    source: str
    target: str
    stage: int


@dataclass(frozen=True)
class Planned:
    """The moves in their order, and what a reader of Watcher's log should know."""

    moves: Sequence[Move]
    notes: Sequence[str]


def plan(
    client: Client,
    kind: Literal["rebalance", "consolidate"],
    hosts: Collection[str],
    places: Places,
    parameters: Mapping[str, Any],
) -> Planned:
    """Ask for a plan in which these instances may move among these hosts; `parameters` are fields of `POST /v1/plans`.

    An instance that the service does not know, or knows on another host, stays, and a note says so. NoPlan where the
    service is away, refuses, or knows none of the hosts or none of the instances.
    """
    try:
        known_hosts = {host["id"] for host in client.hosts()}
        known_places = {instance["id"]: instance.get("host") for instance in client.instances()}
        usable = sorted(known_hosts & set(hosts))
        movable = sorted(name for name, host in places.items() if known_places.get(name) == host)
        if not usable or (places and not movable):
            unknown = f"{len(hosts)} compute nodes" if not usable else f"{len(places)} servers where they are"
            raise NoPlan(f"Cotenant at {client.url} knows none of the {unknown}; let `cotenant sync openstack` run")
        if not movable:
            return Planned((), ())
        answer = client.plan(kind=kind, hosts=usable, movable=movable, **parameters)
    except CotenantError as error:
        raise NoPlan(f"Cotenant gives no plan: {error}") from error
    moves = [
        Move(step["instance"], str(step["source"]), str(step["host"]), step.get("stage", 0))
        for step in answer["steps"]
        if step.get("action") == "move"
    ]
    counted = {
        "compute nodes accept no servers: Cotenant does not know them": len(hosts) - len(usable),
        "servers stay: Cotenant does not know them, or on another host": len(places) - len(movable),
        "steps are left out: they change settings, which Watcher cannot": len(answer["steps"]) - len(moves),
    }
    return Planned(moves, [*(f"{number} {what}" for what, number in counted.items() if number), *answer["notes"]])
