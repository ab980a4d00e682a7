"""Dataclasses to plain JSON values and back, by pydantic and their type hints; knows no table and no single type."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, core_schema, from_json, to_json, to_jsonable_python

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


class Unreadable(ValueError):  # noqa: N818 - reads as what it says at the raise
    """Data is not what `encode` or `text` wrote."""


def columns(value: DataclassInstance) -> dict[str, Any]:
    """The fields of a value by name, as a row of a table with such columns; `text` writes what is not plain."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def encode(value: Any) -> Any:
    """Return `value` as dicts, lists, text, numbers, booleans and None; inf and nan become text, which JSON has not."""
    return to_jsonable_python(value, inf_nan_mode="strings", fallback=dict)  # a mapping that is no dict


def text(value: Any) -> str:
    """The JSON text of `encode(value)`; what is stored in a column of values goes this way."""
    return to_json(value, inf_nan_mode="strings", fallback=dict).decode()


def answer_text(value: Any, *, only: Collection[str] = (), apart: Collection[str] = ()) -> bytes:
    """An answer as REST and `--json` write it: figures with the digits that are known, null for what is not finite.

    `only` and `apart` name fields of the value that are written, and that are not.
    """
    adapter = _adapter(cast(Hashable, type(value)))
    return adapter.dump_json(value, include=set(only) or None, exclude=set(apart) or None)


def answer_values(value: Any) -> Any:
    """The same as plain values."""
    return json.loads(answer_text(value))


def parsed(document: str | bytes) -> Any:
    """Inverse of `text` without a type; Unreadable where it is no JSON."""
    try:
        return from_json(document)  # whose short texts are one object each time that they come
    except ValueError as error:
        raise Unreadable(f"no JSON: {error}") from error


def decode(kind: type[T], data: Any) -> T:
    """Inverse of `encode` for a value of type `kind`: fields that the data lacks get their defaults, others are left
    out, and of a Literal any value is taken, for another version may have written it. Unreadable where the data does
    not fit."""
    plain = dict(data) if isinstance(data, Mapping) else data
    try:
        return cast(T, _validator(cast(Hashable, kind)).validate_python(plain))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Unreadable(f"{getattr(kind, '__name__', 'value')}.{where}: {first['msg']}") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _validator(kind: Any) -> SchemaValidator:
    return SchemaValidator(_of_any_literal(_adapter(kind).core_schema))


def _of_any_literal(schema: Any) -> Any:
    """The schema, and what it is made of, without the lists of values that a Literal has."""
    if isinstance(schema, list):
        return [_of_any_literal(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "literal":
        return core_schema.any_schema()
    return {name: _of_any_literal(part) for name, part in schema.items()}
