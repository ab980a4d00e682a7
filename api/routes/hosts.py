"""Hosts: put, get, delete, list."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Query, Response
from pydantic import AfterValidator, WithJsonSchema

from advisor.domain import HostSlowing
from advisor.errors import InvalidInput
from api.http.conditional import Condition, IfMatch, IfNew, IfNoneMatch, tag, unless_known
from api.routes.common import CloudDep, Cursor, InventoryDep, Limit, PathId, TelemetryDep
from api.routes.instances import Since
from api.schemas.base import PageOut
from api.schemas.inventory import HostBody, HostItem, HostStored
from profiler.host_kinds import HostKind

# Names of labels have no quotes and backslashes, which the database's query for a label cannot hold.
_PAIR = r'^[^="\\\x00-\x1f\x7f]{1,255}=[^\x00-\x1f\x7f]{0,255}$'


def _pair(text: str) -> str:
    if not re.fullmatch(_PAIR, text):
        raise ValueError("is not name=value, each at most 255 characters that can be seen")
    return text


LabelPair = Annotated[str, AfterValidator(_pair), WithJsonSchema({"type": "string", "pattern": _PAIR})]
LabelFilter = Annotated[list[LabelPair], Query(max_length=20, description="`name=value`; may be repeated")]


def put(
    host: PathId,
    body: HostBody,
    inventory: InventoryDep,
    response: Response,
    if_match: IfMatch = None,
    if_none_match: IfNew = None,
) -> HostStored:
    """Create or replace a host. A pin of an instance there to a pCPU that the host no longer has is cut, or ends."""
    new_host, notes = body.to_domain(host), list[str]()
    if inventory.put_host(new_host, only_if=Condition(HostItem.of, if_match, if_none_match), notes=notes):
        response.status_code = 201
    item = HostItem.of(new_host)
    response.headers["ETag"] = tag(item)
    return HostStored.model_construct(**dict(item), notes=notes)


def get(host: PathId, inventory: InventoryDep, response: Response, if_none_match: IfNoneMatch = None) -> HostItem:
    """One host."""
    return unless_known(HostItem.of(inventory.host(host)), if_none_match, response)


def delete(host: PathId, inventory: InventoryDep, if_match: IfMatch = None) -> None:
    """Delete a host; refused while instances are on it."""
    inventory.delete_host(host, only_if=Condition(HostItem.of, if_match))


def slowing(host: PathId, cloud: CloudDep, telemetry: TelemetryDep, since: Since = "24h") -> HostSlowing:
    """How instances on a host slow each other down: what is predicted of each pair beside what was measured."""
    return HostSlowing.of(telemetry.slowing(host, since=since), cloud.host(host).slowing)


def listing(
    inventory: InventoryDep,
    label: LabelFilter = [],  # noqa: B006 - FastAPI copies it
    kind: Annotated[HostKind | None, Query(description="only hosts of this hypervisor")] = None,
    enabled: Annotated[bool | None, Query(description="only hosts that take instances, or only others")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> PageOut[HostItem]:
    """All hosts, or those that have every named label, are of one kind, are enabled or not, in pages."""
    labels = dict(pair.split("=", 1) for pair in label)
    if len(labels) < len(label):
        raise InvalidInput("a label can have one value only; name each once", field="label")
    page = inventory.hosts(labels=labels, kind=kind, enabled=enabled, cursor=cursor, limit=limit)
    return PageOut(items=[HostItem.of(host) for host in page.items], next_cursor=page.next_cursor)
