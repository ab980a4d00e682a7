"""Names of hosts and instances beside their ids, and the known instance that a question means by one."""

from __future__ import annotations

import math
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from advisor.errors import InvalidInput, NotFound
from profiler.observed import Host, Instance, IsolationSettings

NAMES = ("name", "uuid", "domain")  # labels that hold one


def spoken(name: str) -> str:
    """A name as it is compared: composed (NFC), and without what cannot be seen, which labels do not hold either."""
    composed = unicodedata.normalize("NFC", name)
    return "".join(char for char in composed if char.isprintable()).strip()


def spellings(name: str) -> tuple[str, ...]:
    """The ways in which a store that compares bytes may hold a name."""
    return tuple({name, *(unicodedata.normalize(form, spoken(name)) for form in ("NFC", "NFD"))})


def names_of(item: Host | Instance) -> set[str]:
    """Its id and every name that a label holds."""
    return {item.id, *(spoken(item.labels[label]) for label in NAMES if label in item.labels)} - {""}


def ids_by_name(items: Collection[Host | Instance]) -> Mapping[str, set[str]]:
    """Ids by each name; an id is never the name of another one."""
    ids: dict[str, set[str]] = defaultdict(set)
    for item in items:
        for name in names_of(item):
            ids[name].add(item.id)
    return {**ids, **{item.id: {item.id} for item in items}}


def known_as(items: Iterable[Host | Instance], name: str) -> list[str]:
    """Ids of what has this id, else of what goes by this name, in order."""
    ids: set[str] = set()
    for item in items:
        if item.id == name:
            return [name]
        if spoken(name) in names_of(item):
            ids.add(item.id)
    return sorted(ids)


# The instance that a question is about: one rule for every door, whether the cloud knows its id or not.

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


# What a user says of an instance in texts, such as annotations: each field as its type.


def number(text: str) -> float:
    """A finite number as text; ValueError else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("is not a finite number")
    return value


def whole(text: str) -> int:
    """A whole number as text; ValueError else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError("is not a whole number")
    return int(text)


def _workload(text: str) -> str:
    if not text or len(text) > 255 or not text.isprintable():
        raise ValueError("is not 1-255 printable characters")
    return text


def _service(text: str) -> str:
    if text not in {"latency", "throughput"}:
        raise ValueError("is neither latency nor throughput")
    return text


# By the names of an Instance's fields; each raises a ValueError that goes on after the text.
SAID: Mapping[str, Callable[[str], Any]] = {
    "workload": _workload,
    "service": _service,
    "load": number,
    "min_throughput_ratio": number,
    "max_latency_ratio": number,
    "max_time_short": number,
}
