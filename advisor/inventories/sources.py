"""The systems that `cotenant sync` can follow, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.extras import require
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


@dataclass(frozen=True, slots=True)
class _System:
    """The class that reads it, the options that it takes, in this order, and whether it reads parts between wholes."""

    reader: str
    takes: tuple[str, ...]
    partly: bool = False


SOURCES: Mapping[str, _System] = {
    "cloudstack": _System("CloudStack", ("cloud",)),
    "kubernetes": _System("Kubernetes", ("cloud",)),
    "libvirt": _System("Libvirt", ("uris",)),
    "openstack": _System("OpenStack", ("cloud",), partly=True),
    "proxmox": _System("Proxmox", ("cloud", "ca_file", "fingerprint"), partly=True),
    "xapi": _System("Xapi", ("cloud", "ca_file", "fingerprint")),
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
    system, chosen = SOURCES[name], options or SourceOptions(cloud=cloud)
    for option, written in _WRITTEN.items():
        if getattr(chosen, option) and option not in system.takes:
            known = ", ".join(sorted(_WRITTEN[taken_option] for taken_option in system.takes))
            raise InvalidInput(f"{written} does not go with {name}, which takes {known}", field=option)
    if name == "openstack":
        require(name, "OpenStack")
    # Only what is asked for is imported: openstacksdk takes a second.
    reader = getattr(import_module(f"advisor.inventories.{name}"), system.reader)
    source: InventorySource = reader(
        *(getattr(chosen, option) for option in system.takes), **({"whole_every": whole_every} if system.partly else {})
    )
    return source
