"""The systems that `cotenant sync` can follow: entry points, those of this distribution like those of others."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points, metadata

from advisor.errors import InvalidInput
from advisor.extras import LIBRARIES, how_to_install, require
from advisor.inventories.reading import InventorySource
from advisor.inventories.systems import HistorySource, InventorySystem, SourceOptions

GROUP = "cotenant.inventories"
_WRITTEN = {"cloud": "--cloud", "uris": "--uri", "ca_file": "--ca-file", "fingerprint": "--fingerprint"}


def sources() -> tuple[str, ...]:
    """The names of all systems that are installed, in order; none of them is imported."""
    return tuple(sorted(_entries()))


def open_source(
    name: str, *, cloud: str | None = None, options: SourceOptions | None = None, whole_every: int = 10
) -> InventorySource:
    """A source that nothing has been read of yet; InvalidInput when there is none of that name, or it takes no such
    option. `cloud` is short for the option of that name."""
    if whole_every < 1:
        raise InvalidInput(f"whole_every {whole_every} is below 1", field="whole_every")
    system = _system(name)
    taken = _taken(name, system, options or SourceOptions(cloud=cloud))
    return system.source(*taken, **({"whole_every": whole_every} if system.partly else {}))


def open_history(name: str, options: SourceOptions | None = None) -> HistorySource:
    """What reads the history that a system keeps of its guests; InvalidInput as of `open_source`, and for one that
    keeps none."""
    system = _system(name)
    if system.history is None:
        raise InvalidInput(f"{name} keeps no history of its guests", field="source")
    return system.history(*_taken(name, system, options or SourceOptions()))


def is_watched(name: str) -> bool:
    """Whether a system reports by itself what changes."""
    return name in _entries() and _system(name).watched


def keeps_history(name: str) -> bool:
    """Whether a system keeps a history of its guests."""
    return name in _entries() and _system(name).history is not None


def check_installed(name: str) -> None:
    """InvalidInput where this is the name of a system whose package is an extra that is not installed."""
    if name not in _entries() and name in (metadata("cotenant").get_all("Provides-Extra") or ()):
        raise InvalidInput(f"{name} needs a package of its own: {how_to_install(name)}", field="source")


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _system(name: str) -> InventorySystem:
    """Import one system: only what is asked for, for openstacksdk takes a second."""
    entries = _entries()
    check_installed(name)
    if name not in entries:
        raise InvalidInput(f"source {name[:60]!r} is none of {', '.join(sorted(entries))}", field="source")
    for extra in entries[name].extras:
        if extra in LIBRARIES:
            require(extra, f"source {name}")
    try:
        system: InventorySystem = entries[name].load()
    except (ImportError, AttributeError) as error:
        message = f"source {name} cannot be loaded from {entries[name].value[:200]}: {error}"
        raise InvalidInput(message, field="source") from error
    return system


def _taken(name: str, system: InventorySystem, options: SourceOptions) -> tuple[object, ...]:
    """The options that a system takes, in its order; InvalidInput for another one."""
    for option, written in _WRITTEN.items():
        if getattr(options, option) and option not in system.takes:
            known = ", ".join(sorted(_WRITTEN[taken_option] for taken_option in system.takes))
            raise InvalidInput(f"{written} does not go with {name}, which takes {known}", field=option)
    return tuple(getattr(options, option) for option in system.takes)
