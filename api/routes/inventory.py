"""The whole inventory in one call, guarded by its generation."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Response

from advisor.errors import InvalidInput
from api.http.conditional import IfNoneMatch, unless_known
from api.routes.common import InventoryDep, SettingsDep, check_batch
from api.schemas.inventory import Generation, GenerationStored, InventoryBody

_GENERATION = r'^(\*|"([0-9]{1,15})")$'

IfMatch = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=100,
        description='the generation as an entity tag, `"7"`, instead of the body field',
        json_schema_extra={"format": "entity-tags", "pattern": _GENERATION},
    ),
]


def put(
    body: InventoryBody, inventory: InventoryDep, settings: SettingsDep, response: Response, if_match: IfMatch = None
) -> GenerationStored:
    """Replace or merge a whole cloud; 409 when the named generation is no longer the current one.

    To replace, send hosts and instances, which may be empty lists, or name the generation. Where a host loses a pCPU,
    pins to it of instances that are stored and not sent are cut, or end.
    """
    for field in ("hosts", "instances", "workloads"):
        check_batch(getattr(body, field), settings, field)
    expected = _expected(body.generation, if_match)
    if expected is None:
        body.check_complete()
    notes: list[str] = []
    generation = inventory.put(body.to_domain(), mode=body.mode, generation=expected, notes=notes)
    response.headers["ETag"] = f'"{generation}"'
    return GenerationStored(generation=generation, notes=notes)


def get(inventory: InventoryDep, response: Response, if_none_match: IfNoneMatch = None) -> Generation:
    """The current generation, to be named in the next change."""
    generation = inventory.generation()
    return unless_known(Generation(generation=generation), if_none_match, response, entity_tag=f'"{generation}"')


def _expected(generation: int | None, if_match: str | None) -> int | None:
    if if_match is None:
        return generation
    match = re.fullmatch(_GENERATION, if_match.strip())
    if not match:
        raise InvalidInput('If-Match is not an entity tag of this resource, such as "7"', field="if-match")
    if match[2] is None:
        return generation
    if generation is not None and generation != int(match[2]):
        raise InvalidInput("If-Match and the field generation name different generations", field="generation")
    return int(match[2])
