"""The names by which people and other systems know a host or an instance, beside its id; values only."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from profiler.observed import Host, Instance

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
