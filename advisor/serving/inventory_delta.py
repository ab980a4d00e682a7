"""What happened to the inventory since a generation: read by name, and applied to the inventory of that time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Connection

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.store import changes, hosts, instances, workloads
from advisor.telemetry import probe_reports

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class News:
    """Hosts and instances by id, None = deleted; workloads by name, with all that is measured of each now."""

    hosts: Mapping[str, Host | None] = field(default_factory=dict)
    instances: Mapping[str, Instance | None] = field(default_factory=dict)
    workloads: Mapping[str, tuple[WorkloadProfile, ...]] = field(default_factory=dict)

    def with_instances(self, changed: Sequence[Instance]) -> News:
        """With these, read in the same transaction, beside those that were put and deleted."""
        return replace(self, instances={**{instance.id: instance for instance in changed}, **self.instances})

    def applied(self, inventory: Inventory) -> Inventory:
        """The inventory with this done to it; hosts and instances must be ordered by id, workloads by name first."""
        return Inventory(
            _patched(inventory.hosts, attrgetter("id"), {name: _one(host) for name, host in self.hosts.items()}),
            _patched(inventory.instances, attrgetter("id"), {name: _one(it) for name, it in self.instances.items()}),
            _patched(inventory.workloads, attrgetter("name"), self.workloads),
            inventory.observed_at,
        )


def read(connection: Connection, generation: int) -> News | None:
    """What was put and deleted after this generation, as it is now; None = it is no longer known what."""
    touched = changes.since(connection, generation)
    if touched is None:
        return None
    several: dict[str, tuple[WorkloadProfile, ...]] = dict.fromkeys(touched.workloads, ())
    for profile in workloads.get_many(connection, touched.workloads):
        several[profile.name] += (profile,)
    known = probe_reports.with_probed(connection, hosts.get_many(connection, touched.hosts))
    return News(
        {**dict.fromkeys(touched.hosts), **{host.id: host for host in known}},
        {
            **dict.fromkeys(touched.instances),
            **{instance.id: instance for instance in instances.get_many(connection, touched.instances)},
        },
        several,
    )


def _one(item: T | None) -> tuple[T, ...]:
    return () if item is None else (item,)


def _patched(items: tuple[T, ...], name: Callable[[T], Any], news: Mapping[str, Sequence[T]]) -> tuple[T, ...]:
    """Items in the order of their names, with all of each name in the news replaced by the news of it."""
    if not news:
        return items
    now = list(items)
    for key, replacement in news.items():
        start = end = bisect_left(now, key, key=name)
        while end < len(now) and name(now[end]) == key:
            end += 1
        now[start:end] = replacement
    return tuple(now)
