"""Conditional requests (RFC 9110, section 13): entity tags, so that no client overwrites changes that they did not
see."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from fastapi import FastAPI, Header, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json

from advisor.errors import InvalidInput, PreconditionFailed

T = TypeVar("T")
Item = TypeVar("Item", bound=BaseModel)
_TAG = r'(W/)?"[\x21\x23-\x7e]{0,200}"'
_LIST = rf"^(\*|{_TAG}([ \t]*,[ \t]*{_TAG})*)$"
_MOST = 1000  # characters of a list
_SCHEMA = {"format": "entity-tags", "pattern": _LIST}  # for the description; `_names` refuses what does not match
_ONE = re.compile(r'(W/)?"([\x21\x23-\x7e]*)"')

IfMatch = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=_MOST,
        description="change it only if it is still what this entity tag says (412)",
        json_schema_extra=_SCHEMA,
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=_MOST,
        description="answer 304 if it is still what this entity tag says",
        json_schema_extra=_SCHEMA,
    ),
]
IfNew = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        min_length=1,
        max_length=_MOST,
        description="`*`: create it, do not replace it (412)",
        json_schema_extra=_SCHEMA,
    ),
]


def tag(item: BaseModel) -> str:
    """The strong entity tag of a resource: a hash of its JSON, so it is the same on every replica."""
    return f'"{hashlib.sha256(to_json(item)).hexdigest()[:32]}"'


class NotModified(Exception):  # noqa: N818 - no error, but the end of a request
    """The caller has the resource as it is now."""

    def __init__(self, entity_tag: str) -> None:
        super().__init__(entity_tag)
        self.entity_tag = entity_tag


def unless_known(item: Item, if_none_match: str | None, response: Response, *, entity_tag: str | None = None) -> Item:
    """The item, with its tag as a header of the response; NotModified where the caller has it already."""
    entity_tag = entity_tag or tag(item)
    if _names(if_none_match, entity_tag, "if-none-match", weak=True):
        raise NotModified(entity_tag)
    response.headers["ETag"] = entity_tag
    return item


def install(app: FastAPI) -> None:
    """Answer 304 without a body where nothing was modified."""
    app.add_exception_handler(NotModified, _not_modified)


def _not_modified(_request: Request, error: Exception) -> Response:
    assert isinstance(error, NotModified)  # noqa: S101 - registered for this class only
    return Response(status_code=304, headers={"ETag": error.entity_tag})


@dataclass(frozen=True, slots=True)
class Condition(Generic[T]):
    """What must hold of a resource before a change; the advisor calls it in the transaction that makes the change.

    `to_body` makes the body of which the tag is taken.
    """

    to_body: Callable[[T], BaseModel]
    if_match: str | None = None
    if_none_match: str | None = None

    def __call__(self, stored: T | None) -> None:
        """PreconditionFailed where the condition does not hold; `stored` None = there is no such resource."""
        entity_tag = None if stored is None else tag(self.to_body(stored))
        if self.if_match is not None and not _names(self.if_match, entity_tag, "if-match", weak=False):
            raise PreconditionFailed("it is not what If-Match says: another client has changed or deleted it")
        if _names(self.if_none_match, entity_tag, "if-none-match", weak=True):
            raise PreconditionFailed("it is there already, and If-None-Match asks for a new one")


def _names(header: str | None, entity_tag: str | None, field: str, *, weak: bool) -> bool:
    """Whether a header names this tag (None = no resource); InvalidInput on what is no list of entity tags."""
    if header is None:
        return False
    if not re.fullmatch(_LIST, header.strip()):
        raise InvalidInput(f'{field} is not "*" and not a list of entity tags in quotes', field=field)
    if header.strip() == "*":
        return entity_tag is not None
    return any(f'"{match[2]}"' == entity_tag and (weak or not match[1]) for match in _ONE.finditer(header))
