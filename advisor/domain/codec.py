"""Frozen dataclasses to plain JSON values and back, driven by their type hints; knows no table and no single type."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic_core import to_json

T = TypeVar("T")
Decode = Callable[[Any], Any]


def encode(value: Any) -> Any:
    """Return `value` as dicts, lists, text, numbers, booleans and None; inf and nan become text, which JSON has not."""
    if is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value


def text(value: Any) -> str:
    """The JSON text of `encode(value)`, in a twentieth of the time; what is stored in a column of values goes this way.

    `decode` reads both: the texts that stand for inf and nan are spelled otherwise, and times end in Z.
    """
    return to_json(value, inf_nan_mode="strings", fallback=encode).decode()  # a mapping that is no dict


def decode(kind: type[T], data: Any) -> T:
    """Inverse of `encode` for a value of type `kind`; fields that the data lacks get their defaults.

    A field whose metadata has `formerly` is also read by that name, which it had when the value was stored.
    """
    return cast(T, _decoder(cast(Hashable, kind))(data))


@cache
def _decoder(hint: Any) -> Decode:
    """Work out once per type how to read it: a snapshot decodes tens of thousands of values."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _optional(_decoder(inner))
    if origin is tuple:
        return _tuple(_decoder(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(arguments[1]))
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass(hint)
    if hint is float:
        return float  # reads "inf" and "nan" as well
    if hint is datetime:
        return datetime.fromisoformat
    return _as_is


def _as_is(data: Any) -> Any:
    return data


def _optional(inner: Decode) -> Decode:
    return lambda data: None if data is None else inner(data)


def _tuple(inner: Decode) -> Decode:
    return lambda data: tuple(inner(item) for item in data)


def _mapping(inner: Decode) -> Decode:
    return lambda data: {key: inner(item) for key, item in data.items()}


def _dataclass(kind: type[Any]) -> Decode:
    hints = get_type_hints(kind)
    readers = {
        key: (field.name, _decoder(hints[field.name]))
        for field in fields(kind)
        for key in (field.name, field.metadata.get("formerly"))
        if key is not None
    }
    return lambda data: kind(**{name: read(data[key]) for key, (name, read) in readers.items() if key in data})
