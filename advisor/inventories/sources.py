"""The systems that `cotenant sync` can follow, by the names that it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from advisor.errors import InvalidInput
from advisor.inventories.reading import InventorySource


def _openstack(cloud: str | None, whole_every: int) -> InventorySource:
    from advisor.inventories.openstack import OpenStack  # openstacksdk takes a second to import

    return OpenStack(cloud, whole_every=whole_every)


def _cloudstack(cloud: str | None, whole_every: int) -> InventorySource:
    from advisor.inventories.cloudstack import CloudStack

    return CloudStack(cloud, whole_every=whole_every)


# Which of several clouds (None = the one that the environment names), and every how many reads one is whole.
SOURCES: Mapping[str, Callable[[str | None, int], InventorySource]] = {
    "cloudstack": _cloudstack,
    "openstack": _openstack,
}


def open_source(name: str, *, cloud: str | None = None, whole_every: int = 10) -> InventorySource:
    """A source that nothing has been read of yet; InvalidInput when there is none of that name."""
    if name not in SOURCES:
        raise InvalidInput(f"source {name[:60]!r} is none of {', '.join(sorted(SOURCES))}", field="source")
    if whole_every < 1:
        raise InvalidInput(f"whole_every {whole_every} is below 1", field="whole_every")
    return SOURCES[name](cloud, whole_every)
