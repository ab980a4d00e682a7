"""Schemas of an instance that a question is about: one that the inventory knows brings what is not said of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pydantic import Field

from advisor.domain import Find, Instance, asked_about, like_another
from advisor.errors import InvalidInput, NotFound
from api.schemas.base import Amount, Cpus, Id, as_input
from api.schemas.inventory import InstanceNeeds, of_demands, to_demands
from api.schemas.settings import Isolation, PinningMap, given_settings, pinning_map

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
