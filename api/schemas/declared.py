"""Schemas made of the declared questions, and what every question has: the instance and its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

from pydantic import Field, create_model

from advisor.domain import DeclaredField, Find, Instance, asked_about, fields_of, like_another
from advisor.errors import InvalidInput, NotFound
from api.schemas.base import (
    WHOLE,
    Amount,
    Cpus,
    Flag,
    Id,
    Isolation,
    PinningMap,
    Schema,
    as_input,
    given_settings,
    pinning_map,
)
from api.schemas.inventory import InstanceNeeds, of_demands, to_demands

B = TypeVar("B", bound="QuestionBody")
Ids = Annotated[list[Id], Field(max_length=100_000)]


class QuestionBody(Schema):
    """A question as REST takes it; `asks` gives it its fields."""

    question: ClassVar[type]
    declared: ClassVar[Mapping[str, DeclaredField]]  # those that the body has
    bodies: ClassVar[Mapping[str, Any]]  # types of fields that REST writes otherwise than the domain, without None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself: pydantic copies the body that is the default of a field for each question, and no body changes."""
        return self

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


# Schemas of an instance that a question is about: one that the inventory knows brings what is not said of it.

_SIZE = ("vcpus", "memory_mb")


class Asked(InstanceNeeds):
    """An instance by its id, with what the question says of it."""

    id: Id = Field(
        description="its id; one that the inventory has brings its size, settings, labels, demand and place, which the "
        "fields of the question replace"
    )
    vcpus: Cpus | None = Field(
        default=None, description="virtual CPUs; null = as the inventory or `like` has it, else it must be given"
    )
    memory_mb: Amount | None = Field(
        default=None, description="memory in MB; null = as the inventory or `like` has it, else 0"
    )
    like: Id | None = Field(
        default=None,
        description="an instance of the inventory that it is like: its demand, workload and sensitivity are taken, "
        "and its size where none is given",
    )
    pinning: PinningMap | None = Field(
        default=None, description="which pCPUs each vCPU may use; null = the answer may choose"
    )

    def asked(self, find: Find, *, on: str | None = None) -> Instance:
        """The domain's Instance; `find` looks up one of the inventory, `on` is the host that the question is about.

        InvalidInput names the field of the instance that is wrong.
        """
        try:
            if self.like is None:
                instance = asked_about(self.id, self._given(), find, on=on)
            else:
                instance = self._like(self.like, asked_about(self.id, self._given(), find, vcpus=1, on=on), find)
        except InvalidInput as error:
            raise InvalidInput(error.message, field=(error.field or "").removeprefix("instance.") or None) from error
        return self._demanding(instance)

    def _given(self) -> dict[str, Any]:
        """The fields that the question has, but for the demand."""
        apart = {"id", "like", "profile", "pinning", "isolation", "demand"}
        given = {name: getattr(self, name) for name in self.model_fields_set - apart}
        given = {name: value for name, value in given.items() if value is not None or name not in (*_SIZE, "host")}
        settings = given_settings(self.isolation, self.pinning)
        return {**given, "settings": settings} if settings else given

    @as_input
    def _demanding(self, instance: Instance) -> Instance:
        demand = to_demands(self.demand, instance.vcpus)
        return replace(instance, demand={**instance.demand, **demand}) if demand else instance

    def _like(self, name: str, instance: Instance, find: Find) -> Instance:
        """The instance with what is known of another one, which what the question says replaces."""
        for field in ("workload", "profile", "demand"):
            if getattr(self, field, None):
                raise InvalidInput(f"give like or {field}, not both", field=field)
        try:
            other = find(name)
        except NotFound as error:
            raise InvalidInput(f"{error.message} to be like", field="like") from error
        kept = {name: getattr(instance, name) for name in ("service",) if name in self.model_fields_set}
        return replace(like_another(instance, other, self._sized(find)), **kept)

    def _sized(self, find: Find) -> Collection[str]:
        """Which fields of its size the question or the inventory has."""
        try:
            find(self.id)
        except NotFound:
            return [name for name in _SIZE if getattr(self, name) is not None]
        return _SIZE


class AskedInstance(Asked):
    """An instance of a plan or of a scene."""

    host: Id | None = Field(default=None, description="the host it is on; null = as the inventory has it")

    @classmethod
    def of(cls, instance: Instance) -> AskedInstance:
        """From the domain, unchecked and whole."""
        apart = {"like", "pinning", "isolation"}
        same = {name: getattr(instance, name) for name in cls.model_fields if name not in apart}
        return cls.model_construct(
            **{**same, "labels": dict(instance.labels), "demand": of_demands(instance.demand)},
            pinning=pinning_map(instance.settings.pinning),
            isolation=Isolation.of(instance.settings),
        )


def all_asked(instances: Collection[AskedInstance], find: Find, *, on: str | None = None) -> tuple[Instance, ...]:
    """The domain's Instances; InvalidInput names the place in the list and the field."""
    found = []
    for position, instance in enumerate(instances):
        try:
            found.append(instance.asked(find, on=on))
        except InvalidInput as error:
            field = ".".join(filter(None, ("instances", str(position), error.field)))
            raise InvalidInput(error.message, field=field) from error
    return tuple(found)
