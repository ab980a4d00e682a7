"""The systems that `cotenant sync` can follow, by the names that it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.inventories.reading import InventorySource


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which system is read, as far as its name does not say it; None or empty = what the environment says.

    `cloud`: one of several clouds; `uris`: libvirt's hosts; `ca_file` and `fingerprint`: by which of its certificates a
    server is known.
    """

    cloud: str | None = None
    uris: tuple[str, ...] = ()
    ca_file: Path | None = None
    fingerprint: str | None = None


def _openstack(options: SourceOptions, whole_every: int) -> InventorySource:
    from advisor.inventories.openstack import OpenStack  # openstacksdk takes a second to import

    return OpenStack(options.cloud, whole_every=whole_every)


def _cloudstack(options: SourceOptions, whole_every: int) -> InventorySource:
    from advisor.inventories.cloudstack import CloudStack

    return CloudStack(options.cloud, whole_every=whole_every)


def _kubernetes(options: SourceOptions, whole_every: int) -> InventorySource:
    from advisor.inventories.kubernetes import Kubernetes

    del whole_every  # every read is whole
    return Kubernetes(options.cloud)


def _libvirt(options: SourceOptions, whole_every: int) -> InventorySource:
    from advisor.inventories.libvirt import Libvirt

    del whole_every  # every read is whole
    return Libvirt(options.uris)


def _proxmox(options: SourceOptions, whole_every: int) -> InventorySource:
    from advisor.inventories.proxmox import Proxmox

    return Proxmox(options.cloud, options.ca_file, options.fingerprint, whole_every=whole_every)


def _xapi(options: SourceOptions, whole_every: int) -> InventorySource:
    from advisor.inventories.xapi import Xapi

    del whole_every  # every read is whole
    return Xapi(options.cloud, options.ca_file, options.fingerprint)


# How each is opened (its options, and every how many reads one is whole), and which of the options it takes.
SOURCES: Mapping[str, tuple[Callable[[SourceOptions, int], InventorySource], frozenset[str]]] = {
    "cloudstack": (_cloudstack, frozenset({"cloud"})),
    "kubernetes": (_kubernetes, frozenset({"cloud"})),
    "libvirt": (_libvirt, frozenset({"uris"})),
    "openstack": (_openstack, frozenset({"cloud"})),
    "proxmox": (_proxmox, frozenset({"cloud", "ca_file", "fingerprint"})),
    "xapi": (_xapi, frozenset({"cloud", "ca_file", "fingerprint"})),
}
# Who keeps a history of its guests that `cotenant history` asks for: a source, or Gnocchi beside OpenStack.
HISTORIES = frozenset({"gnocchi", "proxmox"})
# Who tells by itself what changes.
WATCHED = frozenset({"kubernetes"})
_WRITTEN = {"cloud": "--cloud", "uris": "--uri", "ca_file": "--ca-file", "fingerprint": "--fingerprint"}


def open_source(
    name: str, *, cloud: str | None = None, options: SourceOptions | None = None, whole_every: int = 10
) -> InventorySource:
    """A source that nothing has been read of yet; InvalidInput when there is none of that name, or it takes no such
    option. `cloud` is short for the option of that name."""
    if name not in SOURCES:
        raise InvalidInput(f"source {name[:60]!r} is none of {', '.join(sorted(SOURCES))}", field="source")
    if whole_every < 1:
        raise InvalidInput(f"whole_every {whole_every} is below 1", field="whole_every")
    opened, takes = SOURCES[name]
    given = options or SourceOptions(cloud=cloud)
    for one in fields(given):
        if getattr(given, one.name) and one.name not in takes:
            known = ", ".join(sorted(_WRITTEN[option] for option in takes))
            raise InvalidInput(f"{_WRITTEN[one.name]} does not go with {name}, which takes {known}", field=one.name)
    return opened(given, whole_every)
