"""The instance that a question is about: one rule for every door, whether the cloud knows its id or not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from advisor.errors import InvalidInput, NotFound
from profiler.observed import Instance, IsolationSettings

T = TypeVar("T")
Find = Callable[[str], Instance]  # of an id; NotFound where the cloud has none such


def asked_about(
    name: str, given: Mapping[str, Any], find: Find, *, vcpus: int | None = None, on: str | None = None
) -> Instance:
    """The instance `name` as a question means it.

    An id that the cloud knows has its stored size, settings, labels, demand and place; what is `given` replaces that:
    fields of Instance, of which `settings`, `demand` and `labels` are mappings and replace what they name. The stored
    pinning names pCPUs of the host that the instance is on, so it is asked for only where the question is about that
    host, `on`. An unknown id needs a size: InvalidInput where no vCPUs are given, unless the caller has `vcpus` for
    this case.
    """
    try:
        known = find(name)
    except NotFound:
        if "vcpus" not in given and vcpus is None:
            message = f"there is no instance {name} in the inventory, so its size is needed: give vcpus and memory_mb"
            raise InvalidInput(message, field="instance.vcpus") from None
        settings = _made(IsolationSettings, **given.get("settings", {}))
        return _made(Instance, **{"vcpus": vcpus, **given, "id": name, "settings": settings})
    return changed(known if on is not None and on == known.host else unpinned(known), given)


def unpinned(instance: Instance) -> Instance:
    """The instance without its pinning, which names pCPUs of the host that it is on, for a question about others."""
    return replace(instance, settings=replace(instance.settings, pinning=None))


def found_in(instances: Collection[Instance]) -> Find:
    """Look ids up among these."""
    by_id = {instance.id: instance for instance in instances}

    def find(name: str) -> Instance:
        if name not in by_id:
            raise NotFound(f"there is no instance {name}")
        return by_id[name]

    return find


def changed(instance: Instance, given: Mapping[str, Any]) -> Instance:
    """The instance with what is given, as `asked_about` takes it; InvalidInput where that contradicts itself.

    With fewer vCPUs its pinning is left out and measured demand is cut to them, unless they are given, too.
    """
    fields = dict(given)
    vcpus, settings, demand = int(fields.get("vcpus", instance.vcpus)), instance.settings, dict(instance.demand)
    if settings.pinning is not None and len(settings.pinning.cpus) > vcpus:
        settings = replace(settings, pinning=None)
    fields.setdefault("dedicated_vcpus", min(instance.dedicated_vcpus, vcpus))
    if vcpus < instance.vcpus:
        demand |= {name: known.within(vcpus) for name, known in demand.items() if known.origin == "measured"}
    fields["settings"] = _made(replace, settings, **fields.get("settings", {}))
    fields["demand"] = {**demand, **fields.get("demand", {})}
    fields["labels"] = {**instance.labels, **fields.get("labels", {})}
    made: Instance = _made(replace, instance, **fields)
    return made


def _made(make: Callable[..., T], *args: Any, **fields: Any) -> T:
    try:
        return make(*args, **fields)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
