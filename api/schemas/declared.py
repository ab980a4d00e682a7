"""Bodies of REST that are made from what the domain declares of a question: types, limits, defaults, descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

from pydantic import Field, create_model

from advisor.domain import DeclaredField, fields_of
from api.schemas.base import WHOLE, Flag, Id, Schema

B = TypeVar("B", bound="QuestionBody")
Ids = Annotated[list[Id], Field(max_length=100_000)]


class QuestionBody(Schema):
    """A question as REST takes it; `asks` gives it its fields."""

    question: ClassVar[type]
    declared: ClassVar[Mapping[str, DeclaredField]]  # those that the body has
    bodies: ClassVar[Mapping[str, Any]]  # types of fields that REST writes otherwise than the domain, without None

    def to_domain(self) -> Any:
        """The domain's question."""
        return self.question(**self.converted())

    def converted(self) -> dict[str, Any]:
        """The values as the domain has them, by field; those of `bodies` that are lists as they are."""
        return {name: _converted(getattr(self, name)) for name in self.declared}

    @classmethod
    def of(cls, question: Any) -> Self:
        """From the domain, unchecked."""
        values = {name: cls.written(name, getattr(question, name)) for name in cls.declared}
        body: Any = cls.model_construct(**values)
        return cast(Self, body)

    @classmethod
    def written(cls, name: str, value: Any) -> Any:
        """A value of the domain's field `name` as the body has it."""
        body = cls.bodies.get(name)
        if isinstance(body, type) and issubclass(body, QuestionBody) and value is not None:
            return body.of(value)
        return list(value) if isinstance(value, tuple) else value


def asks(
    question: type, *names: str, defaults: Mapping[str, Any] = MappingProxyType({}), **bodies: Any
) -> Callable[[type[B]], type[B]]:
    """Decorate a body: it gets the declared fields of a question of the domain, or those of these names.

    `defaults` are those of the body where they are not the question's. `bodies` are the types, without None, of fields
    whose type REST writes otherwise than the domain.
    """

    def with_fields(cls: type[B]) -> type[B]:
        declared = {name: each for name, each in fields_of(question).items() if name in (names or (name,))}
        made: Any = {
            name: _field(replace(each, default=defaults.get(name, each.default)), bodies.get(name))
            for name, each in declared.items()
        }
        body = create_model(cls.__name__, __base__=cls, __module__=cls.__module__, __doc__=cls.__doc__, **made)
        body.question, body.declared, body.bodies = question, declared, bodies
        return body

    return with_fields


def _field(field: DeclaredField, body: Any) -> tuple[Any, Any]:
    declared = field.declared
    kind = _kind(field) if body is None else body
    unset = f"; null = {declared.unset}" if declared.unset else ""
    description = f"{declared.meaning}{unset}"
    extra: Any = {"minItems": int(declared.low)} if field.lists and declared.low else None
    made = Field(default=_default(field, body), description=description, json_schema_extra=extra)
    return kind | None if field.optional else kind, made


def _default(field: DeclaredField, body: Any) -> Any:
    if field.default is MISSING:
        return ...
    if field.parts and not field.optional:
        return body()
    return [] if field.default == () else field.default


def _kind(field: DeclaredField) -> Any:
    """The strict type of one field of the domain."""
    low, high = field.declared.low, field.declared.high
    if field.lists:
        return Ids
    if field.choices:
        return field.kind
    if field.kind is bool:
        return Flag
    if field.kind is str:
        return Annotated[str, Field(min_length=1, max_length=field.declared.longest)]
    if field.kind is int:
        ends: Any = {"ge": None if low is None else int(low), "le": None if high is None else int(high)}
        return Annotated[int, Field(strict=True, **ends), WHOLE]
    if field.kind is float:
        return Annotated[float, Field(strict=True, allow_inf_nan=False, ge=low, le=high)]
    raise TypeError(f"{field.name}: REST has no type of its own for {field.kind}; give one to asks()")


def _converted(value: Any) -> Any:
    if isinstance(value, QuestionBody):
        return value.to_domain()
    return tuple(value) if isinstance(value, list) else value
